package client

import (
	"sync/atomic"
	"testing"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// quick makes the fake answer produce frames without storing them.
func (f *fake) quick() {
	var next atomic.Uint64
	var buf []byte
	f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
		if fr.Type != protocol.TypeProduce {
			return false
		}
		n := uint64(batch.Batch(fr.Body).Count())
		buf = protocol.AppendFrame(buf[:0], protocol.TypeProduceOK, fr.ID, &protocol.ProduceOK{Base: next.Add(n) - n}, nil)
		c.raw(buf)
		return true
	})
}

func BenchmarkSendAsync(b *testing.B) {
	f := newFake(b)
	f.topic("/default/a", 1)
	f.quick()
	p := producer(b, f.dial(Config{}), "a", ProducerConfig{})
	m := Message{Payload: make([]byte, 128)}
	var acked atomic.Int64
	done := func(_ Result, err error) {
		if err != nil {
			b.Error(err)
		}
		acked.Add(1)
	}
	b.ReportAllocs()
	b.SetBytes(128)
	for b.Loop() {
		if err := p.SendAsync(b.Context(), m, done); err != nil {
			b.Fatal(err)
		}
	}
	if err := p.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(f.count(protocol.TypeProduce))/float64(b.N)*1000, "frames/1000")
}

func BenchmarkSend(b *testing.B) {
	f := newFake(b)
	f.topic("/default/a", 1)
	f.quick()
	p := producer(b, f.dial(Config{}), "a", ProducerConfig{})
	m := Message{Payload: make([]byte, 1024)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Send(b.Context(), m); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReceiveAck has a peer that delivers batches of 500 as long as there is credit.
func BenchmarkReceiveAck(b *testing.B) {
	f := newFake(b)
	f.topic("/default/a", 1)
	var w batch.Builder
	for range 500 {
		w.Add(&batch.Message{Payload: make([]byte, 128)})
	}
	full, err := w.AppendTo(nil, batch.None, batch.Identity{})
	if err != nil {
		b.Fatal(err)
	}
	var base uint64
	var buf []byte
	credit := 1000
	f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
		var ok protocol.AckOK
		switch fr.Type {
		case protocol.TypeSubscribe:
			c.send(protocol.TypeSubscribeOK, fr.ID, &protocol.SubscribeOK{Handle: 1, Generation: 1, MaxUnacked: 1000}, nil)
		case protocol.TypeCredit:
			var q protocol.Credit
			c.decode(fr, &q)
			credit += int(q.Messages)
		case protocol.TypeAck:
			if fr.ID != 0 {
				c.send(protocol.TypeAckOK, fr.ID, &ok, nil)
			}
			return true
		case protocol.TypeReceived:
			return true
		default:
			return false
		}
		for ; credit >= 500; credit -= 500 {
			batch.Batch(full).Stamp(batch.Stamp{Base: base})
			buf = protocol.AppendFrame(buf[:0], protocol.TypeDeliver, 0, &protocol.Deliver{Handle: 1, Generation: 1, First: base, Count: 500, Attempt: 1}, full)
			base += 500
			c.raw(buf)
		}
		return true
	})
	k := consumer(b, f.dial(Config{}), "a", ConsumerConfig{})
	b.ReportAllocs()
	b.SetBytes(128)
	for b.Loop() {
		m, err := k.Receive(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if err := k.Ack(m); err != nil {
			b.Fatal(err)
		}
	}
}
