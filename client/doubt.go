package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/danubemq/danube/protocol"
)

// A broker that the others have given up may not know it, or may not be able to say so: it is paused, or cut off from
// them but not from its clients. Its connections stand, and asking it who owns a partition leads back to it. So a
// connection on which nothing comes, or whose broker says that it has lost its leader, is doubted: whoever must look an
// owner up asks another broker first, and what hangs on a doubted connection is looked up anew while it waits.

const (
	// quietTime is after how much silence a connection in use is asked for a sign of life.
	quietTime = time.Second
	// signTime is how long that sign may take before the connection is doubted.
	signTime = time.Second
	// doubtTime is how long a refusal makes a connection doubted.
	doubtTime = 2 * time.Second
	// elsewhereTime bounds how long others are tried before a doubted broker is asked after all.
	elsewhereTime = time.Second
)

// doubt makes others be asked before this broker, for so long.
func (c *conn) doubt(d time.Duration) { c.doubted.Store(time.Now().Add(d).UnixNano()) }

func (c *conn) doubtful() bool { return c.doubted.Load() > time.Now().UnixNano() }

// doubtRefusal notes that a broker says of itself that it cannot serve now.
func (c *conn) doubtRefusal(e *protocol.Error) {
	if e.Code == protocol.CodeNotReady || e.Code == protocol.CodeNoLeader {
		c.doubt(doubtTime)
	}
}

// silence is what the pulse of a connection knows of a peer that says nothing.
type silence struct {
	asked time.Time // when it was last asked for a sign of life
}

// judge asks a silent peer for a sign of life and doubts it without one. It reports whether what hangs on the connection
// is to be looked up anew. The caller holds c.mu.
func (s *silence) judge(c *conn, heard, now time.Time) bool {
	if now.Sub(heard) < quietTime || !c.inUse() {
		return false
	}
	if !s.asked.After(heard) {
		s.asked = now
		c.out.frames = protocol.AppendFrame(c.out.frames, protocol.TypePing, 0, nil, nil)
		c.wake.Signal()
		return false
	}
	if now.Sub(s.asked) < signTime {
		return false
	}
	c.doubt(signTime)
	return true
}

// inUse reports whether anybody waits for something. The caller holds c.mu.
func (c *conn) inUse() bool {
	return len(c.peers.lanes)+len(c.peers.streams)+len(c.peers.calls) > 0
}

// place is a partition that something on a connection is about.
type place struct {
	topic     string
	partition int
}

// places returns the partitions that hang on the connection.
func (c *conn) places() map[place]struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[place]struct{}{}
	for _, l := range c.peers.lanes {
		out[place{l.p.topic, l.partition}] = struct{}{}
	}
	for _, s := range c.peers.streams {
		out[place{s.k.topic, s.partition}] = struct{}{}
	}
	for _, k := range c.peers.calls {
		if k.about.topic != "" {
			out[k.about] = struct{}{}
		}
	}
	return out
}

// recheck asks others who owns what hangs on a doubted connection, and gives the connection up when it is not its broker
// any more. One runs at a time for each connection.
func (c *Client) recheck(silent *conn) {
	defer silent.checking.Store(false)
	ctx, cancel := context.WithTimeout(c.life, 2*elsewhereTime)
	defer cancel()
	for at := range silent.places() {
		info, err := c.lookup(ctx, at.topic, nil)
		if err != nil || at.partition >= len(info.Partitions) {
			continue // nobody knows better
		}
		if o := info.Partitions[at.partition]; o.Address != "" && o.Address != silent.address {
			silent.fail(fmt.Errorf("nothing heard for a while, and %s:%d is served by %s now", at.topic, at.partition, o.Address))
			return
		}
	}
}

// elsewhere returns a connection to a broker that is not doubted, by way of one of the Client's addresses.
func (c *Client) elsewhere(ctx context.Context) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, elsewhereTime)
	defer cancel()
	others := slices.DeleteFunc(slices.Clone(c.addrs), c.doubts)
	if len(others) == 0 {
		return nil, errors.New("no broker is beyond doubt")
	}
	return c.first(ctx, others)
}

// doubts reports whether the connection to an address is doubted.
func (c *Client) doubts(address string) bool {
	c.mu.Lock()
	l := c.links[address]
	c.mu.Unlock()
	return l != nil && !l.pending() && l.conn != nil && l.conn.doubtful()
}
