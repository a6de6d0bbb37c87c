package fetch

import (
	"fmt"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/danubemq/danube/storage/disk"
)

// spilling is a world with little memory and a disk cache of so many blocks.
func spilling(t *testing.T, fsys disk.FS, blocks int64) *world {
	t.Helper()
	w := newWorld(t, Config{Bytes: 1 << 20, FS: fsys, Disk: "/cache", DiskBytes: blocks * blockSize})
	t.Cleanup(func() {
		if _, err := fsys.Stat("/cache"); w.tier.cache.disk != nil && err != nil {
			t.Errorf("the file was gone before its end: %v", err)
		}
	})
	return w
}

// sweep reads everything once, and waits until what left memory was written.
func (w *world) sweep() (requests int, bytes int64) {
	w.t.Helper()
	r := w.part.Reader(0)
	for r.Offset() < w.next {
		w.readTo(r, min(r.Offset()+10, w.next), 1<<20)
		w.tier.cache.disk.write.Wait() // a slow disk keeps less, a test wants all
	}
	r.Close()
	return sum(w.bucket.asked())
}

// What memory has no more room for is read from the disk, not from the store.
func TestDiskCacheServes(t *testing.T) {
	w := spilling(t, disk.NewMemory(1), 100)
	w.fill(4, 20, 200_000)
	_, first := w.sweep()
	if _, second := w.sweep(); second > first/4 {
		t.Errorf("read %d bytes from the store, and then %d", first, second)
	}
}

// A38: the file is never longer than it may be, whatever is read, and who finds no
// place in it reads all the same.
func TestDiskCacheIsBounded(t *testing.T) {
	fsys := disk.NewMemory(1)
	w := spilling(t, fsys, 3)
	w.fill(5, 20, 200_000)
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Go(func() {
			for range 3 {
				r := w.part.Reader(w.catalog.pieces[i].Start)
				w.readTo(r, w.catalog.pieces[i].End, 1<<20)
				r.Close()
			}
		})
	}
	wg.Wait()
	w.tier.cache.disk.write.Wait()
	e, err := fsys.Stat("/cache")
	if err != nil || e.Size > 3*blockSize || e.Size == 0 {
		t.Errorf("the file has %d bytes, %v", e.Size, err)
	}
}

// What the disk hurt is read from the store.
func TestDiskCacheIsChecked(t *testing.T) {
	fsys := disk.NewMemory(1)
	w := spilling(t, fsys, 100)
	w.fill(2, 20, 200_000)
	w.sweep()
	f, err := fsys.Open("/cache", disk.Write)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}()
	for n := range int64(100) {
		if _, err := f.WriteAt([]byte{1, 2, 3}, n*blockSize+1000); err != nil {
			t.Fatal(err)
		}
	}
	if _, bytes := w.sweep(); bytes < 4_000_000 {
		t.Errorf("only %d bytes came from the store", bytes)
	}
	if n := testutil.ToFloat64(w.tier.m.doubts); n != 0 {
		t.Errorf("bytes of the disk reached a reader %v times", n)
	}
}

// A full disk ends the cache, gives its space back, and stops nobody.
func TestDiskCacheFull(t *testing.T) {
	fsys := disk.NewMemory(1)
	fsys.Limit(1 << 20)
	w := spilling(t, fsys, 100)
	w.fill(2, 20, 200_000)
	for range 2 {
		w.sweep()
	}
	if e, err := fsys.Stat("/cache"); err != nil || e.Size != 0 {
		t.Errorf("the file has %d bytes, %v", e.Size, err)
	}
}

// A file that cannot be made is done without; the one of an earlier run is not read;
// the file goes with the tier.
func TestDiskCacheIsMadeAnew(t *testing.T) {
	fsys := disk.NewMemory(1)
	if err := fsys.Mkdir("/cache"); err != nil {
		t.Fatal(err)
	}
	f, err := fsys.Open("/cache/file", disk.Create)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, Config{FS: fsys, Disk: "/cache", DiskBytes: 1 << 20})
	if w.tier.cache.disk != nil {
		t.Error("it lies in the place of a directory")
	}
	w.fill(1, 3, 1000)
	r := w.part.Reader(0)
	defer r.Close()
	w.readTo(r, w.next, 1)

	if err := fsys.Remove("/cache/file"); err != nil {
		t.Fatal(err)
	}
	if err := fsys.Remove("/cache"); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if f, err = fsys.Open("/cache", disk.Create); err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte(fmt.Sprint("old ", i)), 1<<21); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		tier, err := Open(Config{Store: w.store, FS: fsys, Disk: "/cache", DiskBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		if e, err := fsys.Stat("/cache"); err != nil || e.Size != 0 {
			t.Errorf("begins with %d bytes, %v", e.Size, err)
		}
		if err := tier.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := fsys.Stat("/cache"); err == nil {
			t.Error("it is there after its end")
		}
	}
}
