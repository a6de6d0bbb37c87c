package storage

import (
	"errors"
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openStore(t testing.TB, fsys disk.FS) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{FS: fsys, Dir: "/data", SegmentBytes: 8 << 10, MemoryBytes: 1 << 20, JournalBytes: 256 << 10, Files: 16})
	if err != nil {
		t.Fatalf("open store: %v", err)
	}
	return s
}

func closeStore(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("close store: %v", err)
	}
}

var partition = PartitionID{Topic: [16]byte{1, 2, 3}}

// encode makes a batch of count messages, the first with sequence seq.
func encode(t testing.TB, producer, seq uint64, count int) batch.Batch {
	t.Helper()
	var w batch.Builder
	for i := range count {
		w.Add(&batch.Message{Payload: fmt.Appendf(nil, "message %d", seq+uint64(i))})
	}
	b, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: producer, Session: 1, Sequence: seq})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// produce appends batches of one message each and waits for all.
func produce(t testing.TB, l *Log, seq, count uint64) {
	t.Helper()
	if _, _, err := l.OpenSession(9, 1, seq); err != nil {
		t.Fatal(err)
	}
	for i := range count {
		p, err := l.Append(encode(t, 9, seq+i, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err != nil {
			t.Fatal(err)
		}
	}
}

// consume reads from an offset to the end and returns the offsets, and what was in their way.
func consume(t testing.TB, l *Log, from uint64) (offsets []uint64, obstacles []error) {
	t.Helper()
	r := l.Reader(from)
	defer r.Close()
	for {
		v, err := r.Next(1 << 20)
		var gap *Gap
		var damage *Damage
		var trimmed *Trimmed
		switch {
		case errors.Is(err, ErrEnd):
			return offsets, obstacles
		case errors.As(err, &gap):
			obstacles = append(obstacles, err)
			r.Seek(gap.To)
			continue
		case errors.As(err, &damage):
			obstacles = append(obstacles, err)
			r.Seek(damage.To)
			continue
		case errors.As(err, &trimmed):
			obstacles = append(obstacles, err)
			r.Seek(trimmed.LogStart)
			continue
		case err != nil:
			t.Fatalf("read: %v", err)
		}
		for rest := v.Data; len(rest) > 0; {
			b, err := batch.Check(rest, batch.Limits{})
			if err != nil {
				t.Fatal(err)
			}
			for o := b.Base(); o < b.End(); o++ {
				if o >= from {
					offsets = append(offsets, o)
				}
			}
			rest = rest[len(b):]
		}
		v.Release()
	}
}

// life is what the metadata would say after each start.
type life struct {
	fsys   disk.FS
	facts  Facts
	store  *Store
	log    *Log
	epoch  uint64
	opened Recovery
}

// start opens store and log and begins the next epoch, at the proven end or at
// the ceiling, as the owner would (R6).
func (l *life) start(t testing.TB) {
	t.Helper()
	const block = 1000
	l.store = openStore(t, l.fsys)
	l.facts.ID, l.facts.Topic = partition, "/default/t"
	var err error
	if l.log, l.opened, err = l.store.Log(t.Context(), l.facts); err != nil {
		t.Fatalf("open log: %v", err)
	}
	l.epoch++
	at := l.opened.End
	if !l.opened.Proven || l.opened.Class == Damaged {
		at = (at/block + 1) * block
	}
	if n := len(l.facts.Ranges); n > 0 {
		l.facts.Ranges[n-1].Open, l.facts.Ranges[n-1].End = false, l.opened.End
		l.facts.Ranges[n-1].Status = RangeSealed
	}
	l.facts.Ranges = append(l.facts.Ranges, Range{Start: at, Open: true, Epochs: []EpochStart{{l.epoch, at}}})
	if err := l.log.Begin(l.epoch, at, 1<<40); err != nil {
		t.Fatal(err)
	}
}

func TestStoreKeepsMessagesOverRestarts(t *testing.T) {
	m := disk.NewMemory(3)
	l := life{fsys: m}
	seq := uint64(0)
	for i := range 6 {
		l.start(t)
		if l.opened.End != seq || l.opened.Class == Damaged || !l.opened.Proven {
			t.Fatalf("start %d: %+v, want end %d", i, l.opened, seq)
		}
		produce(t, l.log, seq, 100)
		seq += 100
		offsets, obstacles := consume(t, l.log, 0)
		if len(obstacles) > 0 || uint64(len(offsets)) != seq {
			t.Fatalf("start %d: read %d messages, want %d; %v", i, len(offsets), seq, obstacles)
		}
		switch i % 3 {
		case 0:
			closeStore(t, l.store)
		case 1:
			m = m.Kill()
		case 2:
			m = m.PowerLoss()
		}
		l.fsys = m
		if i%3 != 0 {
			l.store.Close() // fails: its disk is gone
		}
	}
}
