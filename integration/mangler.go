package integration

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

// damage is one way to hurt a file that nobody has open.
type damage struct {
	name string
	hurt func(path string, rnd *rand.Rand) error
}

// damages are the ways that files were seen to be hurt by crashes and by disks. Each changes the file, unless it is
// empty already.
func damages() []damage {
	return []damage{
		{"emptied", func(path string, _ *rand.Rand) error { return os.Truncate(path, 0) }},
		{"three random bytes", func(path string, rnd *rand.Rand) error {
			return os.WriteFile(path, randomBytes(rnd, 3), 0o644)
		}},
		{"truncated", truncateSomewhere},
		{"zero-filled tail", zeroTail},
		{"garbage appended", func(path string, rnd *rand.Rand) error { return appendTo(path, randomBytes(rnd, 1+rnd.IntN(64))) }},
		{"one bit flipped", flipSomeBit},
	}
}

func randomBytes(rnd *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	return b
}

func truncateSomewhere(path string, rnd *rand.Rand) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 {
		return err
	}
	return os.Truncate(path, rnd.Int64N(info.Size()))
}

// zeroTail leaves the length and fills the file with zeros from somewhere on, as a file system does that kept the
// length and lost the data.
func zeroTail(path string, rnd *rand.Rand) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 {
		return err
	}
	from := rnd.Int64N(info.Size())
	return zeroFill(path, from, info.Size()-from)
}

func zeroFill(path string, from, n int64) error {
	return patch(path, from, make([]byte, n))
}

func appendTo(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return fmt.Errorf("open for damage: %w", err)
	}
	_, err = f.Write(b)
	return closed(f, err)
}

func flipSomeBit(path string, rnd *rand.Rand) error {
	info, err := os.Stat(path)
	if err != nil || info.Size() == 0 {
		return err
	}
	return flipBit(path, rnd.Int64N(info.Size()*8))
}

// flipBit flips bit number bit of the file, counted from the lowest of its first byte.
func flipBit(path string, bit int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("open for damage: %w", err)
	}
	var b [1]byte
	if _, err = f.ReadAt(b[:], bit/8); err == nil {
		b[0] ^= 1 << (bit % 8)
		_, err = f.WriteAt(b[:], bit/8)
	}
	return closed(f, err)
}

// patch overwrites bytes of the file in place.
func patch(path string, at int64, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open for damage: %w", err)
	}
	_, err = f.WriteAt(b, at)
	return closed(f, err)
}

func closed(f *os.File, err error) error {
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return fmt.Errorf("damage %s: %w", f.Name(), err)
	}
	return nil
}

// filesUnder lists the regular files below dir, by their path from it, that keep says yes to.
func filesUnder(t testing.TB, dir string, keep func(path string, size int64) bool) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err == nil && keep(rel, info.Size()) {
			all = append(all, rel)
		}
		return err
	})
	if err != nil {
		t.Fatalf("list files: %v", err)
	}
	return all
}

// copyTree copies a stopped broker's files, so that each kind of damage starts from the same state.
func copyTree(t testing.TB, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatalf("copy %s: %v", from, err)
	}
}
