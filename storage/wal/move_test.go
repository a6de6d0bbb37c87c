package wal

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
)

// TestPlannedMove hands a partition over: history, producers, next epoch; then
// the target fails, and must know the same.
func TestPlannedMove(t *testing.T) {
	list, sessions, extents, send := handedOver(t)
	for _, how := range []string{"none", "clean", "kill", "power"} {
		t.Run(how, func(t *testing.T) {
			fsys := disk.NewMemory(3)
			tier := openTarget(t, fsys)
			c := openCopy(t, tier)
			wantSpans(t, c.Have())
			fetch(t, c, list)
			wantSpans(t, c.Have(), Span{Epoch: 1, Start: 0, End: 20}, Span{Epoch: 2, Start: 20, End: 40})
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			l, found := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t", Extents: extents, Floor: 40})
			if found.End != 40 || found.Class != Clean {
				t.Fatalf("copied: %+v", found)
			}
			for range 2 {
				if err := l.ImportSessions(sessions); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.Begin(3, 40, 1<<40); err != nil {
				t.Fatal(err)
			}
			send := send
			send.next--
			again := send.batch(t, 1, 2500)
			next := send.batch(t, 1, 10)
			check := func(l *Log) {
				t.Helper()
				if p, err := l.Append(again); err != nil || !p.Duplicate || p.Base != 39 {
					t.Fatalf("sent again: %+v, %v", p, err)
				}
				if got := bytes.Join(pages(t, l, 0), nil); !bytes.HasPrefix(got, bytes.Join(list, nil)) {
					t.Fatal("what was copied reads otherwise")
				}
			}
			check(l)
			if p, err := l.Append(next); err != nil || p.Wait() != nil || p.Base != 40 {
				t.Fatalf("the next: %+v, %v", p, err)
			}
			switch how {
			case "none":
				check(l)
				if err := tier.Close(); err != nil {
					t.Fatal(err)
				}
				return
			case "clean":
				if err := tier.Close(); err != nil {
					t.Fatal(err)
				}
			case "kill":
				fsys = fsys.Kill()
			case "power":
				fsys = fsys.PowerLoss()
			}
			tier.Close()
			tier = openTarget(t, fsys)
			l, found = openLog(t, tier, Opening{ID: topic(1), Extents: append(slices.Clone(extents), Extent{Epoch: 3, Start: 40, End: openEnd}), Floor: 41})
			if found.End != 41 || found.Class == Damaged {
				t.Fatalf("after %s: %+v", how, found)
			}
			if err := l.Begin(4, 41, 1<<40); err != nil {
				t.Fatal(err)
			}
			check(l)
			if p, err := l.Append(next); err != nil || !p.Duplicate || p.Base != 40 {
				t.Fatalf("sent again after %s: %+v, %v", how, p, err)
			}
			if err := tier.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestProducersMoveWithoutHistory: the tail lies elsewhere, and still a message
// sent again is found, also after a kill, and time does not run back.
func TestProducersMoveWithoutHistory(t *testing.T) {
	_, sessions, extents, send := handedOver(t)
	for i := range extents {
		extents[i].Away = true
	}
	fsys := disk.NewMemory(3)
	early := clock{ms: 1_000}
	open := func(fsys disk.FS, epoch uint64, x ...Extent) (*Tier, *Log) {
		tier := openTier(t, fsys, func(c *Config) { c.Store, c.Now = [16]byte{2}, early.now })
		l, found := openLog(t, tier, Opening{ID: topic(1), Extents: x, Start: 40, Floor: 40})
		if found.End != 40 || found.Class != Clean {
			t.Fatalf("%+v", found)
		}
		if epoch == 3 {
			if err := l.ImportSessions(sessions); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Begin(epoch, 40, 1<<40); err != nil {
			t.Fatal(err)
		}
		return tier, l
	}
	tier, _ := open(fsys, 3, extents...)
	fsys = fsys.PowerLoss()
	tier.Close()
	tier, l := open(fsys, 4, append(extents, Extent{Epoch: 3, Start: 40, End: openEnd})...)
	send.next--
	if p, err := l.Append(send.batch(t, 1, 2500)); err != nil || !p.Duplicate || p.Base != 39 {
		t.Fatalf("sent again: %+v, %v", p, err)
	}
	if p, err := l.Append(send.batch(t, 1, 10)); err != nil || p.AppendTime < 1_700_000_000_000 {
		t.Fatalf("append time ran back: %+v, %v", p, err)
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestTheEndMovesWhileALogIsGotReady: the owner goes on while the target opens
// its log; what the target knows then is what it would know had it opened it later.
func TestTheEndMovesWhileALogIsGotReady(t *testing.T) {
	_, sessions, extents, send := handedOver(t)
	early := slices.Clone(extents)
	for i := range extents {
		extents[i].Away, early[i].Away = true, true
	}
	last := len(early) - 1
	early[last].End = 30
	here := slices.Clone(extents)
	here[last].Away = false
	tier := openTarget(t, disk.NewMemory(3))
	l, found := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t", Extents: early, Floor: 30})
	if found.End != 30 || found.Class != Clean {
		t.Fatalf("early: %+v", found)
	}
	if err := l.Anchor(); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"back":                     l.Extend(early, 29),
		"to what nobody has":       l.Extend(here, 40),
		"beyond what another has":  l.Extend(extents, 41),
		"producers of another end": l.ImportSessions(sessions),
	} {
		if err == nil {
			t.Errorf("%s: not refused", name)
		}
	}
	if err := l.Extend(extents, 40); err != nil {
		t.Fatal(err)
	}
	if err := l.ImportSessions(sessions); err != nil {
		t.Fatal(err)
	}
	if err := l.Begin(3, 40, 1<<40); err != nil {
		t.Fatal(err)
	}
	if err := l.Extend(extents, 40); err == nil {
		t.Error("extended although it is open for writing")
	}
	for _, at := range []uint64{0, 29, 30, 39} {
		r := l.Reader(at)
		if _, err := r.Next(1 << 20); !isElsewhere(err, at) {
			t.Errorf("offset %d: %v", at, err)
		}
		r.Close()
	}
	send.next--
	if p, err := l.Append(send.batch(t, 1, 2500)); err != nil || !p.Duplicate || p.Base != 39 {
		t.Fatalf("sent again: %+v, %v", p, err)
	}
	if p, err := l.Append(send.batch(t, 1, 10)); err != nil || p.Wait() != nil || p.Base != 40 {
		t.Fatalf("the next: %+v, %v", p, err)
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

func isElsewhere(err error, at uint64) bool {
	e, ok := errors.AsType[*Elsewhere](err)
	return ok && e.From == at
}

// TestCopyGoesOnFromTheProducersBefore: after a loss nobody hands a table over;
// what a copied tail adds must not hide what the store knew already.
func TestCopyGoesOnFromTheProducersBefore(t *testing.T) {
	list, _, _, _ := handedOver(t)
	tier := openTarget(t, disk.NewMemory(3))
	c := openCopy(t, tier)
	fetch(t, c, list)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	other := sender{producer: 9, session: 1}
	b := other.batch(t, 1, 100)
	b.Stamp(batch.Stamp{Base: 40, Epoch: 3, AppendTime: 1_700_000_000_000})
	c = openCopy(t, tier)
	fetch(t, c, [][]byte{b})
	l, _ := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: 20}, {Epoch: 2, Start: 20, End: 40}, {Epoch: 3, Start: 40, End: 41}}, Floor: 41})
	if err := l.Begin(4, 41, 1<<40); err != nil {
		t.Fatal(err)
	}
	for _, producer := range []uint64{5, 9} {
		if _, known, err := l.OpenSession(producer, 1, 0); err != nil || !known {
			t.Fatalf("producer %d: known %v, %v", producer, known, err)
		}
	}
	if err := errors.Join(c.Close(), tier.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestSessionsOfAnotherPlaceAreRefused(t *testing.T) {
	_, sessions, extents, _ := handedOver(t)
	tier := openTarget(t, disk.NewMemory(3))
	l, _ := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: 20, Away: true}}})
	wantErr(t, l.ImportSessions(sessions), ErrSessions)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for i := range extents {
		extents[i].Away = true
	}
	l, _ = openLog(t, tier, Opening{ID: topic(1), Extents: extents})
	for at := range sessions {
		bad := bytes.Clone(sessions)
		bad[at] ^= 4
		wantErr(t, l.ImportSessions(bad), ErrSessions)
	}
	if err := l.Begin(3, 40, 100); err != nil {
		t.Fatal(err)
	}
	if err := l.ImportSessions(sessions); err == nil {
		t.Fatal("producers taken over by a log that is open for writing")
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}
