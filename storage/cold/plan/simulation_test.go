package plan

import (
	"math/rand/v2"
	"testing"
	"time"
)

// world is brokers' partitions, an object store and an exporter, in steps of ten milliseconds.
type world struct {
	t       *testing.T
	rnd     *rand.Rand
	now     time.Time
	parts   []*simulated
	running []*running
	slots   int
	down    bool // the store is away
	sick    ID   // uploads of this partition always fail
	put     func() time.Duration
}

// simulated is a partition: one message of a kilobyte each, with the time it was appended.
type simulated struct {
	Partition
	appended []time.Time   // of offset i
	stays    time.Duration // longest stay of a message outside the catalog
}

type running struct {
	job  Job
	ends time.Time
}

const (
	tick     = 10 * time.Millisecond
	fileSize = 100 // messages
)

func newWorld(t *testing.T, seed uint64, parts, slots int) *world {
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, 7)), now: epoch, slots: slots, sick: named(255)}
	w.put = func() time.Duration { return 20*time.Millisecond + time.Duration(w.rnd.IntN(100))*time.Millisecond }
	for n := range parts {
		w.parts = append(w.parts, &simulated{Partition: Partition{ID: named(byte(n)), Object: n%4 == 0}})
	}
	return w
}

// step lets time pass: messages come, uploads end, jobs begin. rate is messages a tick and partition, at random.
func (w *world) step(rate float64) {
	w.now = w.now.Add(tick)
	for _, p := range w.parts {
		for w.rnd.Float64() < rate {
			p.appended = append(p.appended, w.now)
		}
	}
	w.end()
	var facts []Partition
	cutting := false
	for _, r := range w.running {
		cutting = cutting || r.job.Reason == Acks
	}
	for _, p := range w.parts {
		facts = append(facts, p.fact())
	}
	free := w.slots - len(w.running)
	jobs, wake := Config{}.Next(State{Now: w.now, Slots: w.slots, Free: free, Cutting: cutting}, facts)
	if len(jobs) > free {
		w.t.Fatalf("%d jobs for %d slots", len(jobs), free)
	}
	if !wake.IsZero() && wake.Before(w.now) {
		w.t.Fatalf("wakes in the past")
	}
	for _, j := range jobs {
		w.begin(j)
	}
}

// fact is what an exporter would know of the partition now.
func (p *simulated) fact() Partition {
	f := p.Partition
	f.End = uint64(len(p.appended))
	f.Bytes = int64(f.End-f.Next) << 10
	f.Sealed = f.Next
	if f.End > f.Next {
		f.Oldest = p.appended[f.Next]
	}
	if end := (f.Next/fileSize + 1) * fileSize; end <= f.End {
		f.Sealed, f.SealedBytes = end, int64(end-f.Next)<<10
	}
	return f
}

func (w *world) find(id ID) *simulated {
	return w.parts[id.Topic[0]]
}

func (w *world) begin(j Job) {
	for _, piece := range j.Pieces {
		p := w.find(piece.ID)
		if p.Busy {
			w.t.Fatalf("a second job for a partition that has one")
		}
		if piece.From != p.Next || piece.To <= piece.From || piece.To > uint64(len(p.appended)) {
			w.t.Fatalf("%+v of a catalog that ends at %d and a log that ends at %d", piece, p.Next, len(p.appended))
		}
		p.Busy = true
	}
	w.running = append(w.running, &running{job: j, ends: w.now.Add(w.put())})
}

// end lets uploads end: in the catalog, or failed.
func (w *world) end() {
	var left []*running
	for _, r := range w.running {
		if w.now.Before(r.ends) {
			left = append(left, r)
			continue
		}
		for _, piece := range r.job.Pieces {
			p := w.find(piece.ID)
			p.Busy = false
			if w.down || piece.ID == w.sick {
				p.Failures, p.Failed = p.Failures+1, w.now
				continue
			}
			p.Failures = 0
			to := min(piece.To, piece.From+max(1, uint64(piece.Most>>10)))
			p.stays = max(p.stays, w.now.Sub(p.appended[piece.From]))
			p.Next = to
		}
	}
	w.running = left
}

func (w *world) run(d time.Duration, rate float64) {
	for range int(d / tick) {
		w.step(rate)
	}
}

// Everything is exported in time, whatever the load: acknowledgements within a cut and two uploads, the rest within its age.
func TestSimulationIsInTime(t *testing.T) {
	for seed := range uint64(3) {
		w := newWorld(t, seed, 12, 4)
		w.run(2*time.Minute, 0.2)
		w.run(2*time.Minute, 0)
		for _, p := range w.parts {
			if p.Next != uint64(len(p.appended)) || len(p.appended) == 0 {
				t.Fatalf("seed %d: partition %d: %d of %d exported", seed, p.ID.Topic[0], p.Next, len(p.appended))
			}
			most := 62 * time.Second
			if p.Object {
				most = 250*time.Millisecond + 2*120*time.Millisecond + 3*tick
			}
			if p.stays > most {
				t.Errorf("seed %d: partition %d: a message stayed out for %v, at most %v", seed, p.ID.Topic[0], p.stays, most)
			}
		}
	}
}

// One partition whose uploads fail for ever costs the others nothing.
func TestSimulationOfASickPartition(t *testing.T) {
	for seed := range uint64(3) {
		w := newWorld(t, seed, 12, 3)
		w.sick = named(5)
		w.run(4*time.Minute, 0.2)
		if p := w.find(w.sick); p.Next != 0 || p.Failures < 4 {
			t.Fatalf("seed %d: the sick one is at %d after %d failures", seed, p.Next, p.Failures)
		}
		for _, p := range w.parts {
			if p.ID != w.sick && !p.Object && (p.stays > 62*time.Second || uint64(len(p.appended))-p.Next > 2*fileSize) {
				t.Errorf("seed %d: partition %d: out for %v, %d behind", seed, p.ID.Topic[0], p.stays, uint64(len(p.appended))-p.Next)
			}
		}
	}
}

// The store is away for ten minutes. When it is back all is made up for, level object at once.
func TestSimulationOfAnOutage(t *testing.T) {
	for seed := range uint64(2) {
		w := newWorld(t, seed, 12, 4)
		w.run(time.Minute, 0.1)
		w.down = true
		w.run(10*time.Minute, 0.1)
		w.down = false
		w.run(10*time.Second, 0.1)
		for _, p := range w.parts {
			if p.Object && uint64(len(p.appended))-p.Next > 50 {
				t.Errorf("seed %d: partition %d is %d behind ten seconds after", seed, p.ID.Topic[0], uint64(len(p.appended))-p.Next)
			}
		}
		w.run(3*time.Minute, 0)
		for _, p := range w.parts {
			if p.Next != uint64(len(p.appended)) {
				t.Errorf("seed %d: partition %d: %d of %d exported", seed, p.ID.Topic[0], p.Next, len(p.appended))
			}
		}
	}
}

// A partition that leaves is exported at once, however much others have to do.
func TestSimulationOfAMove(t *testing.T) {
	for seed := range uint64(3) {
		w := newWorld(t, seed, 20, 3)
		w.run(30*time.Second, 0.9)
		p := w.find(named(7))
		p.Leaving = true
		last := len(p.appended)
		began := w.now
		for p.Next < uint64(last) && w.now.Sub(began) < time.Minute {
			w.step(0.9)
		}
		files := time.Duration(last/fileSize + 2)
		if took := w.now.Sub(began); took > files*2*120*time.Millisecond+time.Second {
			t.Errorf("seed %d: the tail took %v", seed, took)
		}
	}
}
