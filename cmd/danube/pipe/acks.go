package pipe

import (
	"bufio"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/danubemq/danube/cmd/danube/render"
)

// ackPrinter prints acknowledgements as JSON, in the order of the lines they are of. Its user serialises the calls.
type ackPrinter struct {
	queue   []*flight // in the order of lines; those before head are printed
	head    int
	out     *bufio.Writer
	now     func() time.Time
	flushed time.Time
	err     error
}

// How long an acknowledgement may wait in the buffer while others come.
const ackDelay = 50 * time.Millisecond

// print prints what is known of the next lines and gives their flights back to the pool.
func (p *ackPrinter) print(pool *sync.Pool) error {
	for p.head < len(p.queue) && p.queue[p.head].state != flying {
		f := p.queue[p.head]
		p.queue[p.head] = nil
		p.head++
		if f.state == landed && p.err == nil {
			p.err = p.one(f)
		}
		pool.Put(f)
	}
	switch {
	case p.head == len(p.queue):
		p.queue, p.head = p.queue[:0], 0
		p.flush() // nothing is in flight: whoever reads the other end may be waiting for this
	case p.head > 4096 && p.head > len(p.queue)/2:
		p.queue = slices.Delete(p.queue, 0, p.head)
		p.head = 0
	}
	if now := p.now(); now.Sub(p.flushed) > ackDelay {
		p.flushed = now
		p.flush()
	}
	return p.err
}

func (p *ackPrinter) flush() {
	if p.err == nil {
		p.err = p.out.Flush()
	}
}

// one prints {"line","partition","offset","append_time"}.
func (p *ackPrinter) one(f *flight) error {
	b := p.out.AvailableBuffer()
	b = strconv.AppendUint(append(b, `{"line":`...), f.line, 10)
	b = strconv.AppendInt(append(b, `,"partition":`...), int64(f.result.Partition), 10)
	b = strconv.AppendUint(append(b, `,"offset":`...), f.result.Offset, 10)
	b = append(b, `,"append_time":"`...)
	b = f.result.AppendTime.UTC().AppendFormat(b, render.TimeLayout)
	_, err := p.out.Write(append(b, "\"}\n"...))
	return err
}

// close flushes for the last time.
func (p *ackPrinter) close() error {
	p.flush()
	return p.err
}
