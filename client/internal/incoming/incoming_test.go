package incoming

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// made is a batch of n messages at the offsets from base on, the first with payload "0".
func made(t testing.TB, base uint64, n int) batch.Batch {
	t.Helper()
	var w batch.Builder
	for i := range n {
		w.Add(&batch.Message{Payload: []byte{byte('0' + i)}})
	}
	frame, err := w.AppendTo(nil, batch.None, batch.Identity{})
	if err != nil {
		t.Fatal(err)
	}
	b := batch.Batch(frame)
	b.Stamp(batch.Stamp{Base: base, Epoch: 1, AppendTime: 1234})
	return b
}

func limits() batch.Limits { return batch.Limits{}.WithDefaults() }

// TestBoxGivesWhatIsMeant of each delivery, in order, and counts what did not come.
func TestBoxGivesWhatIsMeant(t *testing.T) {
	x := NewBox(limits())
	if m, dropped, err := x.Next(); m != nil || dropped != 0 || err != nil || x.Some() {
		t.Fatalf("an empty box gives %v, %d, %v", m, dropped, err)
	}
	first, second := made(t, 10, 5), made(t, 20, 3)
	for _, d := range []struct {
		at, n uint64
		b     batch.Batch
	}{{11, 2, first}, {22, 1, second}} {
		frame := &protocol.Deliver{First: d.at, Count: uint32(d.n), Attempt: 3, Late: true}
		b, err := Check(frame, d.b, limits())
		if err != nil {
			t.Fatal(err)
		}
		x.Put(frame, b)
	}
	clear(first) // the box has its own
	if x.Bytes() != len(first)+len(second) || x.Begun() {
		t.Errorf("%d bytes lie in it, begun %v", x.Bytes(), x.Begun())
	}
	var got []uint64
	for {
		m, dropped, err := x.Next()
		if err != nil || dropped != 0 {
			t.Fatal(dropped, err)
		}
		if m == nil {
			break
		}
		if got = append(got, m.Offset); m.Attempt != 3 || !m.Late || m.AppendTime != 1234 {
			t.Errorf("came as %+v", m)
		}
		if x.Begun() != (m.Offset == 11) || x.Begun() != (x.Attempt() == 3) {
			t.Errorf("behind %d: begun %v, attempt %d", m.Offset, x.Begun(), x.Attempt())
		}
	}
	if !slices.Equal(got, []uint64{11, 12, 22}) || x.Some() || x.Bytes() != 0 {
		t.Errorf("gives %v, keeps %d bytes", got, x.Bytes())
	}
}

// TestBoxCountsWhatIsDropped: what was announced and cannot be had is not waited for, nor what is thrown away.
func TestBoxCountsWhatIsDropped(t *testing.T) {
	x := NewBox(limits())
	x.Put(&protocol.Deliver{First: 12, Count: 5}, made(t, 10, 5)) // three of them are there
	for range 3 {
		if m, dropped, err := x.Next(); m == nil || dropped != 0 || err != nil {
			t.Fatal(m, dropped, err)
		}
	}
	if m, dropped, err := x.Next(); m != nil || dropped != 2 || err != nil {
		t.Errorf("at the end %v, %d dropped, %v", m, dropped, err)
	}
	damaged := made(t, 20, 4)
	damaged = damaged[:len(damaged)-1]
	x.Put(&protocol.Deliver{First: 20, Count: 4}, damaged)
	if m, dropped, err := x.Next(); m != nil || dropped == 0 || err == nil || x.Bytes() != 0 {
		t.Errorf("of a damaged delivery %v, %d dropped, %v, %d bytes kept", m, dropped, err, x.Bytes())
	}
	x.Put(&protocol.Deliver{First: 30, Count: 3}, made(t, 30, 3))
	x.Put(&protocol.Deliver{First: 33, Count: 4}, made(t, 33, 4))
	if _, _, err := x.Next(); err != nil {
		t.Fatal(err)
	}
	if n := x.Empty(); n != 6 || x.Some() || x.Bytes() != 0 {
		t.Errorf("emptied of %d messages", n)
	}
}

// TestLyingDeliveriesAreRefused by Check.
func TestLyingDeliveriesAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		d    protocol.Deliver
		body []byte
		want string
	}{
		"none":       {protocol.Deliver{First: 10}, made(t, 10, 2), "no message"},
		"before":     {protocol.Deliver{First: 9, Count: 1}, made(t, 10, 2), "not in its batch"},
		"behind":     {protocol.Deliver{First: 11, Count: 2}, made(t, 10, 2), "not in its batch"},
		"too many":   {protocol.Deliver{First: 10, Count: 3}, made(t, 10, 2), "not in its batch"},
		"more bytes": {protocol.Deliver{First: 10, Count: 1}, append(made(t, 10, 2), 0), "1 bytes behind"},
		"no batch":   {protocol.Deliver{First: 10, Count: 1}, []byte("no batch"), "malformed"},
	} {
		if _, err := Check(&c.d, c.body, limits()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// read takes a chunk to its end.
func read(c *Chunk) (got []uint64, jumps []JumpError, err error) {
	for {
		m, err := c.Next()
		jump, jumped := errors.AsType[*JumpError](err)
		switch {
		case jumped:
			jumps = append(jumps, *jump)
		case err != nil:
			return got, jumps, err
		case m == nil:
			return got, jumps, nil
		default:
			got = append(got, m.Offset)
		}
	}
}

// TestChunkNamesJumps between batches, and in front of the first; what is not meant is no jump.
func TestChunkNamesJumps(t *testing.T) {
	c := NewChunk(limits())
	body := slices.Concat([]byte(made(t, 10, 3)), []byte(made(t, 15, 2)), []byte(made(t, 17, 2)))
	c.Begin(body, 8, 18)
	got, jumps, err := read(c)
	if err != nil || !slices.Equal(got, []uint64{10, 11, 12, 15, 16, 17}) || !slices.Equal(jumps, []JumpError{{From: 8, To: 10}, {From: 13, To: 15}}) {
		t.Errorf("%v, jumps %v, %v", got, jumps, err)
	}
	c.Begin(slices.Concat([]byte(made(t, 20, 3)), []byte("damage")), 21, 30)
	got, _, err = read(c)
	if err == nil || !slices.Equal(got, []uint64{21, 22}) || c.Offset() != 23 {
		t.Errorf("of a damaged one %v, %v, at %d", got, err, c.Offset())
	}
	if m, err := c.Next(); m != nil || err != nil {
		t.Errorf("behind the damage %v, %v", m, err)
	}
}

// FuzzChunk: whatever the bytes, offsets rise and are meant, and every one in between is named.
func FuzzChunk(f *testing.F) {
	f.Add([]byte(made(f, 10, 3)), uint64(8), uint64(13))
	f.Add(slices.Concat([]byte(made(f, 10, 3)), []byte(made(f, 15, 2))), uint64(0), uint64(16))
	f.Add([]byte("no batch"), uint64(0), uint64(1))
	f.Fuzz(func(t *testing.T, body []byte, from, to uint64) {
		c := NewChunk(batch.Limits{Body: 1 << 16}.WithDefaults())
		c.Begin(body, from, to)
		for at := from; ; {
			m, err := c.Next()
			if jump, jumped := errors.AsType[*JumpError](err); jumped {
				if jump.From != at || jump.To <= at || jump.To >= to {
					t.Fatalf("at %d a jump from %d to %d", at, jump.From, jump.To)
				}
				at = jump.To
				continue
			}
			if err != nil || m == nil {
				return
			}
			if m.Offset != at || at >= to {
				t.Fatalf("offset %d where %d comes next, of those below %d", m.Offset, at, to)
			}
			at++
		}
	})
}
