package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// produce opens a producer, making the topic when it is not there.
func (d door) produce(topic string) *client.Producer {
	d.t.Helper()
	p, err := d.dial().Producer(d.t.Context(), topic, client.ProducerConfig{Create: &protocol.TopicConfig{}})
	if err != nil {
		d.t.Fatal(err)
	}
	return p
}

// sendEach sends messages one by one, each a batch of its own, and returns the offset of the first. They are numbered
// from the given one on and have the size given, or that of their number if it is more.
func sendEach(t testing.TB, p *client.Producer, from, n, size int) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	var first uint64
	for i := range n {
		r, err := p.Send(ctx, client.Message{Payload: numbered(from+i, size)})
		if err != nil {
			t.Fatalf("send message %d: %v", from+i, err)
		}
		if i == 0 {
			first = r.Offset
		}
	}
	return first
}

// numbered is a payload that says which it is, with a tail that the number decides.
func numbered(i, size int) []byte {
	text := fmt.Sprintf("message %d ", i)
	if len(text) < size {
		fill := fmt.Sprintf("%d.", i)
		text += strings.Repeat(fill, (size-len(text))/len(fill)+1)[:size-len(text)]
	}
	return []byte(text)
}

// gapSeen is a range that a reader or consumer was told to be missing.
type gapSeen struct {
	from, to uint64
	status   string
}

// contents reads one partition from its beginning to its present end.
func (d door) contents(topic string) (messages map[uint64]string, gaps []gapSeen) {
	d.t.Helper()
	// In full there are millions to read, through a client and a broker with the race detector.
	ctx, cancel := context.WithTimeout(d.t.Context(), time.Duration(scaled(20))*time.Minute)
	defer cancel()
	r, err := d.dial().Reader(ctx, topic, client.ReaderConfig{From: protocol.Position{Kind: protocol.Earliest}, ToEnd: true})
	if err != nil {
		d.t.Fatalf("open reader of %s: %v", topic, err)
	}
	defer r.Close()
	messages = map[uint64]string{}
	for {
		m, err := r.Next(ctx)
		var gap *client.GapError
		switch {
		case errors.As(err, &gap):
			gaps = append(gaps, gapSeen{gap.From, gap.To, gap.Status})
		case errors.Is(err, io.EOF):
			return messages, gaps
		case err != nil:
			d.t.Fatalf("read %s after %d messages: %v", topic, len(messages), err)
		default:
			if _, twice := messages[m.Offset]; twice {
				d.t.Fatalf("read offset %d of %s twice", m.Offset, topic)
			}
			messages[m.Offset] = string(m.Payload)
		}
	}
}

// holds fails the test unless the topic holds numbered messages 0 to n-1 at offsets 0 to n-1, but for those left out.
func (d door) holds(topic string, n, size int, without ...uint64) {
	d.t.Helper()
	got, gaps := d.contents(topic)
	missing := map[uint64]bool{}
	for _, o := range without {
		missing[o] = true
	}
	for o := range uint64(n) {
		text, there := got[o]
		switch {
		case missing[o] && there:
			d.t.Errorf("%s serves offset %d, which is damaged", topic, o)
		case missing[o]:
		case !there:
			d.t.Fatalf("%s lacks offset %d of %d; gaps %v", topic, o, n, gaps)
		case text != string(numbered(int(o), size)):
			d.t.Fatalf("%s has %.40q at offset %d", topic, text, o)
		}
	}
	if len(got) != n-len(without) {
		d.t.Errorf("%s holds %d messages, want %d; gaps %v", topic, len(got), n-len(without), gaps)
	}
}

// describe is `topic describe` through a client.
func (d door) describe(topic string) *protocol.TopicDescription {
	d.t.Helper()
	cl := d.dial()
	defer cl.Close()
	described, err := cl.Admin().TopicDescribe(d.t.Context(), protocol.TopicArgs{Topic: topic, Partition: -1})
	if err != nil {
		d.t.Fatalf("describe %s: %v", topic, err)
	}
	return described
}
