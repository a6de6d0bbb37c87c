package depot

import (
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

// filled is a depot with logs of which the second is a day younger than the first; each
// has ten messages of 4 KiB an hour for ten hours.
func filled(t *testing.T, limits Limits) (d *Depot, fsys *disk.Memory, logs []*storage.Log) {
	t.Helper()
	now := time.UnixMilli(1_700_000_000_000)
	fsys = disk.NewMemory(1)
	if err := fsys.Mkdir("/data"); err != nil {
		t.Fatal(err)
	}
	s, err := storage.Open(t.Context(), storage.Config{FS: fsys, Dir: "/data", SegmentBytes: 16 << 10, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	d = &Depot{
		cfg:     Config{Limits: limits, At: func(string) {}, Now: func() time.Time { return now }, Log: slog.New(slog.DiscardHandler)},
		sources: map[storage.PartitionID]*source{},
	}
	for n := range uint32(2) {
		id := storage.PartitionID{Topic: [16]byte{1}, Partition: n}
		l, _, err := s.Log(t.Context(), storage.Facts{ID: id, Topic: "/default/t"})
		if err == nil {
			err = l.Begin(1, 0, 1<<30)
		}
		if err == nil {
			_, _, err = l.OpenSession(1, 1, 0)
		}
		for i := uint64(0); i < 100 && err == nil; i++ {
			if i%10 == 0 {
				now = now.Add(time.Hour)
			}
			err = put(l, i)
		}
		if err != nil {
			t.Fatal(err)
		}
		now = now.Add(14 * time.Hour)
		d.sources[id] = &source{d: d, id: id, epoch: 1, log: l}
		logs = append(logs, l)
	}
	return d, fsys, logs
}

func put(l *storage.Log, sequence uint64) error {
	var b batch.Builder
	b.Add(&batch.Message{Payload: make([]byte, 4<<10)})
	data, err := b.AppendTo(nil, batch.None, batch.Identity{Producer: 1, Session: 1, Sequence: sequence})
	if err != nil {
		return err
	}
	p, err := l.Append(data)
	if err != nil {
		return err
	}
	return p.Wait()
}

// here is the lowest offset that a partition has files of.
func here(t *testing.T, fsys disk.FS, n int) uint64 {
	t.Helper()
	list, err := fsys.ReadDir(fmt.Sprintf("/data/wal/%x/%d", [16]byte{1}, n))
	if err != nil {
		t.Fatal(err)
	}
	lowest := uint64(math.MaxUint64)
	for _, e := range list {
		if base, _, ok := segment.ParseName(e.Name); ok {
			lowest = min(lowest, base)
		}
	}
	return lowest
}

// What is covered is freed by its age, and by the length of all logs the oldest of all
// first; what is not covered stays, whatever the bounds.
func TestFreeingKeepsTheBounds(t *testing.T) {
	for name, c := range map[string]struct {
		limits  Limits
		covered uint64 // of each log
		check   func(t *testing.T, d *Depot, first, second uint64)
	}{
		"nothing is bounded": {Limits{}, 100, func(t *testing.T, _ *Depot, first, second uint64) {
			if first != 0 || second != 0 {
				t.Errorf("freed up to %d and %d", first, second)
			}
		}},
		"by age": {Limits{LocalAge: 30 * time.Hour}, 100, func(t *testing.T, _ *Depot, first, second uint64) {
			if first < 60 || second != 0 {
				t.Errorf("freed up to %d and %d", first, second)
			}
		}},
		"by length": {Limits{LocalBytes: 500 << 10}, 100, func(t *testing.T, d *Depot, first, second uint64) {
			if n := d.length(); n > 500<<10 || first < 60 || second > 0 && first < 90 {
				t.Errorf("%d bytes are left, freed up to %d and %d", n, first, second)
			}
		}},
		"by a length that cannot be kept": {Limits{LocalBytes: 1}, 100, func(t *testing.T, _ *Depot, first, second uint64) {
			if first < 90 || second < 90 {
				t.Errorf("freed up to %d and %d", first, second)
			}
		}},
		"only what is covered": {Limits{LocalBytes: 1, LocalAge: 1}, 40, func(t *testing.T, _ *Depot, first, second uint64) {
			if first == 0 || first > 40 || second == 0 || second > 40 {
				t.Errorf("freed up to %d and %d", first, second)
			}
		}},
		"nothing is covered": {Limits{LocalBytes: 1, LocalAge: 1}, 0, func(t *testing.T, _ *Depot, first, second uint64) {
			if first != 0 || second != 0 {
				t.Errorf("freed up to %d and %d", first, second)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			d, fsys, logs := filled(t, c.limits)
			for _, l := range logs {
				if c.covered > 0 {
					l.Covered([]storage.Offsets{{From: 0, To: c.covered}})
				}
			}
			d.freeNow(t.Context())
			c.check(t, d, here(t, fsys, 0), here(t, fsys, 1))
		})
	}
}
