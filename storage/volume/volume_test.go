package volume

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/extents"
	"github.com/danubemq/danube/storage/handles"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/memory"
	"github.com/danubemq/danube/storage/recovery"
	"github.com/danubemq/danube/storage/segment"
)

const epoch = 7

func timeOf(offset uint64) int64 { return 1_700_000_000_000 + 10*int64(offset) }

// written is a file of batches of two messages from offset 100 on, and how many bytes it has.
func written(t *testing.T, count int) (f *File, size int64, all []batch.Batch) {
	t.Helper()
	fsys := disk.NewMemory(1)
	if err := disk.MkdirAll(fsys, "/d"); err != nil {
		t.Fatal(err)
	}
	shelf := &Shelf{FS: fsys, Cache: handles.New(fsys, 2), Memory: memory.NewPool(1 << 20), Room: func() {}, Log: slog.New(slog.DiscardHandler)}
	id := hotdir.ID{Topic: [16]byte{1}}
	h := segment.Header{TopicID: id.Topic, Topic: "/default/t", Epoch: epoch, FirstEpoch: epoch, Base: 100}
	header, err := h.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	f = shelf.File(id, "/d/"+segment.FormatName(100, epoch), 100, epoch)
	f.Begin(header)
	data := header
	for i := range count {
		base := 100 + 2*uint64(i)
		var builder batch.Builder
		for range 2 {
			builder.Add(&batch.Message{Payload: bytes.Repeat([]byte{byte(i)}, 3000)})
		}
		b, err := builder.AppendTo(nil, batch.None, batch.Identity{Producer: 1, Session: 1, Sequence: base})
		if err != nil {
			t.Fatal(err)
		}
		batch.Batch(b).Stamp(batch.Stamp{Base: base, Epoch: epoch, AppendTime: timeOf(base)})
		f.Add([][]byte{b})
		data, all = append(data, b...), append(all, b)
	}
	if err := disk.WriteFileAtomic(fsys, f.Handle.Name, data); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := shelf.Cache.Drop(&f.Handle); err != nil || shelf.Memory.Used() != 0 {
			t.Errorf("%d bytes are held, %v", shelf.Memory.Used(), err)
		}
	})
	return f, int64(len(data)), all
}

// TestCursorReadsAhead: each batch once, in order, checked, and more at once while it goes on.
func TestCursorReadsAhead(t *testing.T) {
	f, size, all := written(t, 100)
	var c Cursor
	next, reads := uint64(103), 0 // in the middle of the second
	for _, want := range all[1:] {
		if want.Base() < next && next != 103 {
			continue
		}
		chunk, off, err := c.Fill(f, Bounds{Size: size, Stop: 300, After: 300}, next)
		if err != nil || !c.In() {
			t.Fatal(err)
		}
		reads++
		for rest := batch.Batch(chunk.Buf[off:]); len(rest) > 0; rest = rest[rest.Len():] {
			if b := rest[:rest.Len()]; !bytes.Equal(b, all[(b.Base()-100)/2]) || b.End() <= next || b.Base() > next {
				t.Fatalf("offsets %d to %d where %d is wanted", b.Base(), b.End(), next)
			}
			next = rest.End()
		}
		chunk.Release()
	}
	if next != 300 || reads > 8 {
		t.Errorf("%d reads up to offset %d", reads, next)
	}
	if chunk, _, err := c.Fill(f, Bounds{Size: size, Stop: 300, After: 300}, 300); chunk != nil || err != nil || c.In() {
		t.Errorf("behind the last: %v, %v", chunk, err)
	}
}

// TestWhatIsNotThereHasBounds: R19, and what is missing is damage here or lies elsewhere.
func TestWhatIsNotThereHasBounds(t *testing.T) {
	f, size, _ := written(t, 10)
	fill := func(b Bounds, next uint64) error {
		var c Cursor
		chunk, _, err := c.Fill(f, b, next)
		if chunk != nil {
			chunk.Release()
		}
		return err
	}
	find := func(b Bounds, next uint64) error {
		_, _, err := f.Find(next, f.Position(next), b)
		return err
	}
	beyond := Bounds{Size: size, Stop: 500, After: 500}
	for name, read := range map[string]func(Bounds, uint64) error{"fill": fill, "find": find} {
		if d, ok := errors.AsType[*recovery.Damage](read(beyond, 120)); !ok || d.From != 120 || d.To != 500 {
			t.Errorf("%s: %v", name, d)
		}
		away := beyond
		away.Away = true
		if e, ok := errors.AsType[*extents.Elsewhere](read(away, 120)); !ok || *e != (extents.Elsewhere{From: 120, To: 500}) {
			t.Errorf("%s: %v", name, e)
		}
	}
	if d, ok := errors.AsType[*recovery.Damage](fill(Bounds{Size: size, Stop: 111, After: 400}, 110)); !ok || d.From != 110 || d.To != 400 {
		t.Errorf("a batch across the end of its epoch: %v", d)
	}
	at, ms, err := f.Find(105, f.Position(105), beyond)
	if err != nil || ms != timeOf(104) || f.Position(105) > at {
		t.Errorf("offset 105 lies at %d, of time %d, %v", at, ms, err)
	}
	for ms, want := range map[int64]uint64{0: 100, timeOf(104): 104, timeOf(104) + 1: 106} {
		if offset, ok, err := f.FirstAt(ms, size); !ok || offset != want || err != nil {
			t.Errorf("time %d: offset %d, %v, %v", ms, offset, ok, err)
		}
	}
	if _, ok, err := f.FirstAt(timeOf(119), size); ok || err != nil || f.LastTime() != timeOf(118) {
		t.Errorf("behind the last time: %v, %v", ok, err)
	}
}

// TestAReleasedFileSaysSo, however it is asked.
func TestAReleasedFileSaysSo(t *testing.T) {
	f, size, _ := written(t, 3)
	f.Gone.Store(true)
	if err := errors.Join(f.shelf.Cache.Drop(&f.Handle), f.shelf.FS.Remove(f.Handle.Name)); err != nil {
		t.Fatal(err)
	}
	b := Bounds{Size: size, Stop: 106, After: 106}
	_, _, fill := new(Cursor).Fill(f, b, 100)
	_, _, find := f.Find(100, 0, b)
	_, length := f.Size()
	for i, err := range []error{fill, find, length} {
		if !errors.Is(err, ErrReleased) {
			t.Errorf("%d: %v", i, err)
		}
	}
}
