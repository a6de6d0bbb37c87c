package integration

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestEveryDamageChangesTheFile(t *testing.T) {
	// No byte is zero, so that zeros show.
	whole := bytes.Repeat([]byte("danube"), 100)
	for _, d := range damages() {
		t.Run(d.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			for seed := range uint64(50) {
				if err := os.WriteFile(path, whole, 0o644); err != nil {
					t.Fatal(err)
				}
				if err := d.hurt(path, rand.New(rand.NewPCG(seed, 0))); err != nil {
					t.Fatal(err)
				}
				got, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if bytes.Equal(got, whole) {
					t.Fatalf("seed %d: the file is as it was", seed)
				}
			}
		})
	}
}

func TestFlipBitFlipsThatBit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte{0, 0, 0}, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := flipBit(path, 11); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, []byte{0, 8, 0}) {
		t.Fatalf("flipped bit 11 of zeros: %v %v", got, err)
	}
	if err := zeroFill(path, 1, 1); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, []byte{0, 0, 0}) {
		t.Fatalf("zeroed byte 1: %v %v", got, err)
	}
}

func TestFilesUnderFindsWhatIsKept(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	for name, size := range map[string]int{"a": 1, "big": 1000} {
		if err := os.WriteFile(filepath.Join(from, name), make([]byte, size), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	copyTree(t, from, to)
	small := filesUnder(t, to, func(_ string, size int64) bool { return size < 100 })
	if !slices.Equal(small, []string{"a"}) {
		t.Fatalf("small files: %q", small)
	}
}
