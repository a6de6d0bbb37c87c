package handles

import (
	"errors"
	"fmt"
	"testing"

	"github.com/danubemq/danube/storage/disk"
)

// open acquires and releases a file.
func open(t *testing.T, c *Cache, h *Handle, wrote bool) {
	t.Helper()
	if _, err := c.Acquire(h, disk.Create); err != nil {
		t.Fatal(err)
	}
	c.Release(h, wrote)
}

func newHandles(n int) []*Handle {
	list := make([]*Handle, n)
	for i := range list {
		list[i] = &Handle{Name: fmt.Sprintf("/%d", i)}
	}
	return list
}

// TestOldestFileAtRestCloses: of those not in use, and a clean one before one that has to be synced for it.
func TestOldestFileAtRestCloses(t *testing.T) {
	fsys := disk.NewMemory(1)
	syncs := 0
	fsys.Fail(func(op, _ string) error {
		if op == "sync" {
			syncs++
		}
		return nil
	})
	c := New(fsys, 3)
	h := newHandles(6)
	if _, err := c.Acquire(h[0], disk.Create); err != nil {
		t.Fatal(err)
	}
	open(t, c, h[1], true)
	open(t, c, h[2], false)
	open(t, c, h[3], false)
	if h[0].file == nil || h[1].file == nil || h[2].file != nil || c.Count() != 3 || syncs != 0 {
		t.Errorf("%d files are open, %d syncs", c.Count(), syncs)
	}
	open(t, c, h[3], true)
	open(t, c, h[4], false)
	if h[0].file == nil || h[1].file != nil || c.Count() != 3 || syncs != 1 {
		t.Errorf("%d files are open, %d syncs", c.Count(), syncs)
	}
	for _, x := range h[1:3] { // all of them are in use: the budget is overdrawn
		if _, err := c.Acquire(x, disk.Write); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Acquire(h[5], disk.Create); err != nil || c.Count() != 4 {
		t.Errorf("%d files are open, %v", c.Count(), err)
	}
}

func TestFailedSyncIsToldWhenTheFileCloses(t *testing.T) {
	fsys := disk.NewMemory(1)
	c := New(fsys, 1)
	h := newHandles(2)
	open(t, c, h[0], true)
	gone := errors.New("the disk is gone")
	fsys.Fail(func(op, _ string) error {
		if op == "sync" {
			return gone
		}
		return nil
	})
	if _, err := c.Acquire(h[1], disk.Create); !errors.Is(err, gone) {
		t.Errorf("opened another: %v", err)
	}
}

func TestDroppedFileClosesWithItsLastUser(t *testing.T) {
	c := New(disk.NewMemory(1), 4)
	h := newHandles(1)[0]
	if _, err := c.Acquire(h, disk.Create); err != nil {
		t.Fatal(err)
	}
	if err := c.Drop(h); err != nil || c.Count() != 1 {
		t.Errorf("%d files are open, %v", c.Count(), err)
	}
	if err := c.Sync(h); err != nil {
		t.Error(err)
	}
	c.Release(h, true)
	if c.Count() != 0 {
		t.Error("it is still open")
	}
}

func TestRingKeepsTheOrderOfUse(t *testing.T) {
	var ring Link
	ring.Init()
	list := make([]Link, 3)
	for i := range list {
		list[i].Owner = i
		ring.Push(&list[i])
	}
	ring.Push(&list[0])
	list[2].Unlink()
	list[2].Unlink()
	var got []int
	for x := ring.Oldest(); x != nil; x = ring.After(x) {
		got = append(got, x.Owner.(int))
	}
	if fmt.Sprint(got) != "[1 0]" {
		t.Errorf("the order is %v", got)
	}
}
