package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/integration/history"
	"github.com/danubemq/danube/protocol"
)

// startCluster starts n brokers, each on a disk of its own, over wires that can be cut. There is a topic of one partition
// more for each further broker, so that a fault of one leaves others to be watched (L3).
func (c *chaos) startCluster(n int) {
	c.t.Helper()
	c.wires = newWires(c.t, n)
	o := options{}
	if c.share != nil {
		o = tiered("shared_fs", c.share.url())
		c.topics = append(c.topics, chaosTopic{"/default/chaos-sure-1", 1, history.Object}, chaosTopic{"/default/chaos-sure-2", 2, history.Object})
	}
	o.wires = c.wires
	c.fleet = newFleet(c.t, n, o)
	for _, b := range c.fleet.brokers {
		disk := mountLossyDisk(c.t)
		b.dir = filepath.Join(disk.dir, "data")
		c.brokers = append(c.brokers, &patientOfChaos{b, disk})
	}
	c.fleet.start()
	for i := range n - 1 {
		c.topics = append(c.topics, chaosTopic{fmt.Sprintf("/default/chaos-1-%d", i+2), 1, history.Local})
	}
}

// healed waits until everything that was hurt works again: each partition takes a message (L1), none is half-way and
// nothing is orphaned (L2).
func (c *chaos) healed() {
	c.t.Helper()
	for _, b := range c.brokers {
		if b.process.ended() {
			c.t.Errorf("%s ended by itself: %s", b.name, b.ending())
			b.start()
		}
	}
	if c.fleet == nil {
		return
	}
	c.wires.heal()
	began := time.Now()
	for _, topic := range c.topics {
		for p := range topic.partitions {
			if err := c.accepts(topic.name, p); err != nil {
				c.t.Errorf("L1: %v after the faults were over %s:%d takes nothing: %v", time.Since(began), topic.name, p, err)
			}
		}
	}
	nothingMissing(c.t, readyWithin, c.halfWay)
	c.t.Logf("healed after %v", time.Since(began))
}

// accepts sends one message to a partition.
func (c *chaos) accepts(topic string, partition int) error {
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	cl := c.dial()
	defer cl.Close()
	p, err := cl.Producer(ctx, fmt.Sprintf("%s:%d", topic, partition), client.ProducerConfig{})
	if err != nil {
		return err
	}
	record := c.run.Producer(topic)
	seq, payload := record.Begin(64)
	r, err := p.Send(ctx, client.Message{Payload: payload})
	outcome(record, seq, r, err)
	if err != nil {
		return err
	}
	_, err = p.Close(ctx)
	return err
}

// halfWay names a partition that is neither open nor whole.
func (c *chaos) halfWay() string {
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	for _, topic := range c.topics {
		d, err := c.fleet.control().TopicDescribe(ctx, protocol.TopicArgs{Topic: topic.name, Partition: -1})
		if err != nil {
			return err.Error()
		}
		for _, p := range d.Partitions {
			if !strings.EqualFold(p.State, "open") {
				return fmt.Sprintf("L2: %s:%d is %s %s", topic.name, p.Partition, p.State, p.Reason)
			}
			for _, r := range p.Ranges {
				if strings.EqualFold(r.Status, string(history.Orphaned)) {
					return fmt.Sprintf("L2: %s:%d has the orphaned range [%d, %d) of %v", topic.name, p.Partition, r.Start, r.End, r.Stores)
				}
			}
		}
	}
	return ""
}

// spare notes the partitions that a fault of one broker should leave moving: those that another owns (L3).
func (c *chaos) spare(f *history.Fault, hurt string) {
	if c.fleet == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
	defer cancel()
	for _, topic := range c.topics {
		if topic.partitions > 1 {
			continue // a producer of several partitions stands still when one does
		}
		d, err := c.fleet.control().TopicDescribe(ctx, protocol.TopicArgs{Topic: topic.name, Partition: -1})
		if err != nil {
			return
		}
		for _, p := range d.Partitions {
			if p.Owner != hurt && strings.EqualFold(p.State, "open") {
				f.Spared(topic.name, p.Partition)
			}
		}
	}
}

// place is where a broker is in the wires.
func (c *chaos) place(b *patientOfChaos) int { return slices.Index(c.brokers, b) }

// killForLong outlasts the lease: what the broker owned is taken over before it is back.
func (c *chaos) killForLong(rnd *rand.Rand, b *patientOfChaos) {
	c.fault(history.Kill, b, func() {
		b.kill()
		rest(c.t.Context(), time.Duration(4000+rnd.IntN(3000))*time.Millisecond)
		b.start()
	})
}

// isolate cuts a broker off from the others, for longer than the lease or not; clients reach it all the time.
func (c *chaos) isolate(rnd *rand.Rand, b *patientOfChaos) {
	c.fault(history.CutOff, b, func() {
		c.wires.isolate(c.place(b))
		rest(c.t.Context(), time.Duration(1000+rnd.IntN(6000))*time.Millisecond)
		c.wires.heal()
	})
}

// cutOneWay lets the others hear nothing of a broker, or the broker nothing of the others.
func (c *chaos) cutOneWay(rnd *rand.Rand, b *patientOfChaos) {
	mute := rnd.IntN(2) == 0
	c.fault(history.CutOff, b, func() {
		for i := range c.brokers {
			switch at := c.place(b); {
			case i == at:
			case mute:
				c.wires.silence(at, i)
			default:
				c.wires.silence(i, at)
			}
		}
		rest(c.t.Context(), time.Duration(1000+rnd.IntN(6000))*time.Millisecond)
		c.wires.heal()
	})
}

// move moves every topic's first partition to a broker: no fault, and nobody but the epochs should notice.
func (c *chaos) move(_ *rand.Rand, b *patientOfChaos) {
	c.fault(history.Moved, b, func() {
		ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
		defer cancel()
		for _, topic := range c.topics {
			if _, err := c.fleet.control().TopicMove(ctx, protocol.TopicMove{Topic: topic.name, To: b.name}); err != nil {
				c.t.Errorf("move %s to %s, with every broker up: %v", topic.name, b.name, err)
			}
		}
	})
}

// stop ends a broker in order, which hands its topics over, and starts it again.
func (c *chaos) stop(rnd *rand.Rand, b *patientOfChaos) {
	c.fault(history.Stopped, b, func() {
		b.stop(readyWithin)
		rest(c.t.Context(), time.Duration(rnd.IntN(2000))*time.Millisecond)
		b.start()
	})
}
