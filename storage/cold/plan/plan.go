// Package plan decides what the exporter uploads next. It is pure: facts go in,
// jobs come out; the exporter gathers the facts, runs the jobs and reports them
// as facts again. The same facts give the same jobs.
//
// # What holds
//
//   - A partition has one job at a time, and it begins where the catalog ends: a
//     job that fails holds up what is behind it and nothing else, so that the
//     catalog has no hole (R11).
//   - What somebody waits for comes first: a partition that leaves, then the cuts
//     of level object, then what makes room on a full disk, then the oldest. The
//     last free slot is kept for the first two.
//   - A partition that failed waits, longer each time, and others do not.
//   - What has something to export gets a job in the end: within a kind the oldest
//     is first, and the first two kinds cannot fill the pool for ever, because a
//     partition that leaves ends and there is one cut at a time.
package plan

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// ID names a partition.
type ID struct {
	Topic     [16]byte
	Partition uint32
}

func (id ID) compare(other ID) int {
	return cmp.Or(bytes.Compare(id.Topic[:], other.Topic[:]), cmp.Compare(id.Partition, other.Partition))
}

// Partition is what is known of a partition that this broker exports.
type Partition struct {
	ID ID
	// Next is the end of the catalog, End the committed end: [Next, End) is to be
	// exported, Bytes long, and the batch at Next was appended at Oldest.
	Next, End uint64
	Bytes     int64
	Oldest    time.Time
	// Sealed is the end of the whole file that holds Next, SealedBytes the length
	// up to there; Next when that file is still written to.
	Sealed      uint64
	SealedBytes int64
	// Object: acknowledgements wait for the catalog.
	Object bool
	// Leaving: the partition moves away, or the broker stops.
	Leaving bool
	// Busy: a job of it is under way.
	Busy bool
	// Failures is how many jobs failed since one succeeded, Failed when the last did.
	Failures int
	Failed   time.Time
}

// Reason says why a job is done now. They are in order of urgency.
type Reason uint8

// The reasons.
const (
	Leaves Reason = iota // somebody waits for the hand-over
	Acks                 // producers wait for acknowledgements
	Room                 // the disk is nearly full
	Age                  // the oldest message has waited long enough
	Size                 // a file is complete
)

// String returns the reason as metrics spell it.
func (r Reason) String() string {
	return [...]string{"leaves", "acks", "room", "age", "size"}[r]
}

// Job is one object to be made.
type Job struct {
	Reason Reason
	Pieces []Piece // of one partition; of several in a cut of level object
}

// Piece is what a job takes of a partition.
type Piece struct {
	ID       ID
	From, To uint64
	// Most is the length in bytes at which the piece may end early, at the end of a
	// batch: at least one batch is taken.
	Most int64
}

// Config holds the limits. Zero values mean the default.
type Config struct {
	SegmentAge time.Duration // how old the oldest message may become. Default 60 s
	CutEvery   time.Duration // the same at level object. Default 250 ms
	CutBytes   int64         // level object: what is cut before its time. Default 4 MiB
	BundleMost int64         // the longest cut of level object. Default 64 MiB
	RetryFirst time.Duration // pause after a failure, doubled for each further one. Default 1 s
	RetryMost  time.Duration // Default 1 min
}

func (c Config) withDefaults() Config {
	c.SegmentAge = cmp.Or(c.SegmentAge, time.Minute)
	c.CutEvery = cmp.Or(c.CutEvery, 250*time.Millisecond)
	c.CutBytes = cmp.Or(c.CutBytes, 4<<20)
	c.BundleMost = cmp.Or(c.BundleMost, 64<<20)
	c.RetryFirst = cmp.Or(c.RetryFirst, time.Second)
	c.RetryMost = cmp.Or(c.RetryMost, time.Minute)
	return c
}

// Pause is how long after its last failure what has failed so often in a row, at
// least once, is tried again: longer each time, but soon where somebody waits.
func (c Config) Pause(failures int, waited bool) time.Duration {
	c = c.withDefaults()
	most := c.RetryMost
	if waited {
		most = min(most, 4*c.RetryFirst)
	}
	return min(c.RetryFirst<<min(failures-1, 20), most)
}

// State is what is known beside the partitions.
type State struct {
	Now   time.Time
	Slots int // jobs that may run at once, at least 1
	Free  int // of them, those that are free
	// Cutting: a cut of level object is under way.
	Cutting bool
	// Pressed: the disk is nearly full.
	Pressed bool
	// Paused: what nobody waits for stays where it is.
	Paused bool
}

// Next returns the jobs to begin now, the most urgent first, no more than there
// are free slots, and when to ask again if nothing happens before: the zero time
// when only an event can bring work.
func (c Config) Next(s State, parts []Partition) (jobs []Job, wake time.Time) {
	c = c.withDefaults()
	p := planner{Config: c, State: s}
	for i := range parts {
		p.look(&parts[i])
	}
	p.cut()
	slices.SortFunc(p.ready, before)
	for _, r := range p.ready {
		if !p.room(r.job.Reason, len(jobs)) {
			break // those behind it are no more urgent
		}
		jobs = append(jobs, r.job)
	}
	return jobs, p.wake
}

// candidate is a job that could begin, with what it is ordered by.
type candidate struct {
	job    Job
	oldest time.Time
	bytes  int64
}

// before orders by urgency; of a full disk's partitions the one first that frees most, of all others the oldest.
func before(a, b candidate) int {
	if a.job.Reason == Room && b.job.Reason == Room {
		if n := cmp.Compare(b.bytes, a.bytes); n != 0 {
			return n
		}
	}
	return cmp.Or(cmp.Compare(a.job.Reason, b.job.Reason), a.oldest.Compare(b.oldest), a.job.Pieces[0].ID.compare(b.job.Pieces[0].ID))
}

type planner struct {
	Config
	State
	ready  []candidate
	object []*Partition // those with something for the next cut
	wake   time.Time
}

// later notes a time at which there may be work.
func (p *planner) later(t time.Time) {
	if p.wake.IsZero() || t.Before(p.wake) {
		p.wake = t
	}
}

// look sorts one partition in.
func (p *planner) look(x *Partition) {
	if x.Busy || x.End <= x.Next {
		return
	}
	if x.Failures > 0 {
		again := x.Failed.Add(p.Pause(x.Failures, x.Object || x.Leaving))
		if p.Now.Before(again) {
			p.later(again)
			return
		}
	}
	if x.Object && !x.Leaving {
		p.object = append(p.object, x)
		return
	}
	if reason, due := p.due(x); due {
		p.ready = append(p.ready, candidate{job: Job{Reason: reason, Pieces: []Piece{p.piece(x)}}, oldest: x.Oldest, bytes: x.Bytes})
	}
}

// due tells why a partition is exported now, if it is.
func (p *planner) due(x *Partition) (Reason, bool) {
	if x.Leaving {
		return Leaves, true
	}
	if p.Paused {
		return 0, false
	}
	old := x.Oldest.Add(p.SegmentAge)
	switch {
	case p.Pressed:
		return Room, true
	case !p.Now.Before(old):
		return Age, true
	case x.Sealed > x.Next:
		return Size, true
	}
	p.later(old)
	return 0, false
}

// piece takes a whole file where there is one, else everything.
func (p *planner) piece(x *Partition) Piece {
	if x.Sealed > x.Next {
		return Piece{ID: x.ID, From: x.Next, To: x.Sealed, Most: x.SealedBytes}
	}
	return Piece{ID: x.ID, From: x.Next, To: x.End, Most: x.Bytes}
}

// cut makes the one job of level object: all its partitions that have something, once the oldest has waited long
// enough or there is enough. One cut at a time: the next one begins where the catalog ends after it.
func (p *planner) cut() {
	if len(p.object) == 0 || p.Cutting {
		return
	}
	slices.SortFunc(p.object, func(a, b *Partition) int {
		return cmp.Or(a.Oldest.Compare(b.Oldest), a.ID.compare(b.ID))
	})
	var bytes int64
	for _, x := range p.object {
		bytes += x.Bytes
	}
	oldest := p.object[0].Oldest
	if due := oldest.Add(p.CutEvery); p.Now.Before(due) && bytes < p.CutBytes {
		p.later(due)
		return
	}
	job := Job{Reason: Acks}
	for i, most := range share(p.object, p.BundleMost) {
		x := p.object[i]
		job.Pieces = append(job.Pieces, Piece{ID: x.ID, From: x.Next, To: x.End, Most: most})
	}
	p.ready = append(p.ready, candidate{job: job, oldest: oldest, bytes: bytes})
}

// share divides a cut among partitions: nobody gets more than it has, and what small ones leave goes to the large
// ones in equal parts, so that one with a long backlog does not keep the others' producers waiting.
func share(parts []*Partition, most int64) []int64 {
	order := make([]int, len(parts))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(parts[a].Bytes, parts[b].Bytes) })
	out := make([]int64, len(parts))
	for n, i := range order {
		out[i] = min(parts[i].Bytes, most/int64(len(order)-n))
		most -= out[i]
	}
	return out
}

// room tells whether a further job of this reason may begin. One slot is kept for those that somebody waits for.
func (p *planner) room(r Reason, begun int) bool {
	left := p.Free - begun
	if r <= Acks || p.Slots == 1 {
		return left > 0
	}
	return left > 1
}
