package wal

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a clock that moves when it is told to.
type clock struct{ ms int64 }

func (c *clock) now() time.Time { return time.UnixMilli(c.ms) }

// openTier opens a tier over fsys, with sizes small enough that everything
// happens in a test: files roll, the journal comes round, tails are given up.
func openTier(t testing.TB, fsys disk.FS, change func(*Config)) *Tier {
	t.Helper()
	c := Config{
		FS: fsys, Dir: "/data", SegmentBytes: 16 << 10, MemoryBytes: 256 << 10, Files: 8, JournalBytes: 64 << 10,
	}
	if change != nil {
		change(&c)
	}
	if err := fsys.Mkdir(c.Dir); err == nil {
		if err := fsys.SyncDir("/"); err != nil {
			t.Fatal(err)
		}
	}
	tier, err := Open(t.Context(), c)
	if err != nil {
		t.Fatalf("open tier: %v", err)
	}
	return tier
}

func topic(n int) ID { return ID{Topic: [16]byte{byte(n), byte(n >> 8), 1}, Partition: uint32(n % 3)} }

// payload is what message number seq of a producer says.
func payload(producer uint64, seq uint64, size int) []byte {
	p := fmt.Appendf(nil, "%d/%d:", producer, seq)
	for len(p) < size {
		p = append(p, byte('a'+(uint64(len(p))+seq)%26))
	}
	return p
}

// sender makes the batches of one producer session.
type sender struct {
	w        batch.Builder
	producer uint64
	session  uint32
	next     uint64
}

func (s *sender) batch(t testing.TB, count, size int) batch.Batch {
	t.Helper()
	seq := s.next
	for i := range count {
		s.w.Add(&batch.Message{Payload: payload(s.producer, seq+uint64(i), size)})
	}
	b, err := s.w.AppendTo(nil, batch.None, batch.Identity{Producer: s.producer, Session: s.session, Sequence: seq})
	if err != nil {
		t.Fatal(err)
	}
	s.next += uint64(count)
	return b
}

// openLog opens a partition that only ever had the given extents.
func openLog(t testing.TB, tier *Tier, o Opening) (*Log, Found) {
	t.Helper()
	l, found, err := tier.Log(t.Context(), o)
	if err != nil {
		t.Fatalf("open log: %v", err)
	}
	return l, found
}

const openEnd = ^uint64(0)

// readAll reads from an offset to the end, and checks that offsets follow each
// other without a hole.
func readAll(t testing.TB, l *Log, from uint64) (payloads []string) {
	t.Helper()
	r := l.Reader(from)
	defer r.Close()
	d := batch.NewDecoder(limits)
	at := from
	for {
		v, err := r.Next(4 << 10)
		if errors.Is(err, ErrEnd) {
			return payloads
		}
		if err != nil {
			t.Fatalf("read at %d: %v", r.Offset(), err)
		}
		for rest := v.Data; len(rest) > 0; {
			b, err := batch.Check(rest, limits)
			if err != nil {
				t.Fatalf("read at %d: %v", at, err)
			}
			if err := d.Reset(b); err != nil {
				t.Fatal(err)
			}
			var m batch.Message
			for {
				ok, err := d.Next(&m)
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				if m.Offset < from {
					continue
				}
				if m.Offset != at {
					t.Fatalf("read offset %d, want %d", m.Offset, at)
				}
				at++
				payloads = append(payloads, string(m.Payload))
			}
			rest = rest[len(b):]
		}
		v.Release()
	}
}

func TestAppendCommitReadRestart(t *testing.T) {
	fsys := disk.NewMemory(1)
	tier := openTier(t, fsys, nil)
	l, found := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t"})
	if found.End != 0 || found.Class != Clean || !found.Proven {
		t.Fatalf("a new log: %+v", found)
	}
	if err := l.Begin(1, 0, 1<<40); err != nil {
		t.Fatal(err)
	}
	s := sender{producer: 7, session: 1}
	if _, _, err := l.OpenSession(7, 1, 0); err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 200 {
		p, err := l.Append(s.batch(t, 1+i%3, 100+i))
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Wait(); err != nil {
			t.Fatal(err)
		}
		if got := int(p.Base); got != len(want) {
			t.Fatalf("base %d, want %d", got, len(want))
		}
		for j := range 1 + i%3 {
			want = append(want, string(payload(7, p.Base+uint64(j), 100+i)))
		}
	}
	check := func(l *Log) {
		t.Helper()
		for _, from := range []int{0, 1, 57, len(want) - 1} {
			got := readAll(t, l, uint64(from))
			if fmt.Sprint(got) != fmt.Sprint(want[from:]) {
				t.Fatalf("from %d: read %d messages, want %d", from, len(got), len(want)-from)
			}
		}
	}
	check(l)
	l.giveUp(func() bool { return true })
	check(l)
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
	for _, how := range []string{"clean", "kill", "power"} {
		switch how {
		case "kill":
			fsys = fsys.Kill()
		case "power":
			fsys = fsys.PowerLoss()
		}
		tier = openTier(t, fsys, nil)
		l, found = openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t", Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}})
		if found.End != uint64(len(want)) || found.Class == Damaged || !found.Proven {
			t.Fatalf("%s: %+v, want end %d", how, found, len(want))
		}
		check(l)
		if how == "power" {
			if err := tier.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}
