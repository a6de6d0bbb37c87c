package memory

import (
	"bytes"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
)

// TestScratchGoesBack: small batches share a chunk, a large one has its own, and with the last view all of it is free.
func TestScratchGoesBack(t *testing.T) {
	pool := NewPool(1 << 20)
	asked := 0
	s := pool.Scratch(func() { asked++ })
	small, large := batch.Batch(bytes.Repeat([]byte{1}, 100)), batch.Batch(bytes.Repeat([]byte{2}, 10<<10))
	var views []View
	for range 40 {
		views = append(views, s.Hold(small))
	}
	if used := pool.Used(); used != 4<<10 {
		t.Errorf("40 batches of 100 bytes take %d bytes", used)
	}
	views = append(views, s.Hold(large), s.Hold(small))
	if asked != 2 {
		t.Errorf("room was asked for %d times, for two chunks", asked)
	}
	s.Release()
	for i, v := range views {
		want := small
		if len(v.Data) > len(small) {
			want = large
		}
		if !bytes.Equal(v.Data, want) {
			t.Fatalf("view %d is overwritten", i)
		}
		if v.Data[0] = 3; cap(v.Data) != len(v.Data) {
			t.Fatalf("view %d reaches into the next", i)
		}
	}
	for i, v := range views {
		v.Retain()
		v.Release()
		if v.Data[0] != 3 {
			t.Fatalf("view %d was given back early", i)
		}
	}
	for _, v := range views {
		v.Release()
	}
	if used := pool.Used(); used != 0 {
		t.Errorf("%d bytes stay", used)
	}
}
