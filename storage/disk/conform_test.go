package disk

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

// both runs a test over the operating system and over memory, in an empty directory.
func both(t *testing.T, test func(t *testing.T, fsys FS, dir string)) {
	t.Run("os", func(t *testing.T) { test(t, OS(), filepath.ToSlash(t.TempDir())) })
	t.Run("memory", func(t *testing.T) {
		m := NewMemory(1)
		if err := MkdirAll(m, "/some/where"); err != nil {
			t.Fatal(err)
		}
		test(t, m, "/some/where")
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, fsys FS, name string, flags Flags) File {
	t.Helper()
	f, err := fsys.Open(name, flags)
	must(t, err)
	t.Cleanup(func() { must(t, f.Close()) })
	return f
}

func put(t testing.TB, fsys FS, name, text string) File {
	t.Helper()
	f := open(t, fsys, name, Create)
	must(t, f.WriteVec([][]byte{[]byte(text)}, 0))
	return f
}

func content(t testing.TB, fsys FS, name string) string {
	t.Helper()
	data, err := ReadFile(fsys, name)
	must(t, err)
	return string(data)
}

func names(t testing.TB, fsys FS, dir string) []string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	must(t, err)
	list := []string{}
	for _, e := range entries {
		list = append(list, e.Name)
	}
	return list
}

func wantIs(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("got %v, want %v", err, target)
	}
	if target == io.EOF {
		return
	}
	if _, ok := errors.AsType[*fs.PathError](err); !ok {
		t.Fatalf("%v (%T) is no *fs.PathError", err, err)
	}
}

func TestOpenFlags(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		name := dir + "/f"
		_, err := fsys.Open(name, 0)
		wantIs(t, err, fs.ErrNotExist)
		_, err = fsys.Open(name, Write)
		wantIs(t, err, fs.ErrNotExist)
		_, err = fsys.Open(dir+"/missing/f", Create)
		wantIs(t, err, fs.ErrNotExist)
		f := open(t, fsys, name, Exclusive)
		_, err = f.WriteAt([]byte("abc"), 0)
		must(t, err)
		_, err = fsys.Open(name, Exclusive)
		wantIs(t, err, fs.ErrExist)
		open(t, fsys, name, Create)
		if got := content(t, fsys, name); got != "abc" {
			t.Fatalf("opening again left %q", got)
		}
		reader := open(t, fsys, name, 0)
		if _, err := reader.WriteAt([]byte("x"), 0); err == nil {
			t.Fatal("a file opened to read was written")
		}
		if err := reader.WriteVec([][]byte{[]byte("x")}, 0); err == nil {
			t.Fatal("a file opened to read was written by WriteVec")
		}
		if _, err := fsys.Open(dir, 0); err == nil {
			t.Fatal("a directory was opened as a file")
		}
		if _, err := fsys.Open(name+"/below", Create); err == nil {
			t.Fatal("a file was made below a file")
		}
	})
}

func TestReadAndWrite(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		f := open(t, fsys, dir+"/f", Create)
		want := make([]byte, 3*pageSize+100)
		for i := range want {
			want[i] = byte(i * 7)
		}
		var bufs [][]byte
		for b := range slices.Chunk(want, 1000) {
			bufs = append(bufs, b, nil)
		}
		must(t, f.WriteVec(bufs, 50))
		want = append(make([]byte, 50), want...)
		size, err := f.Size()
		must(t, err)
		if size != int64(len(want)) {
			t.Fatalf("size %d, want %d", size, len(want))
		}
		got := make([]byte, len(want)+10)
		n, err := f.ReadAt(got, 0)
		wantIs(t, err, io.EOF)
		if !bytes.Equal(got[:n], want) {
			t.Fatal("other bytes came back")
		}
		_, err = f.ReadAt(got[:1], int64(len(want)))
		wantIs(t, err, io.EOF)
		if _, err := f.ReadAt(got[:1], -1); err == nil {
			t.Fatal("a negative position was read")
		}
		must(t, f.Truncate(60))
		must(t, f.Truncate(70))
		if got, want := content(t, fsys, dir+"/f"), string(want[:60])+string(make([]byte, 10)); got != want {
			t.Fatalf("after two truncations %q, want %q", got, want)
		}
		must(t, f.WriteBack(0, 60))
		must(t, f.WriteBack(0, 1<<20)) // beyond the end
		must(t, f.Datasync())
		must(t, f.WriteVec(nil, 0))
	})
}

func TestWriteVecOfManyBuffers(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		var bufs [][]byte
		var want []byte
		for i := range 5000 { // several times the kernel's limit
			b := bytes.Repeat([]byte{byte(i)}, i%7)
			bufs, want = append(bufs, b), append(want, b...)
		}
		f := open(t, fsys, dir+"/f", Create)
		must(t, f.WriteVec(bufs, 0))
		if got := content(t, fsys, dir+"/f"); got != string(want) {
			t.Fatal("other bytes came back")
		}
	})
}

func TestClosedFile(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		f, err := fsys.Open(dir+"/f", Create)
		must(t, err)
		must(t, f.Close())
		must(t, f.Close())
		_, err = f.ReadAt(make([]byte, 1), 0)
		wantIs(t, err, fs.ErrClosed)
		_, err = f.WriteAt([]byte("x"), 0)
		wantIs(t, err, fs.ErrClosed)
		wantIs(t, f.WriteVec([][]byte{{1}}, 0), fs.ErrClosed)
		wantIs(t, f.Datasync(), fs.ErrClosed)
		wantIs(t, f.WriteBack(0, 1), fs.ErrClosed)
		wantIs(t, f.Truncate(0), fs.ErrClosed)
		_, err = f.Size()
		wantIs(t, err, fs.ErrClosed)
	})
}

func TestDirectories(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		must(t, fsys.Mkdir(dir+"/b"))
		wantIs(t, fsys.Mkdir(dir+"/b"), fs.ErrExist)
		wantIs(t, fsys.Mkdir(dir+"/x/y"), fs.ErrNotExist)
		put(t, fsys, dir+"/c", "four")
		put(t, fsys, dir+"/a", "")
		entries, err := fsys.ReadDir(dir)
		must(t, err)
		want := []Entry{{Name: "a"}, {Name: "b", Dir: true}, {Name: "c", Size: 4}}
		if !slices.Equal(entries, want) {
			t.Fatalf("entries %v, want %v", entries, want)
		}
		for _, e := range want {
			got, err := fsys.Stat(path.Join(dir, e.Name))
			must(t, err)
			if got != e {
				t.Fatalf("stat %v, want %v", got, e)
			}
		}
		_, err = fsys.Stat(dir + "/x")
		wantIs(t, err, fs.ErrNotExist)
		_, err = fsys.ReadDir(dir + "/x")
		wantIs(t, err, fs.ErrNotExist)
		put(t, fsys, dir+"/b/f", "")
		if err := fsys.Remove(dir + "/b"); err == nil {
			t.Fatal("a directory that is not empty was removed")
		}
		must(t, fsys.Remove(dir+"/b/f"))
		must(t, fsys.Remove(dir+"/b"))
		wantIs(t, fsys.Remove(dir+"/b"), fs.ErrNotExist)
		must(t, fsys.SyncDir(dir))
		wantIs(t, fsys.SyncDir(dir+"/b"), fs.ErrNotExist)
		if got := names(t, fsys, dir); !slices.Equal(got, []string{"a", "c"}) {
			t.Fatalf("left are %v", got)
		}
	})
}

func TestRename(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		put(t, fsys, dir+"/new", "new")
		old := put(t, fsys, dir+"/f", "old")
		must(t, fsys.Mkdir(dir+"/d"))
		must(t, fsys.Rename(dir+"/new", dir+"/f"))
		if got := content(t, fsys, dir+"/f"); got != "new" {
			t.Fatalf("after the rename %q", got)
		}
		text := make([]byte, 3)
		_, err := old.ReadAt(text, 0)
		must(t, err)
		if string(text) != "old" {
			t.Fatalf("the handle of the replaced file reads %q", text)
		}
		wantIs(t, fsys.Rename(dir+"/new", dir+"/f"), fs.ErrNotExist)
		must(t, fsys.Rename(dir+"/f", dir+"/d/g"))
		must(t, fsys.Rename(dir+"/d", dir+"/e"))
		if got := content(t, fsys, dir+"/e/g"); got != "new" {
			t.Fatalf("after two renames %q", got)
		}
		if err := fsys.Rename(dir+"/e", dir+"/e/e"); err == nil {
			t.Fatal("a directory was moved into itself")
		}
		put(t, fsys, dir+"/f", "")
		if err := fsys.Rename(dir+"/f", dir+"/e"); err == nil {
			t.Fatal("a file replaced a directory")
		}
	})
}

func TestLink(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		put(t, fsys, dir+"/f", "text")
		must(t, fsys.Mkdir(dir+"/d"))
		must(t, fsys.Link(dir+"/f", dir+"/d/g"))
		is := func(err, target error) {
			t.Helper()
			if !errors.Is(err, target) {
				t.Fatalf("got %v, want %v", err, target)
			}
		}
		is(fsys.Link(dir+"/f", dir+"/d/g"), fs.ErrExist)
		is(fsys.Link(dir+"/f", dir+"/d"), fs.ErrExist)
		is(fsys.Link(dir+"/missing", dir+"/h"), fs.ErrNotExist)
		is(fsys.Link(dir+"/f", dir+"/missing/h"), fs.ErrNotExist)
		if err := fsys.Link(dir+"/d", dir+"/e"); err == nil {
			t.Fatal("a directory got a second name")
		}
		must(t, fsys.Remove(dir+"/f"))
		if got := content(t, fsys, dir+"/d/g"); got != "text" {
			t.Fatalf("through the other name %q", got)
		}
	})
}

func TestRemovedFileStaysReadable(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		f := put(t, fsys, dir+"/f", "still here")
		must(t, fsys.Remove(dir+"/f"))
		text := make([]byte, 10)
		_, err := f.ReadAt(text, 0)
		must(t, err)
		if string(text) != "still here" {
			t.Fatalf("read %q", text)
		}
	})
}

func TestLockIsExclusive(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		l, err := fsys.Lock(dir + "/lock")
		must(t, err)
		_, err = fsys.Lock(dir + "/lock")
		held, ok := errors.AsType[*LockedError](err)
		if !ok || held.PID == 0 {
			t.Fatalf("the second lock got %v", err)
		}
		must(t, l.Close())
		must(t, l.Close())
		l, err = fsys.Lock(dir + "/lock")
		must(t, err)
		must(t, l.Close())
		_, err = fsys.Lock(dir + "/missing/lock")
		wantIs(t, err, fs.ErrNotExist)
	})
}

func TestFree(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		space, err := fsys.Free(dir)
		must(t, err)
		if space.Free == 0 || space.Free > space.Total {
			t.Fatalf("free space %+v", space)
		}
		_, err = fsys.Free(dir + "/missing")
		wantIs(t, err, fs.ErrNotExist)
	})
}

func TestWriteFileAtomic(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		name := dir + "/f"
		put(t, fsys, name+tempSuffix, "left behind by an interrupted call, and longer")
		for _, text := range []string{"one", "", "three"} {
			must(t, WriteFileAtomic(fsys, name, []byte(text)))
			if got := content(t, fsys, name); got != text {
				t.Fatalf("wrote %q, read %q", text, got)
			}
		}
		if got := names(t, fsys, dir); !slices.Equal(got, []string{"f"}) {
			t.Fatalf("left are %v", got)
		}
		wantIs(t, WriteFileAtomic(fsys, dir+"/missing/f", nil), fs.ErrNotExist)
	})
}

func TestMkdirAllAndRemoveAll(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		must(t, MkdirAll(fsys, dir+"/a/b/c"))
		must(t, MkdirAll(fsys, dir+"/a/b/c"))
		put(t, fsys, dir+"/a/b/f", "x")
		wantIs(t, MkdirAll(fsys, dir+"/a/b/f"), fs.ErrExist)
		must(t, RemoveAll(fsys, dir+"/a"))
		must(t, RemoveAll(fsys, dir+"/a"))
		if got := names(t, fsys, dir); len(got) != 0 {
			t.Fatalf("left are %v", got)
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	both(t, func(t *testing.T, fsys FS, dir string) {
		f := open(t, fsys, dir+"/f", Create)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				p := bytes.Repeat([]byte{byte(i)}, 100)
				for range 50 {
					_, err := f.WriteAt(p, int64(i)*100)
					got := make([]byte, 100)
					_, readErr := f.ReadAt(got, int64(i)*100)
					if err := errors.Join(err, readErr, f.Datasync()); err != nil || !bytes.Equal(got, p) {
						t.Errorf("writer %d: %v", i, err)
					}
				}
			})
		}
		wg.Wait()
	})
}
