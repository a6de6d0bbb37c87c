// Package incoming takes apart what brokers send: a [Box] has the deliveries of a consumer, a [Chunk] the answer to a
// reader's fetch. Nothing of it is believed before it is checked, and neither gives a message that was not meant. Both are
// plain state: whoever uses one guards it.
package incoming

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// Message is a message and how it came. Its key and payload lie in memory that no one writes to again.
type Message struct {
	batch.Message
	AppendTime int64 // milliseconds since 1970
	Attempt    int   // how often it was delivered, this time included; 0 of a fetched one
	Late       bool  // of an offset range that was away when its turn came
}

// Box is what was delivered and not handed out.
type Box struct {
	queue    []delivery
	bytes    int
	cur      delivery // being handed out
	dec      *batch.Decoder
	msg      Message
	decoding bool
	left     int // messages of cur that are meant and not handed out
}

// delivery is one Deliver frame.
type delivery struct {
	b          batch.Batch
	first, end uint64
	count      int
	attempt    int
	late       bool
}

// NewBox makes an empty box for batches within limits.
func NewBox(l batch.Limits) *Box { return &Box{dec: batch.NewDecoder(l)} }

// Check checks what a broker delivers before any of it is believed.
func Check(d *protocol.Deliver, body []byte, l batch.Limits) (batch.Batch, error) {
	b, err := batch.Check(body, l)
	switch {
	case err != nil:
		return nil, fmt.Errorf("malformed delivery: %w", err)
	case len(b) != len(body):
		return nil, fmt.Errorf("malformed delivery: %d bytes behind the batch", len(body)-len(b))
	case d.Count == 0 || b.Control():
		return nil, errors.New("malformed delivery: it has no message")
	case int(d.Count) > b.Count(), d.First < b.Base(),
		b.Attributes()&batch.Part == 0 && d.First+uint64(d.Count) > b.End():
		return nil, errors.New("malformed delivery: its messages are not in its batch")
	}
	return b, nil
}

// Put puts a checked delivery into the box. The batch is copied.
func (x *Box) Put(d *protocol.Deliver, b batch.Batch) {
	x.queue = append(x.queue, delivery{
		b: bytes.Clone(b), first: d.First, end: d.First + uint64(d.Count), count: int(d.Count), attempt: int(d.Attempt), late: d.Late,
	})
	x.bytes += len(b)
}

// Some reports whether there is something to hand out.
func (x *Box) Some() bool { return x.decoding || len(x.queue) > 0 }

// Begun reports whether a delivery is being handed out: the next message is of the same one.
func (x *Box) Begun() bool { return x.decoding }

// Bytes is how much lies in the box.
func (x *Box) Bytes() int { return x.bytes }

// Attempt is that of the delivery being handed out, 0 between two.
func (x *Box) Attempt() int { return x.cur.attempt }

// Next returns the next message that is meant, valid until the call after, or nil when there is none. dropped is how many
// messages were announced and are not in their delivery. After an error, of a delivery that cannot be decoded although its
// checks passed, the rest of that is dropped.
func (x *Box) Next() (m *Message, dropped int, err error) {
	for x.Some() {
		if !x.decoding {
			if err := x.open(); err != nil {
				return nil, dropped + x.shut(), err
			}
		}
		ok, err := x.dec.Next(&x.msg.Message)
		if err != nil {
			return nil, dropped + x.shut(), err
		}
		if !ok {
			dropped += x.shut()
			continue
		}
		if x.msg.Offset < x.cur.first || x.msg.Offset >= x.cur.end && x.cur.b.Attributes()&batch.Part == 0 {
			continue // of the batch, but not meant
		}
		x.msg.AppendTime, x.msg.Attempt, x.msg.Late = x.cur.b.AppendTime(), x.cur.attempt, x.cur.late
		if x.left--; x.left <= 0 {
			x.shut()
		}
		return &x.msg, dropped, nil
	}
	return nil, dropped, nil
}

// open begins with the next delivery.
func (x *Box) open() error {
	x.cur = x.queue[0]
	x.queue[0] = delivery{}
	if x.queue = x.queue[1:]; len(x.queue) == 0 {
		x.queue = nil
	}
	x.left, x.decoding = x.cur.count, true
	return x.dec.Reset(x.cur.b)
}

// shut is done with a delivery and returns how many of its messages did not come.
func (x *Box) shut() int {
	rest := max(x.left, 0)
	x.bytes -= len(x.cur.b)
	x.cur, x.decoding, x.left = delivery{}, false, 0
	return rest
}

// Empty drops what was not handed out and returns how many messages that are.
func (x *Box) Empty() int {
	n := 0
	for _, d := range x.queue {
		n += d.count
	}
	if x.decoding {
		n += max(x.left, 0)
	}
	x.queue, x.bytes, x.cur, x.decoding, x.left = nil, 0, delivery{}, false, 0
	return n
}
