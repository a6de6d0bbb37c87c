package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/integration/history"
	"github.com/danubemq/danube/protocol"
)

// drain waits until every subscription has caught up, or the time is over: what is left then shows in the cursors.
func (c *chaos) drain(d time.Duration) {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	deadline, behind := time.Now().Add(d), ""
	for time.Now().Before(deadline) {
		lag := ""
		for _, topic := range c.topics {
			described, err := cl.Admin().TopicDescribe(c.t.Context(), protocol.TopicArgs{Topic: topic.name, Partition: -1})
			if err != nil {
				c.t.Fatalf("describe %s after the faults were over: %v", topic.name, err)
			}
			for _, s := range described.Subscriptions {
				for _, p := range s.Partitions {
					if p.Lag > 0 {
						lag += fmt.Sprintf("\n%s:%d %s: %+v", topic.name, p.Partition, s.Name, p)
					}
				}
			}
		}
		if lag == "" {
			return
		}
		behind = lag
		rest(c.t.Context(), 50*time.Millisecond)
	}
	c.t.Errorf("the subscriptions had not caught up %v after the faults were over:%s", d, behind)
}

// readBack collects the end state: everything is read once from the running broker and once after a clean restart.
func (c *chaos) readBack() *history.Final {
	c.t.Helper()
	final := c.run.Final()
	c.readAll(final, "served")
	for _, b := range c.brokers {
		b.stop(readyWithin)
		b.start()
	}
	c.readAll(final, "served after a clean restart")
	cl := c.dial()
	defer cl.Close()
	for _, topic := range c.topics {
		d, err := cl.Admin().TopicDescribe(c.t.Context(), protocol.TopicArgs{Topic: topic.name, Partition: -1})
		if err != nil {
			c.t.Fatalf("describe %s: %v", topic.name, err)
		}
		for _, p := range d.Partitions {
			end := final.Partition(topic.name, p.Partition)
			end.Level, end.LogStart, end.Ranges = topic.level, int64(p.LogStart), namedRanges(p)
			for _, r := range p.Ranges {
				end.Epochs = append(end.Epochs, history.Epoch{Number: r.Epoch, From: int64(r.Start), Open: strings.EqualFold(r.Status, "open")})
			}
		}
		for _, s := range d.Subscriptions {
			for _, p := range s.Partitions {
				final.Cursor(history.Cursor{Topic: topic.name, Partition: p.Partition, Subscription: s.Name, Prefix: int64(p.Cursor)})
			}
		}
	}
	return final
}

// namedRanges are the gaps, lost ranges and superseded offsets of a partition: what lies between two ranges was given to
// no message.
func namedRanges(p protocol.PartitionDescription) []history.Range {
	var all []history.Range
	for _, s := range p.Superseded {
		all = append(all, history.Range{From: int64(s.Start), To: int64(s.End), Status: history.Superseded})
	}
	at := int64(p.LogStart)
	for _, r := range p.Ranges {
		if int64(r.Start) > at {
			all = append(all, history.Range{From: at, To: int64(r.Start), Status: history.PlainGap})
		}
		switch status := history.Status(strings.ToUpper(r.Status)); status {
		case history.Lost, history.Orphaned:
			all = append(all, history.Range{From: int64(r.Start), To: int64(r.End), Status: status})
		}
		at = max(at, int64(r.End))
	}
	return all
}

func (c *chaos) readAll(final *history.Final, tier string) {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), 2*time.Minute)
	defer cancel()
	for _, topic := range c.topics {
		for p := range topic.partitions {
			name := fmt.Sprintf("%s:%d", topic.name, p)
			r, err := cl.Reader(ctx, name, client.ReaderConfig{From: protocol.Position{Kind: protocol.Earliest}, ToEnd: true})
			if err != nil {
				c.t.Fatalf("read back %s: %v", name, err)
			}
			to := final.Partition(topic.name, p).Tier(tier)
			for {
				m, err := r.Next(ctx)
				var gap *client.GapError
				if errors.Is(err, io.EOF) {
					break
				} else if errors.As(err, &gap) {
					continue
				} else if err != nil {
					c.t.Fatalf("read back %s: %v", name, err)
				}
				to.Add(int64(m.Offset), m.Payload)
			}
			r.Close()
		}
	}
}
