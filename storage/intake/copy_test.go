package intake

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/segment"
)

// rig is a partition of a file system in memory, and what the copy told of it.
type rig struct {
	fsys   *disk.Memory
	config Config
	named  []Segment
	failed []error
	final  []error
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{fsys: disk.NewMemory(1)}
	if err := disk.MkdirAll(r.fsys, hotdir.Dir{FS: r.fsys, Path: "/data"}.Topics()); err != nil {
		t.Fatal(err)
	}
	id := hotdir.ID{Topic: [16]byte{1}}
	r.config = Config{
		Home: hotdir.Dir{FS: r.fsys, Path: "/data"}, ID: id, Store: [16]byte{9}, SegmentBytes: 4 << 10,
		Header: func(base, epoch uint64) ([]byte, error) {
			h := segment.Header{Store: [16]byte{9}, TopicID: id.Topic, Epoch: epoch, FirstEpoch: epoch, Base: base, Copied: true}
			return h.Append(nil)
		},
		Own:    func() (uint64, bool) { return 0, false },
		Failed: func(err error) error { r.failed = append(r.failed, err); return err },
		Final:  func(err error) { r.final = append(r.final, err) },
		Named:  func(s Segment) { r.named = append(r.named, s) },
	}
	return r
}

func (r *rig) open(t *testing.T) *Copy {
	t.Helper()
	c, err := Open(t.Context(), r.config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// page is batches of two messages of an epoch, from one offset up to another.
func page(t *testing.T, epoch, from, to uint64) []byte {
	t.Helper()
	var list []byte
	for ; from < to; from += 2 {
		var w batch.Builder
		for range 2 {
			w.Add(&batch.Message{Payload: make([]byte, 100)})
		}
		x, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: 3, Session: 1, Sequence: from})
		if err != nil {
			t.Fatal(err)
		}
		b := batch.Batch(x)
		b.Stamp(batch.Stamp{Base: from, Epoch: epoch, AppendTime: int64(from)})
		list = append(list, b...)
	}
	return list
}

func wantSpans(t *testing.T, c *Copy, want ...Span) {
	t.Helper()
	if got := c.Have(); !slices.Equal(got, want) {
		t.Errorf("it has %v, want %v", got, want)
	}
}

func TestHistoryIsTakenOverInFilesThatAreWhole(t *testing.T) {
	r := newRig(t)
	c := r.open(t)
	for _, p := range [][]byte{page(t, 1, 0, 60), page(t, 1, 60, 80), page(t, 2, 80, 90), page(t, 2, 100, 110)} {
		if err := c.Append(p); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(c.Commit(), c.Close()); err != nil {
		t.Fatal(err)
	}
	want := []Span{{1, 0, 80}, {2, 80, 90}, {2, 100, 110}}
	wantSpans(t, c, want...)
	c = r.open(t) // from what lies there
	wantSpans(t, c, want...)
	if err := errors.Join(c.Append(page(t, 1, 0, 80)), c.Commit()); err != nil {
		t.Fatal(err)
	}
	for _, s := range r.named {
		raw, err := disk.ReadFile(r.fsys, s.Name)
		if err != nil {
			t.Fatal(err)
		}
		f, err := r.fsys.Open(s.Name, 0)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := segment.Verify(f, int64(len(raw)))
		if err := errors.Join(err, f.Close()); err != nil || len(rep.Problems) > 0 || rep.Footer == nil {
			t.Errorf("%s: %+v, %v", s.Name, rep, err)
		}
	}
	if len(r.named) < 4 || len(r.failed)+len(r.final) > 0 {
		t.Errorf("named %d files, failed %v, final %v", len(r.named), r.failed, r.final)
	}
}

func TestWrongBatchesAreRefused(t *testing.T) {
	r := newRig(t)
	r.config.Own = func() (uint64, bool) { return 5, true }
	c := r.open(t)
	torn := page(t, 1, 10, 14)
	torn[len(torn)-1] ^= 1
	if err := c.Append(torn); err == nil {
		t.Error("took a batch whose CRC is wrong")
	}
	if err := c.Append(page(t, 1, 11, 13)); err == nil {
		t.Error("took a batch that overlaps what is held")
	}
	if err := c.Append(page(t, 5, 20, 22)); err == nil {
		t.Error("took a batch of the epoch that is written here")
	}
	if err := c.Commit(); err != nil {
		t.Fatal(err)
	}
	wantSpans(t, c, Span{1, 10, 12})
}

// TestInterruptedCopyGoesOn: what is whole of a file without its name is kept, also when its end is torn.
func TestInterruptedCopyGoesOn(t *testing.T) {
	r := newRig(t)
	c := r.open(t)
	if err := errors.Join(c.Append(page(t, 1, 0, 10)), c.Close()); err != nil {
		t.Fatal(err)
	}
	name := r.config.Home.Partition(r.config.ID) + "/" + segment.FormatName(0, 1)
	if _, err := r.fsys.Stat(name); err == nil {
		t.Error("a file that is not whole has its name")
	}
	f, err := r.fsys.Open(name+Suffix, disk.Write)
	if err != nil {
		t.Fatal(err)
	}
	size, err := f.Size()
	if err := errors.Join(err, f.Truncate(size-7), f.Close()); err != nil {
		t.Fatal(err)
	}
	c = r.open(t)
	wantSpans(t, c, Span{1, 0, 8})
	if err := errors.Join(c.Append(page(t, 1, 0, 20)), c.Commit()); err != nil {
		t.Fatal(err)
	}
	wantSpans(t, c, Span{1, 0, 20})
}

// TestErrorsOfTheDisk: one of a write is told as such, and taken off the file; one of a sync is final (R20).
func TestErrorsOfTheDisk(t *testing.T) {
	for _, bad := range []string{"write", "sync"} {
		r := newRig(t)
		c := r.open(t)
		if err := c.Append(page(t, 1, 0, 4)); err != nil {
			t.Fatal(err)
		}
		r.fsys.Fail(func(op, _ string) error {
			if op == bad {
				return syscall.ENOSPC
			}
			return nil
		})
		err := errors.Join(c.Append(page(t, 1, 4, 8)), c.Commit())
		if !errors.Is(err, syscall.ENOSPC) || (bad == "write") != (len(r.failed) > 0) || (bad == "sync") != (len(r.final) > 0) {
			t.Errorf("%s: %v, failed %v, final %v", bad, err, r.failed, r.final)
		}
		wantSpans(t, c)
		if bad == "sync" {
			continue
		}
		r.fsys.Fail(nil)
		if err := errors.Join(c.Append(page(t, 1, 4, 8)), c.Commit()); err != nil {
			t.Fatal(err)
		}
		wantSpans(t, c, Span{1, 0, 8})
	}
}
