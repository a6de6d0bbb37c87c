package space

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/danubemq/danube/storage/disk"
)

// TestGuardLooksNowAndThen: at the disk, not at each question; and what a write has found counts at once.
func TestGuardLooksNowAndThen(t *testing.T) {
	m := disk.NewMemory(1)
	if err := disk.MkdirAll(m, "/d"); err != nil {
		t.Fatal(err)
	}
	m.Limit(1 << 20)
	now := time.UnixMilli(1_700_000_000_000)
	g := New(m, "/d", func() time.Time { return now }, slog.New(slog.DiscardHandler))
	if g.Check() || g.Full() || g.Keep() != 1<<16 {
		t.Fatalf("full %v, %d bytes stay free", g.Full(), g.Keep())
	}
	f, err := m.Open("/d/f", disk.Exclusive)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(make([]byte, 1<<20-1<<15), 0); err != nil {
		t.Fatal(err)
	}
	if g.Check() {
		t.Error("it looked again at once")
	}
	if now = now.Add(every); !g.Check() || !g.Full() {
		t.Error("less is free than is to stay free")
	}
	if err := errors.Join(f.Truncate(0), f.Close()); err != nil {
		t.Fatal(err)
	}
	if now = now.Add(every); g.Check() {
		t.Error("space is back")
	}
	if g.RanOut(errors.New("no space")); !g.Check() {
		t.Error("a write has found none")
	}
	if now = now.Add(every); g.Check() {
		t.Error("space is back again")
	}
}
