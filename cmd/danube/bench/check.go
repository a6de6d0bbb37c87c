package bench

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"sync/atomic"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// Findings of a read-back printed one by one before the rest is only counted.
const findingsShown = 10

// checker judges what a run reads back: every message once, in order, unharmed.
type checker struct {
	around Surroundings
	table  *crc32.Table
	run    uint64
	errors int64
	next   map[lineage]uint64 // sequence after the last one seen
	count  map[uint32]uint64  // by stream: messages
}

// lineage is where order is promised: a stream within a partition.
type lineage struct {
	partition int
	stream    uint32
}

func newChecker(run uint64, around Surroundings) *checker {
	return &checker{around: around, table: crc32.MakeTable(crc32.Castagnoli), run: run, next: map[lineage]uint64{}, count: map[uint32]uint64{}}
}

func (c *checker) findf(format string, args ...any) {
	if c.errors++; c.errors <= findingsShown {
		c.around.say("danube: "+format, args...)
	}
}

// message judges the next message of a partition.
func (c *checker) message(m *client.Message) {
	s, err := readStamp(c.table, m.Payload)
	switch {
	case errors.Is(err, errNotStamped):
		return // somebody else's; one of the run that lost its stamp is missed in the count
	case err != nil:
		c.findf("%s:%d offset %d: %v", m.Topic, m.Partition, m.Offset, err)
		return
	case s.run != c.run:
		return // of another run beside this one
	}
	line := lineage{m.Partition, s.stream}
	if want, seen := c.next[line]; seen && s.seq < want {
		c.findf("%s:%d offset %d: message %d of stream %d comes again or too late", m.Topic, m.Partition, m.Offset, s.seq, s.stream)
		return
	}
	c.next[line] = s.seq + 1
	c.count[s.stream]++
}

// ReadBack reads what was acknowledged and returns how much of it is wrong.
func (r *Run) ReadBack(ctx context.Context) (int64, error) {
	type part struct {
		topic     string
		partition int
	}
	first := map[part]uint64{}
	want := map[uint32]uint64{}
	total := int64(0)
	for _, lane := range r.lanes {
		if lane.acked > 0 && !lane.kept {
			r.around.say("%s is not reliable and keeps nothing: there is nothing to read back", lane.topic)
			return 0, nil
		}
		want[lane.stream] = lane.acked
		total += int64(lane.acked)
		for p, offset := range lane.spans {
			at := part{lane.topic, p}
			if before, ok := first[at]; !ok || offset < before {
				first[at] = offset
			}
		}
	}
	c := newChecker(r.number, r.around)
	var read atomic.Int64
	stop := r.around.watch(&read, total, "read back")
	defer stop()
	for at, offset := range first {
		if err := c.partition(ctx, r.conns[0].client, fmt.Sprintf("%s:%d", at.topic, at.partition), offset, &read); err != nil {
			return 0, err
		}
	}
	c.complete(want)
	return c.errors, nil
}

// complete judges whether of every stream as many messages came as were acknowledged.
func (c *checker) complete(acked map[uint32]uint64) {
	for stream, n := range acked {
		if got := c.count[stream]; got != n {
			c.findf("stream %d: %d messages acknowledged, %d read back", stream, n, got)
		}
	}
}

// partition reads one partition from an offset to its end.
func (c *checker) partition(ctx context.Context, cl *client.Client, name string, offset uint64, read *atomic.Int64) error {
	r, err := cl.Reader(ctx, name, client.ReaderConfig{From: protocol.Position{Kind: protocol.AtOffset, Offset: offset}, ToEnd: true})
	if err != nil {
		return err
	}
	defer r.Close()
	for n := int64(1); ; n++ {
		m, err := r.Next(ctx)
		if gap, ok := errors.AsType[*client.GapError](err); ok {
			c.findf("%v", gap)
			continue
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		c.message(&m)
		if n&1023 == 0 {
			read.Add(1024)
		}
	}
}
