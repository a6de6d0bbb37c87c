package history

import (
	"fmt"
	"slices"
	"time"
)

// Kind is a sort of fault. What a fault may cost depends on it and on the level of the partition.
type Kind string

// The faults that the checker knows.
const (
	Kill        Kind = "kill"         // kill -9 of a process
	Pause       Kind = "pause"        // SIGSTOP, later SIGCONT
	PowerLoss   Kind = "power loss"   // what was not synced is gone
	DiskFull    Kind = "disk full"    // writes fail with no space, later they do not
	SyncFails   Kind = "sync fails"   // EIO of a write or sync
	DiskDamaged Kind = "disk damaged" // bytes that were synced have changed
	DiskGone    Kind = "disk gone"    // a whole data directory is lost
	WarmGone    Kind = "warm gone"    // the write buffer lost its contents
	StoreAway   Kind = "store away"   // the cold tier answers nobody
	CutOff      Kind = "cut off"      // nothing passes between a broker and the others, one way or both
	Moved       Kind = "moved"        // no fault: partitions were moved to the broker
	Stopped     Kind = "stopped"      // no fault: the broker was asked to stop
)

// Level is what an acknowledgement of a partition promised to survive.
type Level string

// The levels of durability; Interval is `local` with `wal.sync: interval`.
const (
	Interval Level = "interval"
	Local    Level = "local"
	Warm     Level = "warm"
	Object   Level = "object"
)

// Fault is one fault of a run, from its beginning until it was healed.
type Fault struct {
	run          *Run
	kind         Kind
	broker       string
	begin, end   time.Duration
	epochChanged bool
	spared       []uint32 // partitions that have nothing to do with it
}

// Fault notes that a fault of a broker begins now.
func (r *Run) Fault(kind Kind, broker string) *Fault {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := &Fault{run: r, kind: kind, broker: broker, begin: r.clock(), end: -1}
	r.faults = append(r.faults, f)
	return f
}

// Healed notes that the fault is over, and whether the epoch of a partition changed by it.
func (f *Fault) Healed(epochChanged bool) {
	f.run.mu.Lock()
	defer f.run.mu.Unlock()
	f.end, f.epochChanged = f.run.clock(), epochChanged
}

// Spared notes a partition that the fault should leave moving, because another broker owns it.
func (f *Fault) Spared(topic string, partition int) {
	part := f.run.part(topic, partition)
	f.run.mu.Lock()
	defer f.run.mu.Unlock()
	f.spared = append(f.spared, part)
}

// mayLose says whether a loss that is declared is one that the level of the partition allows after these faults.
func mayLose(level Level, kinds []Kind) bool {
	had := func(k Kind) bool { return slices.Contains(kinds, k) }
	disk := had(DiskGone) || had(DiskDamaged)
	switch level {
	case Interval:
		return disk || had(PowerLoss) || had(SyncFails)
	case Local:
		return disk
	case Warm:
		return disk && had(WarmGone)
	default:
		return false
	}
}

// slow is how long a send must take to count as delayed by a fault that lies in its time, and slowObject how long where
// each waits for the cold tier.
const (
	slow       = 100 * time.Millisecond
	slowObject = 2 * time.Second
)

// judgeBites fails a run whose faults did nothing that a client could see: it proves nothing.
func (c *check) judgeBites() {
	bitten, tried := map[Kind]bool{}, map[Kind]int{}
	for _, f := range c.run.faults {
		tried[f.kind]++
		if bitten[f.kind] {
			continue
		}
		bitten[f.kind] = f.epochChanged || c.felt(f)
	}
	for kind, n := range tried {
		if !bitten[kind] {
			c.complain("BITE", fmt.Sprintf("%d faults of kind %q changed no epoch, failed no send and delayed none by %v: the run proves nothing about them", n, kind, slow))
		}
	}
}

// felt says whether a send in the time of the fault failed or was slow.
func (c *check) felt(f *Fault) bool {
	end := f.end
	if end < 0 {
		end = 1<<63 - 1
	}
	for _, p := range c.run.producers {
		for i := range p.sends {
			s := &p.sends[i]
			if s.begin > end || s.end >= 0 && s.end < f.begin {
				continue
			}
			limit := slow
			if s.outcome == acked && c.end(s.part).Level == Object {
				limit = slowObject
			}
			if s.outcome != acked || s.end-s.begin >= limit {
				return true
			}
		}
	}
	return false
}
