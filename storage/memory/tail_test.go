package memory

import (
	"bytes"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
)

// newBatch is a batch of two messages, of more than size bytes.
func newBatch(t testing.TB, size int) batch.Batch {
	t.Helper()
	var w batch.Builder
	for range 2 {
		w.Add(&batch.Message{Payload: bytes.Repeat([]byte{7}, size/2)})
	}
	b, err := w.AppendTo(nil, batch.None, batch.Identity{})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// add puts a batch behind a tail and stamps it.
func add(t testing.TB, tail *Tail, p *Pool, base uint64, size int) {
	t.Helper()
	b := tail.Add(p, newBatch(t, size), base)
	b.Stamp(batch.Stamp{Base: base})
}

// TestTailOfManyChunks: what is added is gathered once, found once it is there, and given up once it is committed.
func TestTailOfManyChunks(t *testing.T) {
	p := NewPool(1 << 20)
	var tail Tail
	for i := range uint64(20) {
		add(t, &tail, p, 2*i, 3000)
	}
	all, size := tail.Untaken(nil, 0)
	behind, rest := tail.Untaken(nil, 100)
	if tail.Pending() != size || len(all) < 3 || rest != size-100 || !bytes.HasSuffix(all[0], behind[0]) {
		t.Errorf("pending %d, untaken %d, behind the first %d bytes %d", tail.Pending(), size, 100, rest)
	}
	if tail.Drop(true) {
		t.Error("gave up what is not committed")
	}
	taken := 0
	for tail.More() {
		bufs, n, end := tail.Gather(nil, 1)
		if len(bufs) != 1 || n == 0 || end == 0 {
			t.Fatalf("gathered %d pieces, %d bytes up to %d", len(bufs), n, end)
		}
		taken += n
	}
	if c := tail.Find(7); taken != size || c == nil || len(c.Committed()) != 0 {
		t.Errorf("gathered %d of %d bytes; %v is readable", taken, size, c.Committed())
	}
	tail.Commit()
	if c := tail.Find(7); tail.Pending() != 0 || c == nil || len(c.Committed()) == 0 || tail.Find(40) != nil {
		t.Errorf("committed: pending %d", tail.Pending())
	}
	for before := uint64(0); tail.Drop(false); {
		base, _ := tail.Base()
		if base <= before || tail.Find(base-1) != nil {
			t.Errorf("dropped up to %d after %d", base, before)
		}
		before = base
	}
	if _, some := tail.Base(); !some || !tail.Drop(true) || p.Used() != 0 {
		t.Errorf("%d bytes in use", p.Used())
	}
}

func TestCutTakesBackWhatIsNotCommitted(t *testing.T) {
	p := NewPool(1 << 20)
	var tail Tail
	add(t, &tail, p, 0, 100)
	tail.Gather(nil, 1<<20)
	tail.Commit()
	want := bytes.Clone(tail.Find(0).Committed())
	for i := range uint64(5) {
		add(t, &tail, p, 2+2*i, 3000)
	}
	forgotten := 0
	tail.Cut(func(b batch.Batch) { forgotten += int(b.Count()) })
	if forgotten != 10 || tail.Pending() != 0 || tail.More() || tail.Find(2) != nil || !bytes.Equal(tail.Find(0).Committed(), want) {
		t.Errorf("forgot %d messages, pending %d", forgotten, tail.Pending())
	}
	add(t, &tail, p, 2, 100)
	if c := tail.Find(2); c != tail.Find(0) {
		t.Error("what follows does not lie behind what stayed")
	}
	tail.Release()
	if p.Used() != 0 {
		t.Errorf("%d bytes in use", p.Used())
	}
}

func TestChunkLivesAsLongAsAnyoneHoldsIt(t *testing.T) {
	p := NewPool(10 << 10)
	c := p.Take(5000)
	if cap(c.Buf) != 8<<10 || p.Used() != 8<<10 || p.Over() {
		t.Errorf("capacity %d, %d in use", cap(c.Buf), p.Used())
	}
	large := p.Take(3 << 20)
	if !p.Over() || large.Serial() == c.Serial() {
		t.Error("the budget is not exceeded")
	}
	large.Release()
	c.Retain()
	c.Release()
	if p.Used() != 8<<10 {
		t.Error("given back while somebody holds it")
	}
	c.Release()
	if p.Used() != 0 {
		t.Errorf("%d bytes in use", p.Used())
	}
	defer func() {
		if recover() == nil {
			t.Error("released more often than retained")
		}
	}()
	c.Release()
}
