package history

// Status is what became of a range of offsets that does not simply hold messages.
type Status string

// Plain gaps were never given to a message; the others are the states of ranges.
const (
	PlainGap   Status = "gap"
	Orphaned   Status = "ORPHANED"
	Lost       Status = "LOST"
	Superseded Status = "superseded"
)

// Range is the offsets from From up to, not including, To.
type Range struct {
	From, To int64
	Status   Status
}

// Final is what the brokers hold after everything was healed. Fill it, then give it to Run.Check.
type Final struct {
	run     *Run
	parts   map[uint32]*Partition
	cursors []Cursor
}

// Final begins the read-backs of a run.
func (r *Run) Final() *Final { return &Final{run: r, parts: map[uint32]*Partition{}} }

// Epoch is a range that one ownership wrote.
type Epoch struct {
	Number uint64
	From   int64
	Open   bool
}

// Partition is the end state of one partition.
type Partition struct {
	// Level is the lowest level in force during the run.
	Level Level
	// LogStart is the lowest offset that retention left.
	LogStart int64
	// Ranges are the gaps, lost ranges and superseded offsets that the metadata names.
	Ranges []Range
	// Epochs are the ranges that epochs wrote, as the metadata has them, by offset.
	Epochs []Epoch
	// ClockBroken says that the run broke the clock that the lease of a `local` partition relies on (I6).
	ClockBroken bool

	run   *Run
	tiers []*Tier
}

// Partition describes a partition; a second call returns the same.
func (f *Final) Partition(topic string, partition int) *Partition {
	n := f.run.part(topic, partition)
	if f.parts[n] == nil {
		f.parts[n] = &Partition{Level: Local, run: f.run}
	}
	return f.parts[n]
}

// Tier is what one place holds of a partition: what a reader was served, a file, an object.
type Tier struct {
	name     string
	run      *Run
	messages []stored
}

type stored struct {
	offset  int64
	v       value
	sum     uint32
	foreign bool
}

// Tier begins the read-back of one place. The first tier of a partition is what a reader is served: what is missing
// there is lost (I1, I8); further ones are only compared with it.
func (p *Partition) Tier(name string) *Tier {
	t := &Tier{name: name, run: p.run}
	p.tiers = append(p.tiers, t)
	return t
}

// Add notes a message that the place holds. The payload is not kept.
func (t *Tier) Add(offset int64, payload []byte) {
	v, sum, err := decode(t.run.id, payload)
	if err != nil {
		sum = checksum(payload)
	}
	t.messages = append(t.messages, stored{offset: offset, v: v, sum: sum, foreign: err != nil})
}

// Cursor is the end state of a subscription in one partition.
type Cursor struct {
	Topic        string
	Partition    int
	Subscription string
	// Start is where the subscription began, Prefix the offset below which all is acknowledged.
	Start, Prefix int64
}

// Cursor adds the end state of a subscription.
func (f *Final) Cursor(c Cursor) { f.cursors = append(f.cursors, c) }

// status of an offset in the named ranges; "" is an ordinary one.
func (p *Partition) status(offset int64) Status {
	for _, r := range p.Ranges {
		if r.From <= offset && offset < r.To {
			return r.Status
		}
	}
	return ""
}
