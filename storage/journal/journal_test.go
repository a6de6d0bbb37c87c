package journal

import (
	"bytes"
	"errors"
	"testing"

	"go.uber.org/goleak"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/segment"
)

// rig is a journal over a file system in memory.
type rig struct {
	t    *testing.T
	home hotdir.Dir
	j    *Journal
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, home: hotdir.Dir{FS: disk.NewMemory(1), Path: "/data"}}
	if err := disk.MkdirAll(r.home.FS, r.home.Topics()); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.j, err = Create(r.home.FS, r.home.Journal(), [16]byte{9}, 64<<10); err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func partition(n byte) hotdir.ID { return hotdir.ID{Topic: [16]byte{n}, Partition: uint32(n)} }

// file is the header and the only batch of the segment file of a partition.
func (r *rig) file(n byte) (header []byte, b batch.Batch) {
	r.t.Helper()
	h := segment.Header{Store: [16]byte{9}, TopicID: partition(n).Topic, Partition: uint32(n), Epoch: 1, FirstEpoch: 1}
	header, err := h.Append(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return header, newBatch(r.t, uint64(n), batch.Stamp{Epoch: 1, AppendTime: 5})
}

// put writes one round with the files of partitions.
func (r *rig) put(list ...byte) (use uint64, err error) {
	var f Frame
	f.Reset()
	for _, n := range list {
		header, b := r.file(n)
		f.Add(Piece{ID: partition(n), Epoch: 1, Header: header, Bufs: [][]byte{b}})
	}
	err = r.j.Put(&f, func(u uint64) { use = u })
	return use, err
}

func (r *rig) mustPut(list ...byte) {
	r.t.Helper()
	if _, err := r.put(list...); err != nil {
		r.t.Fatal(err)
	}
}

// back writes back what the journal holds, and returns of which partitions there are files.
func (r *rig) back() (c *Contents, list []byte) {
	r.t.Helper()
	c, err := Read(r.home, [16]byte{9})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := errors.Join(c.WriteBack(r.t.Context()), c.Close()); err != nil {
		r.t.Fatal(err)
	}
	found, err := r.home.Partitions()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, id := range found {
		n := id.Topic[0]
		raw, err := disk.ReadFile(r.home.FS, r.home.Partition(id)+"/"+segment.FormatName(0, 1))
		header, b := r.file(n)
		if err != nil || !bytes.Equal(raw, append(header, b...)) {
			r.t.Errorf("the file of partition %s is wrong: %v", id, err)
		}
		list = append(list, n)
	}
	return c, list
}

func TestWhatWasPutIsWrittenBack(t *testing.T) {
	r := newRig(t)
	r.mustPut(1, 2)
	r.mustPut(3)
	if err := r.j.Sync(); err != nil {
		t.Fatal(err)
	}
	for range 2 { // doing it again changes nothing
		if c, list := r.back(); c.Bad != nil || c.Lost != 0 || c.Frames != 2 || !bytes.Equal(list, []byte{1, 2, 3}) {
			t.Errorf("found %+v, wrote back %v", c, list)
		}
	}
}

func TestWhatWasForgottenStaysGone(t *testing.T) {
	r := newRig(t)
	r.mustPut(1, 2)
	if err := r.j.Forget(partition(1), 1); err != nil {
		t.Fatal(err)
	}
	if _, list := r.back(); !bytes.Equal(list, []byte{2}) {
		t.Errorf("wrote back %v", list)
	}
}

// TestFrameGoneBadIsNamed: what is missing in front of two rounds was synced; in front of one it may be a write that
// was never finished.
func TestFrameGoneBadIsNamed(t *testing.T) {
	for frames, lost := range map[byte]uint64{2: 0, 3: 0, 4: 2} {
		r := newRig(t)
		for n := range frames {
			r.mustPut(n + 1)
		}
		if _, err := r.j.file.WriteAt(make([]byte, Block), 2*Block); err != nil {
			t.Fatal(err)
		}
		c, list := r.back()
		if c.Lost != lost || len(list) != int(frames)-1 {
			t.Errorf("%d frames, the second gone bad: %+v, wrote back %v", frames, c, list)
		}
	}
}

// TestSpanIsUsedAgainOnceItIsClean: the writer waits for whoever syncs the files, and goes on when that failed.
func TestSpanIsUsedAgainOnceItIsClean(t *testing.T) {
	r := newRig(t)
	last := uint64(0)
	for r.j.pos+Block <= r.j.size {
		use, err := r.put(1)
		if err != nil || use < last {
			t.Fatalf("use %d after %d, %v", use, last, err)
		}
		last = use
	}
	if got := r.j.Due(); got != last-1 {
		t.Errorf("due up to use %d, want %d", got, last-1)
	}
	done := make(chan error)
	go func() { // returns when a span is clean
		_, err := r.put(2)
		done <- err
	}()
	r.j.Clean(1)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	gone := errors.New("the disk is gone")
	go func() { // returns when the journal failed
		var err error
		for err == nil {
			_, err = r.put(3)
		}
		done <- err
	}()
	r.j.Fail(gone)
	if err := <-done; !errors.Is(err, gone) {
		t.Errorf("put on a journal that failed: %v", err)
	}
}

func TestFrameThatDoesNotFit(t *testing.T) {
	r := newRig(t)
	var f Frame
	f.Reset()
	f.Add(Piece{ID: partition(1), Bufs: [][]byte{newBatch(t, 1, batch.Stamp{})}, Header: make([]byte, r.j.Largest())})
	if err := r.j.Put(&f, func(uint64) { t.Error("noted as covered") }); !errors.Is(err, ErrSpace) {
		t.Errorf("put: %v", err)
	}
	r.mustPut(1)
	if c, _ := r.back(); c.Lost != 0 || c.Frames != 1 {
		t.Errorf("found %+v", c)
	}
}

func TestJournalGrowsToItsBound(t *testing.T) {
	r := newRig(t)
	r.j.most = 3 * r.j.size
	for r.j.pos < r.j.size/2 {
		r.mustPut(1)
	}
	if !r.j.ShouldGrow() || r.j.ShouldGrow() {
		t.Error("it should grow, once")
	}
	if err := r.j.Grow(); err != nil || r.j.filled != 2*r.j.size {
		t.Errorf("grown to %d of %d: %v", r.j.filled, r.j.most, err)
	}
	before, _ := r.j.Bytes()
	for range 20 {
		r.mustPut(1)
	}
	if after, used := r.j.Bytes(); after <= before || used == 0 {
		t.Errorf("%d bytes in use after %d, %d used", after, before, used)
	}
}

func TestCheckTellsWhatIsWrong(t *testing.T) {
	r := newRig(t)
	if err := Check(r.home, [16]byte{9}); err != nil {
		t.Error(err)
	}
	if err := Check(r.home, [16]byte{8}); err == nil {
		t.Error("taken for the journal of another store")
	}
	for at := range int64(headSize) {
		var was [1]byte
		if _, err := r.j.file.ReadAt(was[:], at); err != nil {
			t.Fatal(err)
		}
		if _, err := r.j.file.WriteAt([]byte{was[0] ^ 4}, at); err != nil {
			t.Fatal(err)
		}
		err := Check(r.home, [16]byte{9})
		c, rerr := Read(r.home, [16]byte{9})
		if err == nil || rerr != nil || c.Bad == nil {
			t.Errorf("a bit of byte %d changed: %v, %v", at, err, rerr)
		}
		if c != nil {
			c.Close()
		}
		if _, err := r.j.file.WriteAt(was[:], at); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.home.FS.Remove(r.home.Journal()); err != nil {
		t.Fatal(err)
	}
	if c, err := Read(r.home, [16]byte{9}); c != nil || err != nil || Check(r.home, [16]byte{9}) != nil {
		t.Errorf("where none is: %v, %v", c, err)
	}
}
