package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// shown is how many violations of one invariant a report spells out; the rest is counted.
const shown = 10

// Report is the judgement of a run.
type Report struct {
	Sends, Acked, NotStored, Unknown, Reads, Faults int
	// Broken counts the violations of each invariant by its name.
	Broken map[string]int
	// Texts spells out the first violations of each.
	Texts []string
}

// OK says that nothing was broken.
func (r Report) OK() bool { return len(r.Broken) == 0 }

// Verdict is the judgement in one line.
func (r Report) Verdict() string {
	seen := fmt.Sprintf("%d sends (%d acked, %d not stored, %d unknown), %d reads, %d faults",
		r.Sends, r.Acked, r.NotStored, r.Unknown, r.Reads, r.Faults)
	if r.OK() {
		return "ok: " + seen
	}
	var broken []string
	for _, name := range slices.Sorted(maps.Keys(r.Broken)) {
		broken = append(broken, fmt.Sprintf("%s ×%d", name, r.Broken[name]))
	}
	return "FAILED: " + strings.Join(broken, ", ") + "; " + seen
}

// String is the verdict and what was found.
func (r Report) String() string {
	return strings.Join(append([]string{r.Verdict()}, r.Texts...), "\n")
}

// check is one judgement on its way.
type check struct {
	run    *Run
	final  *Final
	kinds  []Kind
	report Report
	where  map[uint32]*log // what each partition is known to hold
	places [][]place       // by producer and sequence: where the value was seen
}

// log is what is known of one partition: for each offset, the value and who said so.
type log struct {
	held   map[int64]held
	served map[int64]bool // what the first tier of the read-back holds
}

type held struct {
	v   value
	sum uint32
	by  string
}

type place struct {
	part   uint32
	offset int64
	known  bool
}

// Check judges the run. Call it once every client has stopped and final is filled.
func (r *Run) Check(final *Final) Report {
	c := &check{run: r, final: final, where: map[uint32]*log{}, report: Report{Broken: map[string]int{}, Faults: len(r.faults)}}
	for _, f := range r.faults {
		c.kinds = append(c.kinds, f.kind)
	}
	c.places = make([][]place, len(r.producers))
	for i, p := range r.producers {
		c.places[i] = make([]place, len(p.sends))
	}
	for n := range r.names {
		c.where[uint32(n)] = &log{held: map[int64]held{}, served: map[int64]bool{}}
	}
	c.count()
	c.gatherFinal()
	c.gatherSends()
	c.gatherReads()
	c.judgeKept()
	c.judgeOrder()
	c.judgeRealTime()
	c.judgeConsumers()
	c.judgeCursors()
	c.judgeEpochs()
	c.judgeSpared()
	c.judgeBites()
	return c.report
}

func (c *check) complain(invariant, text string) {
	c.report.Broken[invariant]++
	if c.report.Broken[invariant] <= shown {
		c.report.Texts = append(c.report.Texts, invariant+": "+text)
	}
}

func (c *check) count() {
	for _, p := range c.run.producers {
		for i := range p.sends {
			c.report.Sends++
			switch p.sends[i].outcome {
			case acked:
				c.report.Acked++
			case notStored:
				c.report.NotStored++
			default:
				c.report.Unknown++
			}
		}
	}
	for _, k := range c.run.consumers {
		for i := range k.events {
			if k.events[i].kind == readEvent {
				c.report.Reads++
			}
		}
	}
}

// part names a partition as the command line does.
func (c *check) part(n uint32) string {
	key := c.run.names[n]
	return fmt.Sprintf("%s:%d", key.topic, key.partition)
}

// end is the final state of a partition; one that was never described counts as empty, so that acks in it are lost.
func (c *check) end(part uint32) *Partition {
	if p := c.final.parts[part]; p != nil {
		return p
	}
	p := &Partition{Level: Local, run: c.run}
	c.final.parts[part] = p
	return p
}
