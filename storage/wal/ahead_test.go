package wal

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/danubemq/danube/storage/disk"
)

// slowSync is a disk whose sync of segment files waits for the test.
type slowSync struct {
	fsys   *disk.Memory
	began  chan struct{} // a sync has begun
	resume chan struct{} // it may end
	ahead  chan struct{} // something was written ahead
	mu     sync.Mutex
	on     bool
	full   bool // writes to segment files find no space
}

func newSlowSync(fsys *disk.Memory) *slowSync {
	d := &slowSync{fsys: fsys, began: make(chan struct{}, 8), resume: make(chan struct{}), ahead: make(chan struct{}, 64)}
	fsys.Fail(func(op, name string) error {
		d.mu.Lock()
		on, full := d.on, d.full
		d.mu.Unlock()
		if full && op == "write" && strings.HasSuffix(name, ".seg") {
			return syscall.ENOSPC
		}
		if on && op == "sync" && strings.HasSuffix(name, ".seg") {
			d.began <- struct{}{}
			<-d.resume
		}
		return nil
	})
	return d
}

func (d *slowSync) set(on bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.on = on
}

func (d *slowSync) setFull(full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.full = full
}

// await waits for a signal of the disk, for ten seconds at most.
func await(t *testing.T, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(10 * time.Second):
		t.Fatal("the disk was not asked for what was expected of it")
	}
}

// aheadLog opens a log whose rounds all go to their file alone.
func aheadLog(t *testing.T, d *slowSync, segment int64) (*Tier, *Log, *sender) {
	t.Helper()
	tier := openTier(t, d.fsys, func(c *Config) {
		c.SegmentBytes, c.MemoryBytes = segment, 4<<20
		c.At = func(step string) {
			if step == "commit.ahead" {
				d.ahead <- struct{}{}
			}
		}
	})
	l, _ := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t"})
	if err := l.Begin(1, 0, 1<<40); err != nil {
		t.Fatal(err)
	}
	s := &sender{producer: 7, session: 1}
	if _, _, err := l.OpenSession(7, 1, 0); err != nil {
		t.Fatal(err)
	}
	return tier, l, s
}

const aheadSize = 40 << 10 // above the bound between journal and file of a small journal

func appendOne(t *testing.T, l *Log, s *sender) Pending {
	t.Helper()
	p, err := l.Append(s.batch(t, 1, aheadSize))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// reopenAfter opens what a crash left and reads it back.
func reopenAfter(t *testing.T, fsys *disk.Memory, acked int) []string {
	t.Helper()
	tier := openTier(t, fsys, nil)
	l, found := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t", Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}})
	if found.Class == Damaged || int(found.End) < acked {
		t.Fatalf("found %+v, %d messages were acknowledged", found, acked)
	}
	got := readAll(t, l, 0)
	for i, m := range got {
		if m != string(payload(7, uint64(i), aheadSize)) {
			t.Fatalf("message %d is not what was sent", i)
		}
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
	return got
}

// While one round's file is synced the next messages are written behind it;
// what was acknowledged is there after a loss of power, whatever of the rest is.
func TestMessagesWrittenAheadSurviveOnlyOnceAcknowledged(t *testing.T) {
	for seed := range uint64(20) {
		d := newSlowSync(disk.NewMemory(seed))
		tier, l, s := aheadLog(t, d, 1<<20)
		if err := appendOne(t, l, s).Wait(); err != nil {
			t.Fatal(err)
		}
		d.set(true)
		first := appendOne(t, l, s)
		await(t, d.began)
		second := appendOne(t, l, s)
		await(t, d.ahead)
		if done, err := second.Done(); done {
			t.Fatalf("what was written ahead counts as durable: %v", err)
		}
		d.set(false)
		lost := d.fsys.PowerLoss() // in the middle of the sync
		d.resume <- struct{}{}
		if err := errors.Join(first.Wait(), second.Wait()); err == nil {
			t.Fatal("a round went on after the power was gone")
		}
		if err := tier.Close(); err == nil {
			t.Fatal("a poisoned tier closed in order")
		}
		reopenAfter(t, lost, 1)
	}
}

func TestMessagesWrittenAheadAreAcknowledgedByTheirOwnSync(t *testing.T) {
	for name, segment := range map[string]int64{"one file": 1 << 20, "the next round rolls": 100 << 10} {
		t.Run(name, func(t *testing.T) {
			d := newSlowSync(disk.NewMemory(3))
			tier, l, s := aheadLog(t, d, segment)
			d.set(true)
			pending := []Pending{appendOne(t, l, s)}
			await(t, d.began)
			pending = append(pending, appendOne(t, l, s))
			if name == "one file" {
				await(t, d.ahead)
			}
			pending = append(pending, appendOne(t, l, s))
			d.set(false)
			d.resume <- struct{}{}
			for i, p := range pending {
				if err := p.Wait(); err != nil || p.Base != uint64(i) {
					t.Fatalf("message %d at %d: %v", i, p.Base, err)
				}
			}
			lost := d.fsys.PowerLoss()
			if err := tier.Close(); err == nil {
				t.Fatal("a tier without power closed in order")
			}
			if got := reopenAfter(t, lost, len(pending)); len(got) != len(pending) {
				t.Fatalf("%d messages, want %d", len(got), len(pending))
			}
		})
	}
}

// No space for what is written ahead is no failure; the round whose turn it is
// answers for it, and what went before stays.
func TestNoSpaceForWhatIsWrittenAhead(t *testing.T) {
	d := newSlowSync(disk.NewMemory(5))
	tier, l, s := aheadLog(t, d, 1<<20)
	d.set(true)
	first := appendOne(t, l, s)
	await(t, d.began)
	second := appendOne(t, l, s)
	await(t, d.ahead)
	d.setFull(true)
	third := appendOne(t, l, s)
	d.set(false)
	d.resume <- struct{}{}
	if err := first.Wait(); err != nil {
		t.Fatalf("what was written before the space ended: %v", err)
	}
	if err := errors.Join(second.Wait(), third.Wait()); !errors.Is(err, ErrFull) {
		t.Fatalf("behind the end of space: %v", err)
	}
	d.setFull(false)
	lost := d.fsys.PowerLoss()
	if err := tier.Close(); err == nil {
		t.Fatal("a tier without power closed in order")
	}
	reopenAfter(t, lost, 1)
}

// Several large parts in one round: each waits for the sync of its own file (R1).
func TestSeveralLargePartsWaitForTheirSyncs(t *testing.T) {
	d := newSlowSync(disk.NewMemory(9))
	tier, first, s := aheadLog(t, d, 1<<20)
	others := make([]*Log, 2)
	senders := make([]*sender, 2)
	for i := range others {
		others[i], _ = openLog(t, tier, Opening{ID: topic(2 + i), Topic: "/default/u"})
		if err := others[i].Begin(1, 0, 1<<40); err != nil {
			t.Fatal(err)
		}
		senders[i] = &sender{producer: 7, session: 1}
		if _, _, err := others[i].OpenSession(7, 1, 0); err != nil {
			t.Fatal(err)
		}
	}
	d.set(true)
	pending := []Pending{appendOne(t, first, s)}
	await(t, d.began)
	for i, l := range others { // while the first round syncs, both come into the next
		pending = append(pending, appendOne(t, l, senders[i]))
	}
	d.resume <- struct{}{}
	await(t, d.began)
	await(t, d.began)
	for i, p := range pending[1:] {
		if done, err := p.Done(); done {
			t.Errorf("large part %d is acknowledged before its sync: %v", i, err)
		}
	}
	d.set(false)
	d.resume <- struct{}{}
	d.resume <- struct{}{}
	for i, p := range pending {
		if err := p.Wait(); err != nil {
			t.Errorf("part %d: %v", i, err)
		}
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}
