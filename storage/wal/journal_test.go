package wal

import (
	"bytes"
	"errors"
	"path"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/journal"
	"github.com/danubemq/danube/storage/segment"
)

// forgedFrame is a frame as it stands in a journal, but of another one.
func forgedFrame(t *testing.T, p journal.Piece) []byte {
	t.Helper()
	fsys := disk.NewMemory(1)
	j, err := journal.Create(fsys, "/journal", [16]byte{}, 256<<10)
	if err != nil {
		t.Fatal(err)
	}
	var f journal.Frame
	f.Reset()
	f.Add(p)
	if err := errors.Join(j.Put(&f, func(uint64) {}), j.Close()); err != nil {
		t.Fatal(err)
	}
	raw, err := disk.ReadFile(fsys, "/journal")
	if err != nil {
		t.Fatal(err)
	}
	size := journal.FrameHead + journal.EntrySize
	for _, b := range p.Bufs {
		size += len(b)
	}
	return raw[journal.Block:][:size]
}

// TestJournalFrameInsideAMessage: a client that knows the format, the topic and
// even where its message will lie in the journal cannot make recovery write
// what it likes: it does not know the nonce.
func TestJournalFrameInsideAMessage(t *testing.T) {
	forged := (&sender{producer: 66, session: 1}).batch(t, 1, 100)
	forged.Stamp(batch.Stamp{Base: 1, Epoch: 1, AppendTime: 1})
	frame := forgedFrame(t, journal.Piece{ID: topic(1), Base: 1, Epoch: 1, Bufs: [][]byte{forged}})
	attack := func(pad int) (fsys *disk.Memory, at int) {
		r := newRig(t, func(c *Config) { c.JournalBytes = 256 << 10 })
		text := append(bytes.Repeat([]byte{'.'}, pad), frame...)
		var w batch.Builder
		w.Add(&batch.Message{Payload: append(text, make([]byte, 2*journal.Block)...)})
		b, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: 5, Session: 1})
		if err != nil {
			t.Fatal(err)
		}
		p, err := r.log.Append(b)
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		fsys = r.fsys.Kill()
		r.tier.Close()
		raw, err := disk.ReadFile(fsys, "/data/journal")
		if err != nil {
			t.Fatal(err)
		}
		return fsys, bytes.Index(raw, frame)
	}
	_, at := attack(0)
	if at < 0 {
		t.Fatal("the message is not in the journal")
	}
	fsys, at := attack(journal.Block - at%journal.Block)
	if at%journal.Block != 0 {
		t.Fatalf("the forged frame lies at %d, not on a block", at)
	}
	tier := openTier(t, fsys, nil)
	if _, err := fsys.Stat(path.Join(tier.dir(topic(1)), segment.FormatName(1, 1))); !isNotExist(err) {
		t.Fatalf("recovery wrote what a message said: %v", err)
	}
	l, found := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}})
	if found.End != 1 || found.Class == Damaged || len(readAll(t, l, 0)) != 1 {
		t.Fatalf("found %+v", found)
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestMarkerCountsOnce: the clean marker is gone before anything is appended,
// and one that is copied back hides nothing that came after it (A8).
func TestMarkerCountsOnce(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(5, 50)
	r.close()
	marker, err := disk.ReadFile(r.fsys, "/data/wal/clean")
	if err != nil {
		t.Fatal(err)
	}
	tier := openTier(t, r.fsys, nil)
	if _, err := r.fsys.Stat("/data/wal/clean"); !isNotExist(err) {
		t.Fatalf("the marker is still there: %v", err)
	}
	extents := []Extent{{Epoch: 1, Start: 0, End: openEnd}}
	l, found := openLog(t, tier, Opening{ID: topic(1), Extents: extents})
	if found.End != 5 || found.Class != Clean {
		t.Fatalf("found %+v", found)
	}
	if err := l.Begin(2, 5, 100); err != nil {
		t.Fatal(err)
	}
	r.log, r.tier = l, tier
	if _, _, err := l.OpenSession(5, 1, 5); err != nil {
		t.Fatal(err)
	}
	r.mustPut(5, 50)
	fsys := r.fsys.PowerLoss()
	tier.Close()
	f, err := fsys.Open("/data/wal/clean", disk.Create)
	if err == nil {
		_, err = f.WriteAt(marker, 0)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	tier = openTier(t, fsys, nil)
	l, found = openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: 5}, {Epoch: 2, Start: 5, End: openEnd}}})
	if found.End != 10 || len(readAll(t, l, 0)) != 10 {
		t.Fatalf("found %+v", found)
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestBatchAcrossTheEndOfItsEpoch: where the metadata ends an epoch inside a
// batch, that batch does not exist (R19, R21).
func TestBatchAcrossTheEndOfItsEpoch(t *testing.T) {
	r := newRig(t, nil)
	p, err := r.log.Append(r.send.batch(t, 4, 20))
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	r.close()
	tier := openTier(t, r.fsys, nil)
	l, _ := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: 2}, {Epoch: 2, Start: 10, End: openEnd}}})
	rd := l.Reader(0)
	defer rd.Close()
	if v, err := rd.Next(1000); err == nil {
		t.Errorf("read offsets %d to %d of an epoch that ends at 2", v.Base, v.End)
		v.Release()
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}
