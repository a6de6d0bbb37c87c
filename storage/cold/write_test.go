package cold

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"sync"
	"testing"
)

// What the store says of the bytes is held against what was written, and what it does not say is read (R11).
func TestWriteIsVerified(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 100_000)
	right := md5.Sum(data)
	for name, test := range map[string]struct {
		keep    func([]byte) []byte // what the store makes of the bytes
		says    []byte              // what it says is their MD5
		trusted bool                // the self-test found digests to be right
		want    Cause               // 0: success
		after   bool                // trusted afterwards
	}{
		"right digest":                 {says: right[:], trusted: true, after: true},
		"no digest":                    {},
		"no digest, trusted":           {trusted: true, after: true},
		"digest of another kind":       {says: make([]byte, 16), trusted: true, after: true}, // what lists say is still right
		"right digest, never trusted":  {says: right[:]},
		"cut off":                      {keep: func(b []byte) []byte { return b[:len(b)-1] }, want: Corrupt, trusted: true, after: true},
		"one bit, digest says so":      {keep: flip, says: make([]byte, 16), want: Corrupt, trusted: true, after: true},
		"one bit, nothing is said":     {keep: flip, want: Corrupt},
		"longer":                       {keep: func(b []byte) []byte { return append(b, 0) }, want: Corrupt},
		"another digest, and no trust": {keep: flip, says: make([]byte, 16), want: Corrupt},
	} {
		t.Run(name, func(t *testing.T) {
			f := &scripted{}
			s := f.open(t, nil)
			s.digests.Store(test.trusted)
			f.upload = func(ctx context.Context, key string, b []byte) ([]byte, error) {
				if test.keep != nil {
					b = test.keep(bytes.Clone(b))
				}
				_, err := f.store(ctx, key, b, true)
				return test.says, err
			}
			_, err := s.Put(t.Context(), "k", Bytes(data))
			if test.want == 0 && err != nil || test.want != 0 && !errors.Is(err, test.want) {
				t.Fatalf("got %v, want %v", err, test.want)
			}
			if s.digests.Load() != test.after {
				t.Errorf("digests are trusted: %t", !test.after)
			}
		})
	}
}

func flip(b []byte) []byte {
	b[len(b)/2] ^= 1
	return b
}

// A bad body is found before anything is sent.
func TestBadBodyIsNotSent(t *testing.T) {
	f := &scripted{}
	s := f.open(t, nil)
	body := Bytes([]byte("bytes of a segment"))
	body.CRC++
	_, err := s.Put(t.Context(), "k", body)
	wantCause(t, err, Corrupt)
	body = Bytes([]byte("bytes of a segment"))
	body.Size++
	_, err = s.Put(t.Context(), "k", body)
	wantCause(t, err, Corrupt)
	if f.uploads != 0 {
		t.Errorf("%d uploads", f.uploads)
	}
}

// Before the self-test nothing that a store says of bytes is believed.
func TestSelfTestLearns(t *testing.T) {
	f := &scripted{}
	s := f.open(t, nil)
	if s.digests.Load() {
		t.Fatal("digests are trusted unseen")
	}
	if err := s.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !s.digests.Load() || s.unconditional.Load() {
		t.Error("the self-test has not seen digests and conditions")
	}
	if page, err := s.List(t.Context(), "", nil); err != nil || len(page.Objects) != 0 {
		t.Errorf("the self-test has left %v, %v", page.Objects, err)
	}
}

// Stores that ignore conditions, or apply them to writers one behind the other but not at once.
func TestSelfTestNamesStoresWithoutConditions(t *testing.T) {
	t.Run("ignored", func(t *testing.T) {
		f := &scripted{}
		s := f.open(t, nil)
		f.upload = func(ctx context.Context, key string, data []byte) ([]byte, error) {
			return f.store(ctx, key, data, false)
		}
		if err := s.Check(t.Context()); !errors.Is(err, ErrConditions) {
			t.Fatal(err)
		}
	})
	t.Run("not at once", func(t *testing.T) {
		f := &scripted{}
		s := f.open(t, nil)
		var together sync.WaitGroup
		together.Add(4)
		f.upload = func(ctx context.Context, key string, data []byte) ([]byte, error) {
			there, err := f.bucket.Blob.Exists(ctx, key)
			if err != nil {
				return nil, err
			}
			if there {
				return nil, &answered{status: 412}
			}
			f.mu.Lock()
			n := f.uploads
			f.mu.Unlock()
			if n > 3 { // the race: all have looked before one writes
				together.Done()
				together.Wait()
			}
			return f.store(ctx, key, data, false)
		}
		if err := s.Check(t.Context()); !errors.Is(err, ErrConditions) {
			t.Fatal(err)
		}
	})
}
