package peer

import (
	"bytes"
	"testing"
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

// FuzzRemoteError: what another broker says went wrong.
func FuzzRemoteError(f *testing.F) {
	b, err := Encode(RemoteError{Text: "no"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var e RemoteError
		if Decode(b, &e) != nil {
			return
		}
		if again := asRemote(&e); *again != e {
			t.Fatalf("%+v passed on became %+v", e, *again)
		}
	})
}
