package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/integration/history"
	"github.com/danubemq/danube/protocol"
)

// startClients starts, for each topic, two producers, a reader of each partition, a consumer of an exclusive
// subscription and two of a shared one. Each records what it is told.
func (c *chaos) startClients(producing, consuming context.Context) {
	for i, topic := range c.topics {
		for j := range 2 {
			n := uint64(i*10 + j)
			c.producing.Go(func() { c.produce(producing, topic, n) }) // returns when producing is over
		}
		for p := range topic.partitions {
			c.consuming.Go(func() { c.read(consuming, topic.name, p) }) // returns when consuming is over
		}
		for j, sub := range []string{"exclusive", "shared", "shared"} {
			n := uint64(i*10 + j)
			c.consuming.Go(func() { c.consume(consuming, topic.name, sub, n) }) // returns when consuming is over
		}
	}
}

// outcome notes what a producer was told.
func outcome(p *history.Producer, seq uint64, r client.Result, err error) {
	var refused *protocol.Error
	var doubt *client.UnknownError
	switch {
	case err == nil:
		p.Acked(seq, r.Partition, int64(r.Offset))
	case errors.As(err, &doubt):
		p.Unknown(seq)
	case errors.As(err, &refused) && refused.Code.Meaning().NotStored:
		p.NotStored(seq)
	default:
		p.Unknown(seq)
	}
}

// produce sends now one message at a time, now many at once. Every other producer gives a message up after a while, so
// that some outcomes are unknown.
func (c *chaos) produce(ctx context.Context, topic chaosTopic, n uint64) {
	rnd := rand.New(rand.NewPCG(c.seed, 100+n))
	cl := c.dial()
	if cl == nil {
		return
	}
	defer cl.Close()
	cfg := client.ProducerConfig{Name: fmt.Sprintf("chaos-%d", n), MaxPending: 4 << 20}
	if n%2 == 1 {
		cfg.SendTimeout = 500 * time.Millisecond
	}
	p, err := cl.Producer(ctx, topic.name, cfg)
	if err != nil {
		c.t.Errorf("open producer: %v", err)
		return
	}
	// One record a partition: the order of a producer is the order of a partition, and messages are sent to partitions
	// in turns.
	record := c.run.Producer(topic.name)
	for ctx.Err() == nil {
		size := 64 + rnd.IntN(2000)
		if rnd.IntN(200) == 0 {
			size = 300_000
		}
		seq, payload := record.Begin(size)
		if rnd.IntN(8) == 0 {
			r, err := p.Send(ctx, client.Message{Payload: payload})
			outcome(record, seq, r, err)
			continue
		}
		err := p.SendAsync(ctx, client.Message{Payload: payload}, func(r client.Result, err error) { outcome(record, seq, r, err) })
		if err != nil { // never taken
			record.NotStored(seq)
		}
		if rnd.IntN(4) == 0 {
			rest(ctx, time.Duration(rnd.IntN(5))*time.Millisecond)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
	defer cancel()
	if unknown, err := p.Close(last); unknown > 0 {
		c.t.Errorf("a producer had %d messages without an outcome %v after the faults were over: %v", unknown, readyWithin, err)
	}
}

// read follows one partition from its beginning. After an error that ends it, a new reader begins behind the last
// message.
func (c *chaos) read(ctx context.Context, topic string, partition int) {
	cl := c.dial()
	if cl == nil {
		return
	}
	defer cl.Close()
	from := protocol.Position{Kind: protocol.Earliest}
	for ctx.Err() == nil {
		r, err := cl.Reader(ctx, fmt.Sprintf("%s:%d", topic, partition), client.ReaderConfig{From: from})
		if err != nil {
			rest(ctx, 20*time.Millisecond)
			continue
		}
		record := c.run.Consumer("reader", topic, "", history.Reader)
		for {
			m, err := r.Next(ctx)
			var gap *client.GapError
			if errors.As(err, &gap) {
				record.Gap(gap.Partition, int64(gap.From), int64(gap.To))
				continue
			}
			if err != nil {
				break
			}
			record.Read(delivered(m))
			from = protocol.Position{Kind: protocol.AtOffset, Offset: m.Offset + 1}
		}
		r.Close()
	}
}

func delivered(m client.Message) history.Delivery {
	return history.Delivery{Partition: m.Partition, Offset: int64(m.Offset), Payload: m.Payload, Redelivered: m.Deliveries > 1, Late: m.Late}
}

// consume takes part in a subscription until consuming is over; a consumer that ended is made anew.
func (c *chaos) consume(ctx context.Context, topic, subscription string, n uint64) {
	rnd := rand.New(rand.NewPCG(c.seed, 200+n))
	cl := c.dial()
	if cl == nil {
		return
	}
	defer cl.Close()
	mode, kind := history.Shared, protocol.Shared
	if subscription == "exclusive" {
		mode, kind = history.Exclusive, protocol.Exclusive
	}
	for ctx.Err() == nil {
		record := c.run.Consumer(fmt.Sprintf("%s-%d", subscription, n), topic, subscription, mode)
		k, err := cl.Consumer(ctx, topic, client.ConsumerConfig{
			Subscription: subscription, Type: kind, From: protocol.Position{Kind: protocol.Earliest}, Queue: 200,
			OnGap: func(g client.GapError) { record.Gap(g.Partition, int64(g.From), int64(g.To)) },
		})
		if err != nil {
			rest(ctx, 20*time.Millisecond)
			continue
		}
		c.receive(ctx, k, record, rnd)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
		if err := k.Close(last); err != nil && ctx.Err() != nil {
			c.t.Errorf("close consumer after the faults were over: %v", err)
		}
		cancel()
	}
}

// receive takes messages and acknowledges most of them, in every way there is, until the consumer ends.
func (c *chaos) receive(ctx context.Context, k *client.Consumer, record *history.Consumer, rnd *rand.Rand) {
	for {
		m, err := k.Receive(ctx)
		if err != nil {
			return
		}
		record.Read(delivered(m))
		if rnd.IntN(50) == 0 {
			if err := k.Nack(m, 20*time.Millisecond, "chaos"); err != nil {
				return
			}
			continue
		}
		record.Acked(m.Partition, int64(m.Offset))
		if rnd.IntN(200) == 0 {
			err = k.AckConfirmed(ctx, m)
		} else {
			err = k.Ack(m)
		}
		if err != nil && ctx.Err() != nil {
			return
		}
	}
}
