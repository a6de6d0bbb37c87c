package client

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/protocol"
)

// two starts two brokers that each say that they own the topic, and a client that talks to the first.
func two(t *testing.T) (c *Client, first, second *fake) {
	first, second = bareFake(t), bareFake(t)
	first.addr, second.addr = "first:1", "second:1"
	first.topic("/default/a", 1)
	second.topic("/default/a", 1)
	c, err := Dial(t.Context(), []string{first.addr, second.addr}, Config{
		Dialer: func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == first.addr {
				return first.dialPipe(ctx, network, address)
			}
			return second.dialPipe(ctx, network, address)
		}})
	if err != nil {
		t.Fatal(err)
	}
	return c, first, second
}

// soon bounds a wait by more than any of these may take.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestPausedOwnerIsLeft: the owner falls silent with its connections standing, and the topic is served elsewhere.
func TestPausedOwnerIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, first, second := two(t)
		p := producer(t, c, "a", ProducerConfig{})
		r, err := c.Reader(t.Context(), "a", ReaderConfig{From: protocol.Position{Kind: protocol.Earliest}})
		if err != nil {
			t.Fatal(err)
		}
		part := second.topics["/default/a"].parts[0]
		part.put("x") // what both have of before
		if _, err := p.Send(soon(t), text("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Next(soon(t)); err != nil {
			t.Fatal(err)
		}
		var paused atomic.Bool
		first.intercept(func(*fakeConn, protocol.Frame) bool { return paused.Load() })
		paused.Store(true)
		began := time.Now()
		if _, err := p.Send(soon(t), text("y")); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the new owner was found after %v", took)
		}
		if m, err := r.Next(soon(t)); err != nil || string(m.Payload) != "y" {
			t.Errorf("read %q, %v", m.Payload, err)
		}
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("the reader followed after %v", took)
		}
		if got := part.payloads(); len(got) != 2 || got[1] != "y" {
			t.Errorf("the new owner has %q", got)
		}
		c.Close()
		first.close()
		second.close()
	})
}

// TestOwnerCutOffIsLeft: the owner answers that it has lost its leader, and would name itself for ever.
func TestOwnerCutOffIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, first, second := two(t)
		p := producer(t, c, "a", ProducerConfig{})
		first.intercept(func(c *fakeConn, fr protocol.Frame) bool {
			if fr.Type == protocol.TypeProduce || fr.Type == protocol.TypeOpenProducer {
				c.refuse(fr.ID, protocol.Errorf(protocol.CodeNotReady, "no leader is known"))
				return true
			}
			return false
		})
		began := time.Now()
		if _, err := p.Send(soon(t), text("x")); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 500*time.Millisecond {
			t.Errorf("the new owner was found after %v", took)
		}
		if got := second.topics["/default/a"].parts[0].payloads(); len(got) != 1 {
			t.Errorf("the new owner has %q", got)
		}
		c.Close()
		first.close()
		second.close()
	})
}

// TestDoubtedBrokerIsAskedAfterAll: there is no other.
func TestDoubtedBrokerIsAskedAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, first, second := two(t)
		second.hangUp(true)
		p := producer(t, c, "a", ProducerConfig{})
		var refusals atomic.Int32
		first.intercept(func(c *fakeConn, fr protocol.Frame) bool {
			if fr.Type == protocol.TypeProduce && refusals.Add(1) <= 3 {
				c.refuse(fr.ID, protocol.Errorf(protocol.CodeNotReady, "no leader is known"))
				return true
			}
			return false
		})
		if _, err := p.Send(soon(t), text("x")); err != nil {
			t.Error(err)
		}
		if got := first.topics["/default/a"].parts[0].payloads(); len(got) != 1 {
			t.Errorf("the owner has %q", got)
		}
		c.Close()
		first.close()
		second.close()
	})
}
