package wal

import (
	"bytes"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
)

// owned is a store, number 2, in which one producer has stored 8 messages in epoch 1.
func owned(t *testing.T, producer uint64) (*disk.Memory, sender) {
	t.Helper()
	fsys := disk.NewMemory(3)
	tier := openBeside(t, fsys)
	l, _ := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t"})
	if err := l.Begin(1, 0, 1<<40); err != nil {
		t.Fatal(err)
	}
	s := sender{producer: producer, session: 1}
	putAll(t, l, &s, 8, 300)
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
	return fsys, s
}

// putAll opens the session of s and stores n messages.
func putAll(t *testing.T, l *Log, s *sender, n, size int) {
	t.Helper()
	if _, _, err := l.OpenSession(s.producer, s.session, s.next); err != nil {
		t.Fatal(err)
	}
	for range n {
		if p, err := l.Append(s.batch(t, 1, size)); err != nil || p.Wait() != nil {
			t.Fatalf("append: %v", err)
		}
	}
}

// wantKnown sends the last message of s again and wants it to be known at an offset.
func wantKnown(t *testing.T, l *Log, s sender, size int, at uint64) {
	t.Helper()
	s.next--
	if p, err := l.Append(s.batch(t, 1, size)); err != nil || !p.Duplicate || p.Base != at {
		t.Fatalf("message %d of producer %d sent again: %+v, %v; want offset %d", s.next-1, s.producer, p, err, at)
	}
}

// elsewhere is the table of another store's log, at an offset, in which producers
// have stored one message each.
func elsewhere(t *testing.T, start uint64, producers ...*sender) (sessions []byte, end uint64) {
	t.Helper()
	tier := openBeside(t, disk.NewMemory(5))
	l, _ := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t"})
	if err := l.Begin(2, start, 1<<40); err != nil {
		t.Fatal(err)
	}
	for _, s := range producers {
		putAll(t, l, s, 1, 300)
	}
	end, err := l.Pause()
	if err == nil {
		sessions, err = l.Sessions()
	}
	if err = errors.Join(err, tier.Close()); err != nil {
		t.Fatal(err)
	}
	return sessions, end
}

// An owner that took over after a loss knows nothing of what the store before it
// has sealed. When that store is the owner again it knows both, and of what was
// stored twice the later place (R17).
func TestImportKeepsWhatOnlyThisStoreKnows(t *testing.T) {
	fsys, mine := owned(t, 5)
	twice, other := mine, sender{producer: 9, session: 1}
	twice.next -= 2 // its answers were lost, and the one that took over has stored the first of them again
	sessions, end := elsewhere(t, 1000, &twice, &other)
	extents := []Extent{{Epoch: 1, Start: 0, End: 8}, {Epoch: 2, Start: 1000, End: end, Away: true}}
	tier := openBeside(t, fsys)
	l, _ := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t", Extents: extents, Floor: end})
	for range 2 {
		if err := l.ImportSessions(sessions); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Begin(3, end, 1<<40); err != nil {
		t.Fatal(err)
	}
	check := func(l *Log) {
		t.Helper()
		wantKnown(t, l, mine, 300, 7)
		wantKnown(t, l, twice, 300, 1000)
		wantKnown(t, l, other, 300, 1001)
	}
	check(l)
	fsys = fsys.Kill()
	tier.Close()
	tier = openBeside(t, fsys)
	l, found := openLog(t, tier, Opening{ID: topic(1), Extents: append(extents, Extent{Epoch: 3, Start: end, End: openEnd}), Floor: end})
	if found.End != end || found.Class == Damaged {
		t.Fatalf("after the kill: %+v", found)
	}
	if err := l.Begin(4, end, 1<<40); err != nil {
		t.Fatal(err)
	}
	check(l)
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

// behindAGap is the table of a log whose second epoch began above its end and holds nothing.
func behindAGap(t *testing.T) (sessions []byte, end uint64, send sender) {
	t.Helper()
	r := newRig(t, func(c *Config) { c.Store = [16]byte{1} })
	r.mustPut(8, 300)
	r.reopen(Extent{Epoch: 1, Start: 0, End: openEnd})
	end = 1000
	if err := r.log.Begin(2, end, 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, err := r.log.Pause(); err != nil {
		t.Fatal(err)
	}
	sessions, err := r.log.Sessions()
	if err != nil {
		t.Fatal(err)
	}
	r.close()
	return sessions, end, r.send
}

// An epoch that ends without a message leaves the metadata; the table that was
// handed over with it stays known after a kill of the one that took it.
func TestImportOfAnEpochWithoutMessagesSurvivesAKill(t *testing.T) {
	_, sessions, _, send := handedOver(t)
	gap, gapEnd, gapSend := behindAGap(t)
	for name, test := range map[string]struct {
		sessions []byte
		end      uint64
		send     sender
		size     int
		last     uint64
		before   []Extent
	}{
		"behind messages": {sessions, 40, send, 2500, 39, []Extent{{Epoch: 1, Start: 0, End: 40, Away: true}, {Epoch: 2, Start: 40, End: openEnd, Away: true}}},
		"moved twice":     {sessions, 40, send, 2500, 39, []Extent{{Epoch: 1, Start: 0, End: 40, Away: true}, {Epoch: 3, Start: 40, End: openEnd, Away: true}}},
		"behind a gap":    {gap, gapEnd, gapSend, 300, 7, []Extent{{Epoch: 1, Start: 0, End: 8, Away: true}, {Epoch: 2, Start: gapEnd, End: openEnd, Away: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := disk.NewMemory(3)
			tier := openTarget(t, fsys)
			l, found := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t", Extents: test.before, Floor: test.end})
			if found.End != test.end {
				t.Fatalf("%+v", found)
			}
			if err := l.ImportSessions(test.sessions); err != nil {
				t.Fatal(err)
			}
			if err := l.Begin(4, test.end, 1<<40); err != nil {
				t.Fatal(err)
			}
			wantKnown(t, l, test.send, test.size, test.last)
			fsys = fsys.Kill()
			tier.Close()
			tier = openTarget(t, fsys)
			after := []Extent{test.before[0], {Epoch: 4, Start: test.end, End: openEnd}} // the empty epoch is gone
			l, found = openLog(t, tier, Opening{ID: topic(1), Extents: after, Floor: test.end})
			if found.End != test.end || found.Class == Damaged {
				t.Fatalf("after the kill: %+v", found)
			}
			if err := l.Begin(5, test.end, 1<<40); err != nil {
				t.Fatal(err)
			}
			wantKnown(t, l, test.send, test.size, test.last)
			if err := tier.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// A kill between the command that takes a tail back and the merge of its
// producers forgets none of them; while the tail is not taken back, or is lost,
// nothing of it is known: what is sent again is stored (R15).
func TestProducersOfATailSurviveAKillBeforeTheMerge(t *testing.T) {
	list, sessions, send := orphaned(t) // 8 messages of epoch 1
	for name, test := range map[string]struct {
		tail  []Extent
		known bool
	}{
		"taken back":     {[]Extent{{Epoch: 1, Start: 0, End: 8}}, true},
		"not taken back": {nil, false},
		"only a part":    {[]Extent{{Epoch: 1, Start: 0, End: 4}}, false},
	} {
		for _, staged := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, staged %v", name, staged), func(t *testing.T) {
				fsys := disk.NewMemory(3)
				tier := openBeside(t, fsys)
				l, _ := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t"})
				if err := l.Begin(2, 1000, 1<<40); err != nil {
					t.Fatal(err)
				}
				other := sender{producer: 9, session: 1}
				putAll(t, l, &other, 30, 2500) // several files, each with a table of its own
				c := openCopy(t, tier)
				fetch(t, c, list)
				if _, err := l.Pause(); err != nil {
					t.Fatal(err)
				}
				if staged {
					for range 2 {
						if err := l.StageSessions(sessions, 1, 8); err != nil {
							t.Fatal(err)
						}
					}
				}
				if err := c.Close(); err != nil {
					t.Fatal(err)
				}
				fsys = fsys.Kill()
				tier.Close()
				tier = openBeside(t, fsys)
				l, found := openLog(t, tier, Opening{ID: topic(1), Extents: append(test.tail, Extent{Epoch: 2, Start: 1000, End: openEnd}), Floor: 1030})
				if found.End != 1030 || found.Class == Damaged {
					t.Fatalf("after the kill: %+v", found)
				}
				if err := l.Begin(3, found.End, 1<<40); err != nil {
					t.Fatal(err)
				}
				wantKnown(t, l, other, 2500, 1029)
				if test.known {
					wantKnown(t, l, send, 300, 7)
				} else {
					again := send
					again.next--
					putAll(t, l, &again, 1, 300)
					wantKnown(t, l, again, 300, 1030)
				}
				if err := tier.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// What came back of an epoch with a hole in it is there in two files; where they
// end and begin the metadata say, and nothing is missing between them.
func TestPartsOfAnEpochAreNoDamage(t *testing.T) {
	list, _, send := orphaned(t)
	var parts [][]byte
	for data := batch.Batch(bytes.Join(list, nil)); len(data) > 0; data = data[data.Len():] {
		if at := data.Base(); at < 4 || at >= 6 {
			parts = append(parts, data[:data.Len()])
		}
	}
	tier := openBeside(t, disk.NewMemory(3))
	c := openCopy(t, tier)
	fetch(t, c, parts)
	wantSpans(t, c.Have(), Span{Epoch: 1, Start: 0, End: 4}, Span{Epoch: 1, Start: 6, End: 8})
	l, found := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: 4}, {Epoch: 1, Start: 6, End: 8}}, Floor: 8})
	if found.End != 8 || found.Class != Clean {
		t.Fatalf("opened: %+v", found)
	}
	if err := l.Begin(2, 8, 1<<40); err != nil {
		t.Fatal(err)
	}
	wantKnown(t, l, send, 300, 7)
	if err := errors.Join(c.Close(), tier.Close()); err != nil {
		t.Fatal(err)
	}
}

// A disk that fails while a table is taken over ends the tier, and nobody waits for ever.
func TestImportOnAFailingDiskFails(t *testing.T) {
	_, sessions, extents, _ := handedOver(t)
	for i := range extents {
		extents[i].Away = true
	}
	for name, take := range map[string]func(*Log) error{
		"import": func(l *Log) error { return l.ImportSessions(sessions) },
		"stage":  func(l *Log) error { return l.StageSessions(sessions, 2, 40) },
	} {
		fsys := disk.NewMemory(3)
		tier := openTarget(t, fsys)
		l, _ := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t", Extents: extents})
		fsys.Fail(func(op, _ string) error {
			if op == "rename" {
				return syscall.EIO
			}
			return nil
		})
		done := make(chan error, 1)
		go func() { done <- take(l) }()
		select {
		case err := <-done:
			if !errors.Is(err, syscall.EIO) || tier.Err() == nil {
				t.Errorf("%s: %v; the tier: %v", name, err, tier.Err())
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%s waits for ever", name)
		}
		fsys.Fail(nil)
		tier.Close()
	}
}

// What is staged behind a range that lies elsewhere is added to the table that was
// imported there, whichever of the two is written first, and both outlast a kill.
func TestStagedTableLeavesTheImportedOne(t *testing.T) {
	first, second := sender{producer: 5, session: 1}, sender{producer: 9, session: 1}
	imported, end := elsewhere(t, 1000, &first)
	told, _ := elsewhere(t, 1000, &second)
	away := Extent{Epoch: 2, Start: 1000, End: end, Away: true}
	for _, early := range []bool{true, false} {
		fsys := disk.NewMemory(3)
		tier := openBeside(t, fsys)
		l, _ := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t", Extents: []Extent{away}, Floor: end})
		stage := func() {
			t.Helper()
			for range 2 {
				if err := l.StageSessions(told, 2, end); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := l.ImportSessions(imported); err != nil {
			t.Fatal(err)
		}
		if early {
			stage()
		}
		if err := l.Begin(3, end, 1<<40); err != nil {
			t.Fatal(err)
		}
		if !early {
			stage()
		}
		fsys = fsys.Kill()
		tier.Close()
		tier = openBeside(t, fsys)
		l, _ = openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{away}, Floor: end})
		if err := l.Begin(4, end, 1<<40); err != nil {
			t.Fatal(err)
		}
		wantKnown(t, l, first, 300, 1000)
		wantKnown(t, l, second, 300, 1000)
		if err := tier.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
