package incoming

import (
	"fmt"

	"github.com/danubemq/danube/protocol/batch"
)

// Chunk is the answer to a fetch: whole batches, of which some offsets are meant.
type Chunk struct {
	limits batch.Limits
	body   []byte // not looked at yet
	next   uint64 // lowest offset not handed out
	to     uint64
	dec    *batch.Decoder
	in     batch.Batch // being handed out
	msg    Message
}

// JumpError says that the offsets [From, To) are missing where a broker named no gap.
type JumpError struct{ From, To uint64 }

// Error is the text for a person.
func (e *JumpError) Error() string {
	return fmt.Sprintf("offsets %d to %d are missing", e.From, e.To-1)
}

// NewChunk makes one with nothing in it, for batches within limits.
func NewChunk(l batch.Limits) *Chunk { return &Chunk{limits: l, dec: batch.NewDecoder(l)} }

// Begin begins with an answer of which the offsets [from, to) are meant. The chunk keeps body.
func (c *Chunk) Begin(body []byte, from, to uint64) { c.body, c.next, c.to, c.in = body, from, to, nil }

// Offset is the lowest offset that was not handed out.
func (c *Chunk) Offset() uint64 { return c.next }

// Next returns the next message, valid until the call after, or nil at the end of the chunk. After a [*JumpError] it goes
// on behind the jump; any other error says that the chunk is not what it claims, and is its end.
func (c *Chunk) Next() (*Message, error) {
	for {
		if c.in == nil {
			if more, err := c.open(); !more || err != nil {
				return nil, c.broken(err)
			}
		}
		ok, err := c.dec.Next(&c.msg.Message)
		if err != nil {
			return nil, c.broken(err)
		}
		if !ok {
			c.in = nil
			continue
		}
		if c.msg.Offset < c.next || c.msg.Offset >= c.to {
			continue
		}
		if skipped := c.msg.Offset; skipped > c.next {
			// The message is kept for the next call.
			jump := &JumpError{From: c.next, To: skipped}
			c.next = skipped
			c.dec = batch.NewDecoder(c.limits)
			if err := c.dec.Reset(c.in); err != nil {
				return nil, c.broken(err)
			}
			return nil, jump
		}
		c.next++
		c.msg.AppendTime = c.in.AppendTime()
		return &c.msg, nil
	}
}

// open begins with the next batch that has something to hand out, if there is one.
func (c *Chunk) open() (bool, error) {
	for len(c.body) > 0 {
		b, err := batch.Check(c.body, c.limits)
		if err != nil {
			return false, err
		}
		c.body = c.body[len(b):]
		if b.Control() || b.End() <= c.next {
			continue
		}
		c.in = b
		return true, c.dec.Reset(b)
	}
	return false, nil
}

// broken gives up the chunk when err is not nil.
func (c *Chunk) broken(err error) error {
	if err != nil {
		c.in, c.body = nil, nil
	}
	return err
}
