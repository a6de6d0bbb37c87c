package wal

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/memory"
)

// TestAppendAllocatesNothing holds the produce path to no allocation per append
// and wait, once pools and buffers have grown.
func TestAppendAllocatesNothing(t *testing.T) {
	if memory.Poison {
		t.Log("the race detector allocates by itself; the plain build counts")
		return
	}
	tier, err := Open(t.Context(), Config{FS: disk.OS(), Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	l, _ := openLog(t, tier, Opening{ID: topic(1)})
	if err := l.Begin(1, 0, 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.OpenSession(1, 1, 0); err != nil {
		t.Fatal(err)
	}
	s := sender{producer: 1, session: 1}
	x := s.batch(t, 1, 1000)
	seq := uint64(0)
	once := func() {
		resequence(x, seq)
		p, err := l.Append(x)
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		seq++
	}
	for range 500 {
		once()
	}
	if n := testing.AllocsPerRun(2000, once); n >= 1 {
		t.Errorf("%v allocations an append", n)
	}
	r := l.Reader(0)
	defer r.Close()
	if n := testing.AllocsPerRun(100, func() {
		v, err := r.Next(8 << 10)
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
	}); n >= 1 {
		t.Errorf("%v allocations a read from memory", n)
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestManyWritersAndReaders has producers and readers of several partitions run
// into each other while files roll, tails are given up and the journal comes
// round: each reader sees each message once, in the order of offsets, and a
// producer's messages in its order.
func TestManyWritersAndReaders(t *testing.T) {
	const partitions, producers, batches = 3, 3, 60
	tier := openTier(t, disk.NewMemory(1), func(c *Config) { c.MemoryBytes = 64 << 10; c.JournalBytes = 64 << 10; c.Files = 2 })
	var wg sync.WaitGroup
	for n := range partitions {
		l, _ := openLog(t, tier, Opening{ID: topic(n)})
		if err := l.Begin(1, 0, 1<<40); err != nil {
			t.Fatal(err)
		}
		for p := range producers {
			wg.Go(func() { produceAll(t, l, uint64(p+1), batches) })
		}
		for range 2 {
			wg.Go(func() { consumeAll(t, l, producers, batches) })
		}
	}
	wg.Wait()
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

func produceAll(t *testing.T, l *Log, producer uint64, batches int) {
	if _, _, err := l.OpenSession(producer, 1, 0); err != nil {
		t.Error(err)
		return
	}
	s := sender{producer: producer, session: 1}
	var last Pending
	for i := range batches {
		p, err := l.Append(s.batch(t, 2, 10+(i*37)%900))
		if err != nil {
			t.Error(err)
			return
		}
		if i%7 == 0 {
			if err := p.Wait(); err != nil {
				t.Error(err)
				return
			}
			if l.Committed() < p.Base+2 {
				t.Errorf("acknowledged at %d, committed end %d", p.Base, l.Committed())
			}
		}
		last = p
	}
	if err := last.Wait(); err != nil {
		t.Error(err)
	}
}

func consumeAll(t *testing.T, l *Log, producers, batches int) {
	wake := make(chan struct{}, 1)
	stop := l.Watch(wake)
	defer stop()
	r := l.Reader(0)
	defer r.Close()
	next := make(map[uint64]uint64)
	d := batch.NewDecoder(limits)
	for at := uint64(0); at < uint64(producers*batches*2); {
		v, err := r.Next(2000)
		if errors.Is(err, ErrEnd) {
			<-wake
			continue
		}
		if err != nil {
			t.Error(err)
			return
		}
		if end := l.Committed(); v.End > end {
			t.Errorf("shown up to %d, committed %d", v.End, end)
		}
		for rest := v.Data; len(rest) > 0; {
			b, err := batch.Check(rest, limits)
			if err == nil {
				err = d.Reset(b)
			}
			if err != nil {
				t.Error(err)
				return
			}
			var m batch.Message
			for ok, err := d.Next(&m); ok; ok, err = d.Next(&m) {
				var producer, seq uint64
				if _, serr := fmt.Sscanf(string(m.Payload), "%d/%d:", &producer, &seq); err != nil || serr != nil {
					t.Error(err, serr)
					return
				}
				if m.Offset != at || seq != next[producer] {
					t.Errorf("offset %d, want %d; sequence %d of %d, want %d", m.Offset, at, seq, producer, next[producer])
					return
				}
				at++
				next[producer]++
			}
			rest = rest[len(b):]
		}
		v.Release()
	}
}

// TestIntervalAcksBeforeTheSync: with an interval the ack waits for the write
// alone, the synced end follows beside it, and a power loss takes at most what
// lies above it.
func TestIntervalAcksBeforeTheSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.SyncInterval = 100 * time.Millisecond; c.SegmentBytes = 4 << 10; c.BootID = "one" })
		r.mustPut(60, 300)
		if r.log.Committed() != 60 || r.log.Synced() == 60 {
			t.Fatalf("committed %d, synced %d", r.log.Committed(), r.log.Synced())
		}
		<-time.After(time.Second)
		synctest.Wait()
		if r.log.Synced() != 60 {
			t.Fatalf("synced %d after the interval", r.log.Synced())
		}
		r.mustPut(40, 300)
		synced := r.log.Synced()
		fsys := r.fsys.PowerLoss()
		r.tier.Close()
		tier := openTier(t, fsys, func(c *Config) { c.BootID = "two" })
		l, found := openLog(t, tier, Opening{ID: topic(1), Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}})
		if found.Proven || found.End < synced || found.End > 100 || found.Class == Damaged {
			t.Fatalf("synced up to %d, found %+v", synced, found)
		}
		if got := len(readAll(t, l, 0)); got != int(found.End) {
			t.Fatalf("read %d, want %d", got, found.End)
		}
		if err := tier.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestIdlePartitionsGiveTheirMemoryBack: what rests for a while keeps no tail,
// and what only the journal covers is synced.
func TestIdlePartitionsGiveTheirMemoryBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.MemoryBytes = 64 << 20 })
		r.mustPut(20, 300)
		if r.tier.Stats().Memory == 0 {
			t.Fatal("no tail in memory")
		}
		<-time.After(time.Minute)
		synctest.Wait()
		if s := r.tier.Stats(); s.Memory != 0 {
			t.Fatalf("at rest: %+v", s)
		}
		r.tier.mu.Lock()
		left := len(r.tier.checkpoint.files)
		armed := r.tier.rest.armed
		r.tier.mu.Unlock()
		if left != 0 || armed {
			t.Fatalf("at rest %d files are not synced, timer armed: %v", left, armed)
		}
		if got := len(readAll(t, r.log, 0)); got != 20 {
			t.Fatalf("read %d messages", got)
		}
		r.mustPut(1, 300)
		r.close()
	})
}

// TestTimes: append time never runs backwards (R13), reads by time, retention.
func TestTimes(t *testing.T) {
	r := newRig(t, func(c *Config) { c.SegmentBytes = 4 << 10 })
	start := r.clock.ms
	var times []int64
	for i := range 60 {
		r.clock.ms += 1000
		if i == 30 {
			r.clock.ms -= 60_000 // somebody sets the clock back
		}
		b := r.send.batch(t, 1, 300)
		p, err := r.log.Append(b)
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := len(times); n > 0 && p.AppendTime < times[n-1] {
			t.Fatalf("append time ran from %d back to %d", times[n-1], p.AppendTime)
		}
		times = append(times, p.AppendTime)
	}
	check := func(l *Log) {
		t.Helper()
		for _, ms := range []int64{0, start + 1, start + 5000, start + 5001, start + 30_000, times[59], times[59] + 1} {
			want := uint64(0)
			for want < 60 && times[want] < ms {
				want++
			}
			want = max(want, l.Start())
			if got, err := l.OffsetAt(ms); err != nil || got != want {
				t.Fatalf("offset at %d: %d, %v, want %d", ms-start, got, err, want)
			}
		}
	}
	check(r.log)
	if got := r.log.RetentionPoint(Retention{Now: times[59]}); got != 0 {
		t.Fatalf("retention without bounds: %d", got)
	}
	byAge := r.log.RetentionPoint(Retention{Now: times[20] + 1, Age: 10_000})
	if byAge == 0 || byAge > 11 {
		t.Fatalf("retention by age keeps from %d on", byAge)
	}
	bySize := r.log.RetentionPoint(Retention{Now: times[59], Bytes: 10 << 10})
	if bySize < 10 || bySize > 50 {
		t.Fatalf("retention by size keeps from %d on", bySize)
	}
	behind := r.log.Reader(2)
	defer behind.Close()
	if err := r.log.Trim(bySize); err != nil {
		t.Fatal(err)
	}
	_, err := behind.Next(100)
	if e, ok := errors.AsType[*Trimmed](err); !ok || e.LogStart != bySize {
		t.Fatalf("a reader below the start got %v", err)
	}
	if got := len(readAll(t, r.log, bySize)); got != 60-int(bySize) {
		t.Fatalf("read %d messages", got)
	}
	check(r.log)
	r.close()
}

// TestDeletedPartitionStaysGone: a kill right after the deletion brings nothing
// back, though the journal still has it.
func TestDeletedPartitionStaysGone(t *testing.T) {
	r := newRig(t, nil)
	r.mustPut(10, 100)
	other, _ := openLog(t, r.tier, Opening{ID: topic(2)})
	if err := other.Begin(1, 0, 100); err != nil {
		t.Fatal(err)
	}
	if _, _, err := other.OpenSession(5, 1, 0); err != nil {
		t.Fatal(err)
	}
	s := sender{producer: 5, session: 1}
	p, err := other.Append(s.batch(t, 1, 10))
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := r.tier.Delete(topic(1)); err != nil {
		t.Fatal(err)
	}
	_, err = r.log.Append(r.send.batch(t, 1, 1))
	wantErr(t, err, ErrClosed)
	_, err = r.log.Reader(0).Next(1)
	wantErr(t, err, ErrClosed)
	fsys := r.fsys.Kill()
	r.tier.Close()
	tier := openTier(t, fsys, nil)
	list, err := tier.Partitions()
	if err != nil || len(list) != 1 || list[0] != topic(2) {
		t.Fatalf("partitions %v, %v", list, err)
	}
	if err := tier.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestVerifyLooksIntoTheFiles: a byte gone bad in a file is found although
// readers are still served from memory, and is named with its offset.
func TestVerifyLooksIntoTheFiles(t *testing.T) {
	r := newRig(t, func(c *Config) { c.MemoryBytes = 64 << 20; c.SegmentBytes = 2 << 10 })
	r.mustPut(30, 200)
	var found []Damage
	verify := func() {
		t.Helper()
		found = nil
		if err := r.log.Verify(func(d Damage) { found = append(found, d) }); err != nil {
			t.Fatal(err)
		}
	}
	if verify(); len(found) > 0 {
		t.Fatalf("a whole log: %v", found)
	}
	victim := r.log.files.list[1]
	f, err := r.fsys.Open(victim.Handle.Name, disk.Write)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, 400); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, 400); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	verify()
	if len(found) != 1 || found[0].To != found[0].From+1 || found[0].File != victim.Handle.Name || found[0].From < victim.Base {
		t.Fatalf("found %v", found)
	}
	if got := len(readAll(t, r.log, 0)); got != 30 {
		t.Fatalf("memory served %d messages", got)
	}
	r.close()
}
