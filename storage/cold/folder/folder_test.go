package folder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"

	"github.com/danubemq/danube/storage/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "/mnt/danube"

func newMemory(t testing.TB, seed uint64) *disk.Memory {
	t.Helper()
	m := disk.NewMemory(seed)
	if err := disk.MkdirAll(m, root); err != nil {
		t.Fatal(err)
	}
	return m
}

func open(t testing.TB, fsys disk.FS, dir string) *blob.Bucket {
	t.Helper()
	b, err := Open(t.Context(), fsys, dir, "", time.Now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() }) // a folder that crashed says so
	return b
}

func write(ctx context.Context, b *blob.Bucket, key string, data []byte, absent bool) error {
	return b.WriteAll(ctx, key, data, &blob.WriterOptions{ContentType: "x/y", IfNotExist: absent})
}

func wantCode(t testing.TB, err error, code gcerrors.ErrorCode) {
	t.Helper()
	if gcerrors.Code(err) != code || err == nil {
		t.Fatalf("got %v (%v), want %v", err, gcerrors.Code(err), code)
	}
}

func keysOf(t testing.TB, b *blob.Bucket, prefix string, size int) (keys []string) {
	t.Helper()
	for token := blob.FirstPageToken; len(token) > 0; {
		page, next, err := b.ListPage(t.Context(), token, size, &blob.ListOptions{Prefix: prefix})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) > size || len(page) == 0 && len(next) > 0 {
			t.Fatalf("a page of %d, next %q", len(page), next)
		}
		for _, o := range page {
			keys = append(keys, o.Key)
		}
		token = next
	}
	return keys
}

// An object that was written is there after a power loss; one whose writer died at any step is whole or not there, and
// the next try with the same bytes makes it.
func TestPowerLossAtEveryStep(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), chunk/16+10) // more than one chunk
	for seed := range uint64(3) {
		for step, more := 0, true; more; step++ {
			m := newMemory(t, seed)
			b := open(t, m, root)
			var mu sync.Mutex
			left := step
			m.Fail(func(string, string) error {
				mu.Lock()
				defer mu.Unlock()
				if left--; left < 0 {
					return disk.ErrCrashed
				}
				return nil
			})
			err := write(t.Context(), b, "topics/a/0/x.seg", data, true)
			mu.Lock()
			more = left < 0
			mu.Unlock()
			m = m.PowerLoss()
			b = open(t, m, root)
			got, readErr := b.ReadAll(t.Context(), "topics/a/0/x.seg")
			switch {
			case err == nil && readErr != nil:
				t.Fatalf("seed %d, step %d: written, then %v", seed, step, readErr)
			case readErr == nil && !bytes.Equal(got, data):
				t.Fatalf("seed %d, step %d: %d bytes that nobody wrote", seed, step, len(got))
			case readErr != nil:
				wantCode(t, readErr, gcerrors.NotFound)
			}
			if err := write(t.Context(), b, "topics/a/0/x.seg", data, true); err != nil && (readErr != nil || gcerrors.Code(err) != gcerrors.FailedPrecondition) {
				t.Fatalf("seed %d, step %d: again: %v", seed, step, err)
			}
			b = open(t, m.PowerLoss(), root)
			if got, err := b.ReadAll(t.Context(), "topics/a/0/x.seg"); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("seed %d, step %d: after the second try %d bytes, %v", seed, step, len(got), err)
			}
		}
	}
}

// A writer that is refused may say that its bytes are durable, if they are what it reads: whoever wrote them may have died
// before it synced the directory.
func TestRefusalMakesDurable(t *testing.T) {
	for seed := range uint64(20) {
		m := newMemory(t, seed)
		b := open(t, m, root)
		var linked bool
		var left *disk.Memory // what the writer's death leaves
		m.Fail(func(op, _ string) error {
			linked = linked || op == "link"
			if linked && op == "syncdir" && left == nil {
				left = m.Kill()
			}
			return nil
		})
		if err := write(t.Context(), b, "a/x", []byte("bytes"), true); err == nil {
			t.Fatal("the directory was not synced, and the write succeeded")
		}
		m = left
		b = open(t, m, root)
		wantCode(t, write(t.Context(), b, "a/x", []byte("bytes"), true), gcerrors.FailedPrecondition)
		if got, err := open(t, m.PowerLoss(), root).ReadAll(t.Context(), "a/x"); err != nil || string(got) != "bytes" {
			t.Fatalf("seed %d: %q, %v", seed, got, err)
		}
	}
}

func TestReplaceAndDeleteSurvivePowerLoss(t *testing.T) {
	for seed := range uint64(20) {
		m := newMemory(t, seed)
		b := open(t, m, root)
		for _, text := range []string{"one", "two"} {
			if err := write(t.Context(), b, "cluster", []byte(text), false); err != nil {
				t.Fatal(err)
			}
		}
		if err := write(t.Context(), b, "gone", []byte("x"), true); err != nil {
			t.Fatal(err)
		}
		if err := b.Delete(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		b = open(t, m.PowerLoss(), root)
		if got, err := b.ReadAll(t.Context(), "cluster"); err != nil || string(got) != "two" {
			t.Fatalf("seed %d: %q, %v", seed, got, err)
		}
		_, err := b.ReadAll(t.Context(), "gone")
		wantCode(t, err, gcerrors.NotFound)
	}
}

// Several machines write one key at once; each has a bucket of its own and shares nothing but the folder.
func TestOneOfManyMachinesWins(t *testing.T) {
	dir := t.TempDir()
	const machines = 8
	var buckets []*blob.Bucket
	for range machines {
		buckets = append(buckets, open(t, disk.OS(), dir))
	}
	for round := range 20 {
		key := fmt.Sprintf("r/%d/x", round)
		errs := make([]error, machines)
		var wg sync.WaitGroup
		for i, b := range buckets {
			wg.Go(func() { errs[i] = write(t.Context(), b, key, fmt.Appendf(nil, "machine %d", i), true) })
		}
		wg.Wait()
		won := -1
		for i, err := range errs {
			if err == nil && won >= 0 {
				t.Fatalf("machines %d and %d have both won", won, i)
			}
			if err == nil {
				won = i
			} else {
				wantCode(t, err, gcerrors.FailedPrecondition)
			}
		}
		if got, err := buckets[0].ReadAll(t.Context(), key); err != nil || string(got) != fmt.Sprintf("machine %d", won) {
			t.Fatalf("%q lies there, machine %d has won: %v", got, won, err)
		}
	}
}

func TestListIsSortedAndPaged(t *testing.T) {
	m := newMemory(t, 1)
	b := open(t, m, root)
	rnd := rand.New(rand.NewPCG(3, 4))
	names := []string{"a", "a-b", "a.b", "b", "aa", "0", "a_"}
	seen := map[string]bool{}
	var want []string
	for len(want) < 150 {
		parts := []string{}
		for range 1 + rnd.IntN(3) {
			parts = append(parts, names[rnd.IntN(len(names))]+fmt.Sprint(rnd.IntN(3)))
		}
		// Never a key that another one has as a folder.
		key := strings.Join(parts, "/") + ".seg"
		if seen[key] {
			continue
		}
		seen[key] = true
		want = append(want, key)
		if err := write(t.Context(), b, key, nil, true); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(want)
	for _, prefix := range []string{"", "a", "a-", "a0/", "a0/a", "b1/a-b2/", "zz", want[17], "a_1"} {
		for _, size := range []int{1, 7, 1000} {
			part := slices.DeleteFunc(slices.Clone(want), func(k string) bool { return !strings.HasPrefix(k, prefix) })
			if got := keysOf(t, b, prefix, size); !slices.Equal(got, part) {
				t.Fatalf("prefix %q, pages of %d: got %q, want %q", prefix, size, got, part)
			}
		}
	}
}

// A write that was given up, or whose writer died, is not an object, and is gone a day later.
func TestLeftoversAreNotListedAndSwept(t *testing.T) {
	m := newMemory(t, 1)
	b := open(t, m, root)
	ctx, cancel := context.WithCancel(t.Context())
	w, err := b.NewWriter(ctx, "given-up", &blob.WriterOptions{ContentType: "x/y"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := w.Close(); !errors.Is(err, context.Canceled) {
		t.Fatalf("closed with %v", err)
	}
	f, err := m.Open(root+"/"+tempName+fmt.Sprintf("/%020d-DEAD", time.Now().UnixMilli()), disk.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"", ".", tempName + "/", "./" + tempName + "/"} {
		if got := keysOf(t, b, prefix, 10); len(got) != 0 {
			t.Fatalf("prefix %q lists %q", prefix, got)
		}
	}
	for name, test := range map[string]struct {
		after time.Duration
		left  int
	}{"an hour": {time.Hour, 1}, "a day": {25 * time.Hour, 0}} {
		later := func() time.Time { return time.Now().Add(test.after) }
		b, err := Open(t.Context(), m, root, "", later)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		if left, err := m.ReadDir(root + "/" + tempName); err != nil || name == "a day" && len(left) != test.left {
			t.Errorf("after %s %d are left, want %d, %v", name, len(left), test.left, err)
		}
	}
}

// The mount is gone: the folder below it is empty, which must look like nothing that was there.
func TestAbsentMountIsNotAnEmptyStore(t *testing.T) {
	m := newMemory(t, 1)
	b := open(t, m, root)
	if err := write(t.Context(), b, "a/x", []byte("x"), true); err != nil {
		t.Fatal(err)
	}
	if err := m.Rename(root, "/mnt/elsewhere"); err != nil {
		t.Fatal(err)
	}
	if err := m.Mkdir(root); err != nil {
		t.Fatal(err)
	}
	_, statErr := b.Attributes(t.Context(), "a/x")
	_, readErr := b.ReadAll(t.Context(), "a/x")
	_, _, listErr := b.ListPage(t.Context(), blob.FirstPageToken, 10, nil)
	for what, err := range map[string]error{
		"stat": statErr, "read": readErr, "list": listErr, "delete": b.Delete(t.Context(), "a/x"),
		"put": write(t.Context(), b, "a/y", []byte("y"), true), "replace": write(t.Context(), b, "b/y", nil, false),
	} {
		if !errors.Is(err, ErrGone) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if left, err := m.ReadDir(root); err != nil || len(left) != 0 {
		t.Errorf("%v was written beside the mount, %v", left, err)
	}
}

// A folder that was used before is known by its marker: one that is not there, has none or another is no store to write to,
// and nothing is made in it. When the right one is back all goes on.
func TestKnownFolderIsNotReplaced(t *testing.T) {
	m := newMemory(t, 1)
	b := open(t, m, root)
	if err := write(t.Context(), b, "a/x", []byte("x"), true); err != nil {
		t.Fatal(err)
	}
	mark, err := Mark(m, root)
	if err != nil || mark == "" {
		t.Fatalf("its mark is %q, %v", mark, err)
	}
	if err := m.Rename(root, root+".away"); err != nil {
		t.Fatal(err)
	}
	again, err := Open(t.Context(), m, root, mark, time.Now)
	if err != nil {
		t.Fatalf("a folder that is away does not open: %v", err)
	}
	t.Cleanup(func() { _ = again.Close() })
	away := func(why string, want error) {
		t.Helper()
		if err := write(t.Context(), again, "a/y", []byte("y"), true); !errors.Is(err, want) {
			t.Errorf("%s: a write says %v", why, err)
		}
		if _, err := again.ReadAll(t.Context(), "a/x"); !errors.Is(err, want) {
			t.Errorf("%s: a read says %v", why, err)
		}
	}
	away("it is not there", ErrGone)
	if err := disk.MkdirAll(m, root); err != nil {
		t.Fatal(err)
	}
	away("an empty folder is there", ErrGone)
	if left, err := m.ReadDir(root); err != nil || len(left) != 0 {
		t.Errorf("%v was written into the empty folder, %v", left, err)
	}
	open(t, m, root) // somebody else's
	away("another store is there", ErrOther)
	if err := m.Rename(root, root+".other"); err != nil {
		t.Fatal(err)
	}
	if err := m.Rename(root+".away", root); err != nil {
		t.Fatal(err)
	}
	if text, err := again.ReadAll(t.Context(), "a/x"); err != nil || string(text) != "x" {
		t.Errorf("back again it says %q, %v", text, err)
	}
	if err := write(t.Context(), again, "a/y", []byte("y"), true); err != nil {
		t.Errorf("back again: %v", err)
	}
}

func TestOpenNeedsAFolder(t *testing.T) {
	m := newMemory(t, 1)
	for _, name := range []string{"/mnt/nowhere", root + "/file"} {
		if name != "/mnt/nowhere" {
			f, err := m.Open(name, disk.Create)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := Open(t.Context(), m, name, "", time.Now); err == nil {
			t.Errorf("%s was opened: %v", name, b.Close())
		}
	}
}

func TestBadKeysAreRefused(t *testing.T) {
	b := open(t, newMemory(t, 1), root)
	for _, key := range []string{"../x", "a/../x", ".danube-store", "a/.hidden", "a//b", "/a", "a/", "a\\b"} {
		err := write(t.Context(), b, key, []byte("x"), false)
		wantCode(t, err, gcerrors.InvalidArgument)
		wantCode(t, b.Delete(t.Context(), key), gcerrors.InvalidArgument)
		_, err = b.Attributes(t.Context(), key)
		wantCode(t, err, gcerrors.InvalidArgument)
	}
}

// A sync of a directory that failed is not believed when it succeeds later (R20); other directories are not touched by it.
func TestFailedSyncIsFinal(t *testing.T) {
	m := newMemory(t, 1)
	b := open(t, m, root)
	for _, key := range []string{"bad/first", "good/first"} {
		if err := write(t.Context(), b, key, nil, true); err != nil {
			t.Fatal(err)
		}
	}
	m.Fail(func(op, name string) error {
		if op == "syncdir" && strings.HasSuffix(name, "/bad") {
			return syscall.EIO
		}
		return nil
	})
	if err := write(t.Context(), b, "bad/x", nil, true); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	m.Fail(nil)
	for range 2 {
		if err := write(t.Context(), b, "bad/x", nil, true); !errors.Is(err, syscall.EIO) || gcerrors.Code(err) == gcerrors.FailedPrecondition {
			t.Fatalf("the second try says %v", err)
		}
	}
	if err := write(t.Context(), b, "good/x", nil, true); err != nil {
		t.Fatal(err)
	}
}

// A folder that somebody emptied of directories takes objects again.
func TestRemovedDirectoriesAreMadeAgain(t *testing.T) {
	m := newMemory(t, 1)
	b := open(t, m, root)
	for range 2 {
		if err := write(t.Context(), b, "a/b/c/x", nil, true); err != nil {
			t.Fatal(err)
		}
		if err := disk.RemoveAll(m, root+"/a"); err != nil {
			t.Fatal(err)
		}
	}
}

// hanging is a file system on which writes and reads of some files do not return until they are let go.
type hanging struct {
	disk.FS
	hang func(op string) bool
	free chan struct{}
}

type hangingFile struct {
	disk.File
	h *hanging
}

func (h *hanging) Open(name string, flags disk.Flags) (disk.File, error) {
	f, err := h.FS.Open(name, flags)
	if err != nil {
		return nil, err
	}
	return &hangingFile{f, h}, nil
}

func (f *hangingFile) WriteAt(p []byte, off int64) (int, error) {
	if f.h.hang("write") {
		<-f.h.free
	}
	return f.File.WriteAt(p, off)
}

func (f *hangingFile) ReadAt(p []byte, off int64) (int, error) {
	if f.h.hang("read") {
		<-f.h.free
	}
	return f.File.ReadAt(p, off)
}

// A mount that hangs costs its caller no more than its own time, and nobody else any. When it comes back nothing is left.
func TestHangingMount(t *testing.T) {
	for _, what := range []string{"write", "read"} {
		t.Run(what, func(t *testing.T) {
			m := newMemory(t, 1)
			var mu sync.Mutex
			hang, hangs := false, make(chan struct{})
			h := &hanging{FS: m, free: make(chan struct{}), hang: func(op string) bool {
				mu.Lock()
				defer mu.Unlock()
				if !hang || op != what {
					return false
				}
				hang = false
				close(hangs)
				return true
			}}
			b := open(t, h, root)
			if err := write(t.Context(), b, "there", make([]byte, 3<<20), true); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			hang = true
			mu.Unlock()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var waiting sync.WaitGroup
			waiting.Go(func() { // returns when the call hangs: its caller gives it up
				<-hangs
				cancel()
			})
			var err error
			if what == "write" {
				err = write(ctx, b, "hung", make([]byte, 3<<20), true)
			} else {
				_, err = b.ReadAll(ctx, "there")
			}
			waiting.Wait()
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("the hanging %s says %v", what, err)
			}
			if err := write(t.Context(), b, "beside", make([]byte, 3<<20), true); err != nil {
				t.Fatal(err)
			}
			if got, err := b.ReadAll(t.Context(), "beside"); err != nil || len(got) != 3<<20 {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			close(h.free)
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if left, err := m.ReadDir(root + "/" + tempName); err != nil || len(left) != 0 {
				t.Errorf("left are %v, %v", left, err)
			}
			if n := m.Stats().Open; n != 0 {
				t.Errorf("%d files are open", n)
			}
			if _, err := m.Stat(root + "/hung"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the write that was given up has appeared: %v", err)
			}
		})
	}
}

// A mount that is full says so, keeps what is there, and works again when there is space.
func TestFullMount(t *testing.T) {
	m := newMemory(t, 1)
	b := open(t, m, root)
	if err := write(t.Context(), b, "small", []byte("x"), true); err != nil {
		t.Fatal(err)
	}
	m.Limit(1 << 20)
	err := write(t.Context(), b, "large", make([]byte, 2<<20), true)
	if !disk.NoSpace(err) {
		t.Fatal(err)
	}
	wantCode(t, err, gcerrors.ResourceExhausted)
	if got := keysOf(t, b, "", 10); !slices.Equal(got, []string{"small"}) {
		t.Fatalf("listed %q", got)
	}
	m.Limit(0)
	if err := write(t.Context(), b, "large", make([]byte, 2<<20), true); err != nil {
		t.Fatal(err)
	}
}
