package cluster

import (
	"bytes"
	"github.com/danubemq/danube/cluster/founding"
	"reflect"
	"testing"

	"github.com/danubemq/danube/meta/state"
)

// FuzzHello: a stranger's first bytes never panic, and what is accepted says the same when written again.
func FuzzHello(f *testing.F) {
	b, err := appendHello(nil, named(1, 7))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:9])
	f.Add([]byte("DNBP\x01\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := readHello(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := appendHello(nil, h)
		if err != nil {
			t.Skip() // longer in our own encoding
		}
		h2, err := readHello(bytes.NewReader(again))
		if err != nil || h2 != h {
			t.Fatalf("%+v became %+v, %v", h, h2, err)
		}
	})
}

// FuzzFrames: no stream of bytes makes more room than it has bytes, twice over, or panics.
func FuzzFrames(f *testing.F) {
	b := appendHead(nil, 7, frameRequest, "log.fetch", 3)
	f.Add(append(b, "abc"...))
	f.Add(appendHead(nil, 0, framePing, "", 0))
	f.Add(appendHead(nil, 1, frameAnswer, "", maxBody))
	f.Fuzz(func(t *testing.T, b []byte) {
		in := newFrames(bytes.NewReader(b))
		for {
			h, op, err := in.next()
			if err != nil {
				return
			}
			if h.kind == frameRequest && len(op) != h.op || h.body > maxBody {
				t.Fatalf("%+v %q", h, op)
			}
			body, err := in.body(h.body)
			if err != nil {
				return
			}
			if len(body) != h.body {
				t.Fatalf("a body of %d bytes is said to have %d", len(body), h.body)
			}
		}
	})
}

// FuzzRecords: every other decoder of bytes from outside.
func FuzzRecords(f *testing.F) {
	for _, r := range []any{
		card{Name: "n1", Run: 3}, note{Seq: 2}, founding.HoldRequest{Pledge: founding.Pledge{List: []founding.Broker{{Store: store(1)}}}},
		founding.HoldAnswer{Held: true}, founding.AskAnswer{Open: true}, joinRequest{Name: "n1"}, renewal{Applied: 3}, grant{Term: 2}, RemoteError{Text: "no"},
	} {
		b, err := encode(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	disk, err := encodeRecord(founding.Record{Pledge: &founding.Pledge{Proposer: store(2)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(disk)
	f.Fuzz(func(t *testing.T, b []byte) {
		decodeCard(b)
		decodeNote(b)
		if r, err := decodeRecord(b); err == nil {
			again, err := encodeRecord(r)
			if err != nil {
				t.Fatal(err)
			}
			if r2, err := decodeRecord(again); err != nil || !reflect.DeepEqual(r, r2) {
				t.Fatalf("%+v became %+v, %v", r, r2, err)
			}
		}
		var h founding.HoldRequest
		if decode(b, &h) == nil {
			fo := &founding.Founder{Self: store(1), Expect: 3, Save: func(founding.Record) error { return nil }}
			fo.Hold(h, founding.Facts{})
		}
		for _, r := range []any{&founding.HoldAnswer{}, &founding.AskAnswer{}, &joinRequest{}, &renewal{}, &grant{}, &RemoteError{}, &state.Owner{}} {
			decode(b, r)
		}
	})
}
