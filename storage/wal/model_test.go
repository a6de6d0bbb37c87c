package wal

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/memory"
)

// world is a random life of a tier: what is appended, acknowledged and read is
// remembered, and compared with what is there after every kill and power loss.
type world struct {
	t     *testing.T
	rng   *rand.Rand
	fsys  *disk.Memory
	tier  *Tier
	clock clock
	parts []*modelLog
	boots int

	mu   sync.Mutex
	next *disk.Memory // the disk after the failure of the machine
}

// modelLog is what the metadata and the clients know of one partition.
type modelLog struct {
	id      ID
	log     *Log
	extents []Extent
	epoch   uint64
	start   uint64
	floor   uint64
	sent    map[uint64]string // offset -> payload of what was acknowledged or read
	senders []*modelSender
}

// modelSender is a producer with what it must send again.
type modelSender struct {
	sender
	doubt []doubt // sent, not answered
	acked uint64  // sequences below are acknowledged
}

type doubt struct {
	bytes   batch.Batch
	pending Pending
	failed  bool
}

func runs(t *testing.T, few, many int) int {
	t.Helper()
	switch {
	case os.Getenv("DANUBE_FULL") != "":
		return many
	case testing.Short() || memory.Poison:
		return few / 4
	}
	return few
}

// TestRandomLives runs many short lives, each from its own seed.
func TestRandomLives(t *testing.T) {
	for seed := range runs(t, 200, 5000) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { live(t, uint64(seed)) })
	}
}

func live(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 7))
	w := &world{t: t, rng: rng, fsys: disk.NewMemory(seed), clock: clock{ms: 1_700_000_000_000}}
	for i := range 1 + rng.IntN(4) {
		p := &modelLog{id: topic(i), sent: make(map[uint64]string)}
		for j := range 1 + rng.IntN(2) {
			p.senders = append(p.senders, &modelSender{sender: sender{producer: uint64(100*i + j + 1), session: 1}})
		}
		w.parts = append(w.parts, p)
	}
	w.boot()
	for range 40 + rng.IntN(60) {
		w.step()
	}
	w.mustRestart()
	w.mustRestart()
	w.fsys.Fail(nil)
	if err := w.tier.Close(); err != nil {
		w.mustBeCrash(err)
	}
}

// boot opens the tier and its partitions, trying again when the machine fails
// on the way, and checks everything.
func (w *world) boot() {
	for !w.tryBoot() {
		w.recoverDisk()
	}
	for _, p := range w.parts {
		w.check(p)
		w.resend(p)
	}
}

func (w *world) tryBoot() bool {
	w.boots++
	w.arm()
	w.fsys.Mkdir("/data")
	w.fsys.SyncDir("/")
	tier, err := Open(w.t.Context(), Config{
		FS: w.fsys, Dir: "/data", SegmentBytes: 6 << 10, MemoryBytes: 48 << 10, Files: 3, JournalBytes: 64 << 10, Now: w.clock.now,
	})
	if err != nil {
		w.mustBeCrash(err)
		return false
	}
	w.tier = tier
	for _, p := range w.parts {
		if !w.open(p) {
			tier.Close()
			return false
		}
	}
	return true
}

// open opens a partition and begins its next epoch.
func (w *world) open(p *modelLog) bool {
	l, found, err := w.tier.Log(w.t.Context(), Opening{ID: p.id, Topic: "/default/m", Extents: p.extents, Start: p.start, Floor: p.floor})
	if err != nil {
		w.mustBeCrash(err)
		return false
	}
	if found.Class == Damaged || !found.Proven {
		w.t.Fatalf("boot %d: %v: %+v, floor %d", w.boots, p.id, found, p.floor)
	}
	if end := w.ackedEnd(p); found.End < end {
		w.t.Fatalf("boot %d: %v ends at %d, acknowledged up to %d", w.boots, p.id, found.End, end)
	}
	p.log = l
	p.epoch++
	if n := len(p.extents); n > 0 {
		p.extents[n-1].End = found.End
		p.extents = slices.DeleteFunc(p.extents, func(x Extent) bool { return x.Start == x.End })
	}
	p.extents = append(p.extents, Extent{Epoch: p.epoch, Start: found.End, End: openEnd})
	p.floor = found.End
	if err := l.Begin(p.epoch, found.End, 1<<40); err != nil {
		w.mustBeCrash(err)
		return false
	}
	return true
}

// arm lets the machine fail in the midst of some operation of the disk, soon.
func (w *world) arm() {
	m, power, left := w.fsys, w.rng.IntN(2) == 0, 0
	if w.rng.IntN(3) > 0 {
		left = 1 + w.rng.IntN(150)
	}
	w.next = nil
	m.Fail(func(op, _ string) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if left == 0 || w.next != nil || op == "read" || op == "free" {
			return nil
		}
		if left--; left == 0 {
			w.next = fail(m, power)
		}
		return nil
	})
}

// failed is the disk after the machine has failed, nil when it has not.
func (w *world) failed() *disk.Memory {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.next
}

func fail(m *disk.Memory, power bool) *disk.Memory {
	if power {
		return m.PowerLoss()
	}
	return m.Kill()
}

func (w *world) mustBeCrash(err error) {
	w.t.Helper()
	if !errors.Is(err, disk.ErrCrashed) && !errors.Is(err, ErrPoisoned) {
		w.t.Fatalf("boot %d: %v", w.boots, err)
	}
}

func (w *world) recoverDisk() {
	if w.failed() == nil {
		w.t.Fatalf("boot %d: failed without a failure of the disk: %v", w.boots, w.tier.Err())
	}
	w.fsys = w.failed()
}

func (w *world) ackedEnd(p *modelLog) uint64 {
	end := uint64(0)
	for o := range p.sent {
		end = max(end, o+1)
	}
	return end
}

func (w *world) step() {
	p := w.parts[w.rng.IntN(len(w.parts))]
	w.clock.ms += w.rng.Int64N(3000)
	switch w.rng.IntN(20) {
	default:
		w.append(p, 1+w.rng.IntN(4))
	case 0:
		w.check(p)
	case 1:
		w.trim(p)
	case 2:
		p.log.giveUp(func() bool { return true })
	case 3:
		w.clock.ms += 100_000
	case 4:
		if w.rng.IntN(3) == 0 {
			w.mustRestart()
			return
		}
	case 5:
		w.tier.sweep()
	case 6:
		if !w.reopen(p) {
			w.restart()
			return
		}
	}
	if w.tier.Err() != nil {
		w.restart()
	}
}

// reopen gives a partition up and takes it again under the next epoch, in the
// same process.
func (w *world) reopen(p *modelLog) bool {
	if err := p.log.Close(); err != nil {
		w.mustBeCrash(err)
		return false
	}
	p.floor = p.log.Committed()
	if !w.open(p) {
		return false
	}
	w.check(p)
	w.resend(p)
	return true
}

// append sends some batches before it waits for any.
func (w *world) append(p *modelLog, n int) {
	s := p.senders[w.rng.IntN(len(p.senders))]
	for range n {
		size := 1 + w.rng.IntN(300)
		if w.rng.IntN(10) == 0 {
			size = 3000 + w.rng.IntN(30000)
		}
		b := s.batch(w.t, 1+w.rng.IntN(3), size)
		pending, err := p.log.Append(b)
		s.doubt = append(s.doubt, doubt{b, pending, err != nil})
	}
	w.settle(p, s)
}

// settle waits for what a sender has in doubt.
func (w *world) settle(p *modelLog, s *modelSender) {
	for len(s.doubt) > 0 {
		d := s.doubt[0]
		if d.failed || d.pending.Wait() != nil {
			return
		}
		w.remember(p, d.bytes, d.pending.Base)
		s.acked = d.bytes.Sequence() + uint64(d.bytes.Count())
		s.doubt = s.doubt[1:]
	}
}

func (w *world) remember(p *modelLog, b batch.Batch, base uint64) {
	d := batch.NewDecoder(limits)
	if err := d.Reset(b); err != nil {
		w.t.Fatal(err)
	}
	var m batch.Message
	for o := base; ; o++ {
		if ok, err := d.Next(&m); err != nil || !ok {
			return
		}
		if old, ok := p.sent[o]; ok && old != string(m.Payload) {
			w.t.Fatalf("%v: offset %d was %.20q and is %.20q", p.id, o, old, m.Payload)
		}
		p.sent[o] = string(m.Payload)
	}
}

// resend sends again what the failure left in doubt, under the same sequences.
func (w *world) resend(p *modelLog) {
	for _, s := range p.senders {
		last, known, err := p.log.OpenSession(s.producer, s.session, s.acked)
		if err != nil {
			return // the machine has failed again
		}
		if known && last+1 < s.acked {
			w.t.Fatalf("%v: session remembers %d, acknowledged below %d", p.id, last, s.acked)
		}
		for i := range s.doubt {
			d := &s.doubt[i]
			seq := d.bytes.Sequence()
			pending, err := p.log.Append(d.bytes)
			if err == nil && pending.Duplicate != (known && seq <= last) {
				w.t.Fatalf("%v: sequence %d duplicate: %v, but the session remembers up to %d", p.id, seq, pending.Duplicate, last)
			}
			d.pending, d.failed = pending, err != nil
		}
		w.settle(p, s)
	}
}

func (w *world) trim(p *modelLog) {
	end := p.log.Committed()
	if end == p.start {
		return
	}
	to := p.start + w.rng.Uint64N(end-p.start)
	p.start = to // committed first, deleted later
	maps.DeleteFunc(p.sent, func(o uint64, _ string) bool { return o < to })
	if err := p.log.Trim(to); err != nil {
		w.mustBeCrash(err)
	}
}

// mustRestart stops cleanly, or kills, or fails the machine, and boots.
func (w *world) mustRestart() {
	w.t.Helper()
	switch {
	case w.failed() != nil:
	case w.rng.IntN(3) == 0:
		err := w.tier.Close() // the machine may fail in the midst of it
		switch {
		case err == nil && w.failed() == nil:
			w.boot()
			return
		case err == nil: // it had done all that matters
			w.recoverDisk()
			w.boot()
			return
		case w.failed() == nil:
			w.t.Fatalf("close: %v", err)
		}
	default:
		power := w.rng.IntN(2) == 0
		w.mu.Lock()
		if w.next == nil { // it may have failed by itself just now
			w.next = fail(w.fsys, power)
		}
		w.mu.Unlock()
	}
	w.restart()
}

// restart boots after the machine has failed.
func (w *world) restart() {
	w.tier.Close()
	w.recoverDisk()
	w.boot()
}

// check reads everything and compares it with what was acknowledged or read before.
func (w *world) check(p *modelLog) {
	got := make(map[uint64]string)
	r := p.log.Reader(p.start)
	defer r.Close()
	d := batch.NewDecoder(limits)
	for {
		v, err := r.Next(1 << w.rng.IntN(16))
		if errors.Is(err, ErrEnd) {
			break
		}
		if errors.Is(err, disk.ErrCrashed) {
			return
		}
		if err != nil {
			w.t.Fatalf("boot %d: %v: read at %d: %v", w.boots, p.id, r.Offset(), err)
		}
		for rest := v.Data; len(rest) > 0; {
			b, err := batch.Check(rest, limits)
			if err != nil {
				w.t.Fatal(err)
			}
			if err := d.Reset(b); err != nil {
				w.t.Fatal(err)
			}
			var m batch.Message
			for {
				ok, err := d.Next(&m)
				if err != nil {
					w.t.Fatal(err)
				}
				if !ok {
					break
				}
				if _, twice := got[m.Offset]; twice {
					w.t.Fatalf("offset %d was read twice", m.Offset)
				}
				got[m.Offset] = string(m.Payload)
			}
			rest = rest[len(b):]
		}
		v.Release()
	}
	for o, want := range p.sent {
		if got[o] != want {
			w.t.Fatalf("boot %d: %v: offset %d reads %.30q, want %.30q", w.boots, p.id, o, got[o], want)
		}
	}
	values := make(map[string]uint64)
	for o, text := range got {
		if at, twice := values[text]; twice {
			w.t.Fatalf("%v: %.30q lies at %d and at %d", p.id, text, at, o)
		}
		values[text] = o
		var producer, seq uint64
		if _, err := fmt.Sscanf(text, "%d/%d:", &producer, &seq); err != nil {
			w.t.Fatalf("%v: offset %d reads %.30q, which nobody sent", p.id, o, text)
		}
		if o >= p.start {
			p.sent[o] = text // what was read can never be un-said
		}
	}
}
