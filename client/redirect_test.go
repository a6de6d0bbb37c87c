package client

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/protocol"
)

// elsewhere is an owner whose partition has moved away: it says where, and both
// it and the new owner still answer lookups as before.
func elsewhere(first *fake, to protocol.Error) func(c *fakeConn, fr protocol.Frame) bool {
	refused := 0
	return func(c *fakeConn, fr protocol.Frame) bool {
		switch fr.Type {
		case protocol.TypeLookup:
			c.send(protocol.TypeLookupOK, fr.ID, &protocol.LookupOK{Reliable: true, Partitions: []protocol.PartitionOwner{{Address: first.addr, Epoch: 1}}}, nil)
		case protocol.TypeProduce, protocol.TypeOpenProducer, protocol.TypeSubscribe:
			if to.Address == "" {
				return false
			}
			if refused++; refused < 20 { // or else the clock of a test would stand still over a client that runs in a circle
				c.refuse(fr.ID, &to)
			}
		default:
			return false
		}
		return true
	}
}

// TestRedirectIsFollowedAtOnce: the owner before knows best where a partition
// went. Another broker may not have heard of it yet.
func TestRedirectIsFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, first, second := two(t)
		defer c.Close()
		p := producer(t, c, "a", ProducerConfig{})
		consumer(t, c, "a", ConsumerConfig{})
		moved := protocol.Error{Code: protocol.CodeMoved, Text: "it moved", Address: second.addr, Epoch: 2}
		first.intercept(elsewhere(first, moved))
		second.intercept(elsewhere(first, protocol.Error{}))
		began := time.Now()
		if _, err := p.Send(soon(t), text("x")); err != nil {
			t.Fatal(err)
		}
		first.toConsumers(protocol.TypeUnsubscribed, func(h uint32) protocol.Header { return &protocol.Detached{Handle: h, Err: moved} }, nil)
		synctest.Wait()
		if n := second.count(protocol.TypeSubscribe); n != 1 {
			t.Errorf("%d consumers attached at the new owner", n)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("the redirect took %v", took)
		}
	})
}

// TestRedirectInACircleIsNotFollowed: two that each say that the other has it
// are asked no more often than others that refuse.
func TestRedirectInACircleIsNotFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, first, second := two(t)
		defer c.Close()
		p := producer(t, c, "a", ProducerConfig{})
		first.intercept(elsewhere(first, protocol.Error{Code: protocol.CodeMoved, Text: "it moved", Address: second.addr, Epoch: 2}))
		second.intercept(elsewhere(first, protocol.Error{Code: protocol.CodeMoved, Text: "it moved", Address: first.addr, Epoch: 2}))
		if err := p.SendAsync(t.Context(), text("x"), nil); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Second) // of the test's own clock
		if n := first.count(protocol.TypeOpenProducer) + second.count(protocol.TypeOpenProducer); n < 3 || n > 10 {
			t.Errorf("%d attempts in a second", n)
		}
		for _, f := range []*fake{first, second} {
			f.intercept(nil)
		}
	})
}
