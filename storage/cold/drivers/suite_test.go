package drivers_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/drivers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, url string, change func(*cold.Config)) *cold.Store {
	t.Helper()
	cfg := cold.Config{URL: url, Drivers: drivers.Open}
	if change != nil {
		change(&cfg)
	}
	s, err := cold.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func withPrefix(url, prefix string) string {
	if strings.Contains(url, "?") {
		return url + "&prefix=" + prefix
	}
	return url + "?prefix=" + prefix
}

func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	src := rand.New(rand.NewPCG(seed, 1))
	for i := range b {
		b[i] = byte(src.Uint32())
	}
	return b
}

// TestMemory and TestFolder run the suite over what needs no server.
func TestMemory(t *testing.T) { suite(t, "mem://") }

func TestFolder(t *testing.T) { suite(t, "file://"+t.TempDir()) }

// suite is what the exporter, the reader, compaction and garbage collection rely on, the same over every store.
func suite(t *testing.T, url string) {
	s := open(t, withPrefix(url, "some/where"), nil)
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	for what, test := range map[string]func(*testing.T, *cold.Store){
		"PutOnce": testPutOnce, "ReadRanges": testReadRanges, "ListPages": testListPages, "DeleteTwice": testDeleteTwice,
		"Race": testRace, "Empty": testEmpty, "Large": testLarge, "Replace": testReplace, "BadBody": testBadBody,
	} {
		t.Run(what, func(t *testing.T) { test(t, s) })
	}
	t.Run("Prefix", func(t *testing.T) { testPrefix(t, s, open(t, url, nil)) })
}

func put(t *testing.T, s *cold.Store, key string, data []byte) {
	t.Helper()
	info, err := s.Put(t.Context(), key, cold.Bytes(data))
	if err != nil {
		t.Fatal(err)
	}
	if info.Key != key || info.Size != int64(len(data)) {
		t.Fatalf("put says %+v", info)
	}
}

func content(t *testing.T, s *cold.Store, key string) []byte {
	t.Helper()
	info, err := s.Stat(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, info.Size)
	if err := s.ReadAt(t.Context(), key, b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func wantCause(t *testing.T, err error, cause cold.Cause) {
	t.Helper()
	if !errors.Is(err, cause) {
		t.Fatalf("got %v, want %v", err, cause)
	}
	if e, ok := errors.AsType[*cold.Error](err); !ok || e.Op == "" || e.Attempts < 1 && cause != cold.Corrupt {
		t.Fatalf("%#v does not say what was tried", err)
	}
}

func testPutOnce(t *testing.T, s *cold.Store) {
	first, other := randomBytes(1, 5000), randomBytes(2, 5000)
	put(t, s, "topics/a/0/one.seg", first)
	put(t, s, "topics/a/0/one.seg", first) // its own bytes mean success
	_, err := s.Put(t.Context(), "topics/a/0/one.seg", cold.Bytes(other))
	wantCause(t, err, cold.Exists)
	_, err = s.Put(t.Context(), "topics/a/0/one.seg", cold.Bytes(first[:4999]))
	wantCause(t, err, cold.Exists)
	if !bytes.Equal(content(t, s, "topics/a/0/one.seg"), first) {
		t.Fatal("a refused writer has changed the object")
	}
}

// testReadInto reads into several pieces: each is told of once it is full, also when what follows is not there.
func testReadInto(t *testing.T, s *cold.Store, data []byte) {
	t.Helper()
	for _, missing := range []int{0, 10} {
		pieces := [][]byte{make([]byte, 1), make([]byte, 70_000), make([]byte, 19_999+missing)}
		var filled []int
		err := s.ReadInto(t.Context(), "ranges", pieces, 10_000, func(n int) {
			at := 10_000
			for _, p := range pieces[:n] {
				at += len(p)
			}
			if !bytes.Equal(pieces[n], data[at:at+len(pieces[n])]) {
				t.Errorf("piece %d is said to be full and is not", n)
			}
			filled = append(filled, n)
		})
		if missing > 0 {
			wantCause(t, err, cold.Corrupt)
		} else if err != nil {
			t.Error(err)
		}
		if want := []int{0, 1, 2}[:3-min(missing, 1)]; !slices.Equal(filled, want) {
			t.Errorf("filled %v, want %v", filled, want)
		}
	}
}

func testReadRanges(t *testing.T, s *cold.Store) {
	data := randomBytes(3, 100_000)
	put(t, s, "ranges", data)
	for _, r := range [][2]int{{0, 1}, {0, 100_000}, {99_999, 1}, {50_000, 10_000}, {100_000, 0}, {12, 0}} {
		p := make([]byte, r[1])
		if err := s.ReadAt(t.Context(), "ranges", p, int64(r[0])); err != nil || !bytes.Equal(p, data[r[0]:r[0]+r[1]]) {
			t.Errorf("range %v: %v", r, err)
		}
	}
	for _, r := range [][2]int{{99_999, 2}, {100_000, 1}, {200_000, 5}} {
		wantCause(t, s.ReadAt(t.Context(), "ranges", make([]byte, r[1]), int64(r[0])), cold.Corrupt)
	}
	testReadInto(t, s, data)
	wantCause(t, s.ReadAt(t.Context(), "nowhere", make([]byte, 1), 0), cold.NotFound)
	_, err := s.Stat(t.Context(), "nowhere")
	wantCause(t, err, cold.NotFound)
	all, err := io.ReadAll(io.NewSectionReader(s.At(t.Context(), "ranges", 100_000), 0, 1<<40))
	if err != nil || !bytes.Equal(all, data) {
		t.Errorf("read through an io.ReaderAt: %d bytes, %v", len(all), err)
	}
}

func testListPages(t *testing.T, s *cold.Store) {
	var want []string
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for w := range 8 {
		for i := range 128 / slower {
			want = append(want, fmt.Sprintf("list/%d-%c/%04d", i%7, 'a'+w, i))
		}
		mine := want[len(want)-128/slower:]
		wg.Go(func() {
			for _, key := range mine {
				_, err := s.Put(t.Context(), key, cold.Bytes([]byte(key)))
				errs[w] = errors.Join(errs[w], err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	if got := list(t, s, "list/", 2/slower); !slices.Equal(got, want) {
		t.Errorf("%d keys listed, want %d in order", len(got), len(want))
	}
	part := slices.DeleteFunc(slices.Clone(want), func(k string) bool { return !strings.HasPrefix(k, "list/3-c/00") })
	if got := list(t, s, "list/3-c/00", 1); !slices.Equal(got, part) {
		t.Errorf("%v listed, want %v", got, part)
	}
	if got := list(t, s, "list/none", 1); len(got) != 0 {
		t.Errorf("%v listed of nothing", got)
	}
}

// list reads all pages, at least so many.
func list(t *testing.T, s *cold.Store, prefix string, pages int) (keys []string) {
	t.Helper()
	var next []byte
	for n := 1; ; n++ {
		page, err := s.List(t.Context(), prefix, next)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range page.Objects {
			keys = append(keys, o.Key)
		}
		if next = page.Next; len(next) == 0 {
			if n < pages {
				t.Errorf("%d pages, want at least %d", n, pages)
			}
			return keys
		}
	}
}

func testDeleteTwice(t *testing.T, s *cold.Store) {
	put(t, s, "gone", []byte("soon"))
	for range 2 {
		if err := s.Delete(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.Stat(t.Context(), "gone")
	wantCause(t, err, cold.NotFound)
	put(t, s, "gone", []byte("again"))
}

func testRace(t *testing.T, s *cold.Store) {
	const writers = 16
	var wg sync.WaitGroup
	var mu sync.Mutex
	var winners []int
	bodies := make([][]byte, writers)
	for i := range writers {
		bodies[i] = randomBytes(uint64(100+i), 2000)
		wg.Go(func() {
			_, err := s.Put(t.Context(), "race", cold.Bytes(bodies[i]))
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				winners = append(winners, i)
			} else if !errors.Is(err, cold.Exists) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(winners) != 1 || !bytes.Equal(content(t, s, "race"), bodies[winners[0]]) {
		t.Fatalf("winners %v", winners)
	}
}

func testEmpty(t *testing.T, s *cold.Store) {
	put(t, s, "empty", nil)
	put(t, s, "empty", nil)
	if got := content(t, s, "empty"); len(got) != 0 {
		t.Fatalf("%d bytes", len(got))
	}
}

// testLarge writes what gocloud's drivers would cut into parts.
func testLarge(t *testing.T, s *cold.Store) {
	data := bytes.Repeat(randomBytes(4, 100_000), 90/slower)
	data = append(data, "the end"...)
	put(t, s, "large", data)
	put(t, s, "large", data)
	if !bytes.Equal(content(t, s, "large"), data) {
		t.Fatal("other bytes came back")
	}
	data[500_000]++
	_, err := s.Put(t.Context(), "large", cold.Bytes(data))
	wantCause(t, err, cold.Exists)
}

func testReplace(t *testing.T, s *cold.Store) {
	for _, text := range []string{"one", "another", ""} {
		if err := s.Replace(t.Context(), "cluster", []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := content(t, s, "cluster"); string(got) != text {
			t.Fatalf("%q after %q was written", got, text)
		}
	}
}

// testBadBody has the file that is written change under its writer: nothing may appear.
func testBadBody(t *testing.T, s *cold.Store) {
	for name, size := range map[string]int{"small": 3000, "large": 1 << 20} {
		body := cold.Bytes(make([]byte, size))
		body.CRC++
		_, err := s.Put(t.Context(), "bad/"+name, body)
		wantCause(t, err, cold.Corrupt)
		body = cold.Bytes(make([]byte, size))
		body.Size++
		_, err = s.Put(t.Context(), "bad/"+name, body)
		wantCause(t, err, cold.Corrupt)
	}
	if got := list(t, s, "bad/", 1); len(got) != 0 {
		t.Fatalf("%v appeared", got)
	}
}

func testPrefix(t *testing.T, s, whole *cold.Store) {
	put(t, s, "prefixed", []byte("x"))
	if strings.HasPrefix(whole.String(), "mem:") {
		return // each is a bucket of its own
	}
	if got := list(t, whole, "some/where/prefixed", 1); !slices.Equal(got, []string{"some/where/prefixed"}) {
		t.Fatalf("%v listed", got)
	}
}
