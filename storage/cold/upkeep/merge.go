package upkeep

import (
	"cmp"
	"slices"

	"github.com/danubemq/danube/meta/catalog"
)

// Merge makes one segment of neighbours that lie in one range, or copies one piece out of a cut.
type Merge struct {
	Partition Partition
	Inputs    []catalog.Segment // as they stand in the catalog
	Bytes     int64             // of all of them
}

// Start and End are the offsets that the merged segment covers.
func (m *Merge) Start() uint64 { return m.Inputs[0].Start }

// End is exclusive.
func (m *Merge) End() uint64 { return m.Inputs[len(m.Inputs)-1].End }

// Job is merges that are done side by side.
type Job struct {
	Merges []Merge
	Bytes  int64
}

// Merges returns what is worth merging in a partition now, Unix milliseconds; no two overlap. What skip says is left alone:
// a segment in which damage was found.
func (l Limits) Merges(p Partition, now int64, skip func(catalog.Segment) bool) []Merge {
	l = l.WithDefaults()
	if p.Catalog.Len() > l.Hot {
		l.Settled = l.Patience // cuts keep what they are among from going into a page
	}
	m := merger{Limits: l, p: p, now: now}
	var run []catalog.Segment
	var in *Range
	for s := range p.Catalog.All() {
		r := p.within(s)
		cut := s.Object.Kind == catalog.Cut
		fits := !skip(s) && (cut || r != nil && s.Bytes < l.Most/2)
		if n := len(run); n > 0 && (!fits || r == nil || r != in || run[n-1].End != s.Start) {
			m.run(run)
			run = nil
		}
		switch {
		case fits && r == nil:
			m.run([]catalog.Segment{s}) // alone it may be copied, whatever became of its range
		case fits:
			run, in = append(run, s), r
		}
	}
	m.run(run)
	return m.out
}

type merger struct {
	Limits
	p   Partition
	now int64
	out []Merge
}

func (m *merger) older(s catalog.Segment, age int64) bool { return s.LastTime <= m.now-age }

func (m *merger) ripe(s catalog.Segment) bool    { return m.older(s, m.Patience.Milliseconds()) }
func (m *merger) settled(s catalog.Segment) bool { return m.older(s, m.Settled.Milliseconds()) }

// run looks for merges among neighbours of one range.
func (m *merger) run(list []catalog.Segment) {
	var total int64
	for i := range list {
		total += list[i].Bytes
	}
	if len(list) == 0 || !m.ripe(list[0]) && total < m.Enough {
		return
	}
	for i := 0; i < len(list); {
		n := m.longest(list[i:])
		if n == 0 {
			n = m.apart(list[i:])
		}
		if n == 0 {
			i++
			continue
		}
		m.emit(list[i : i+n])
		i += n
	}
}

func (m *merger) emit(inputs []catalog.Segment) {
	w := Merge{Partition: m.p, Inputs: slices.Clone(inputs)}
	for i := range inputs {
		w.Bytes += inputs[i].Bytes
	}
	m.out = append(m.out, w)
}

// longest returns how many segments from the front are worth merging, the most of them, 0 for none.
func (m *merger) longest(list []catalog.Segment) (n int) {
	var total, largest int64
	for i, s := range list[:min(len(list), m.Inputs)] {
		if total+s.Bytes > m.Most {
			break
		}
		total, largest = total+s.Bytes, max(largest, s.Bytes)
		last := i+1 < len(list) && (i+1 == m.Inputs || total+list[i+1].Bytes > m.Most) // what follows finds no room
		switch {
		case i == 0 || total < 2*largest || !m.ripe(list[0]) && total < m.Enough:
		case total >= m.Ratio*largest, last && total >= m.Most/2, m.settled(s):
			n = i + 1
		}
	}
	return n
}

// apart returns how many pieces of cuts from the front are old enough to be copied out, whatever that yields.
func (m *merger) apart(list []catalog.Segment) (n int) {
	var total int64
	for _, s := range list[:min(len(list), m.Inputs)] {
		if total += s.Bytes; s.Object.Kind != catalog.Cut || !m.settled(s) || n > 0 && total > m.Most {
			break
		}
		n++
	}
	return n
}

// Jobs puts merges of several partitions together. Those that read the same cuts are done side by side; every other is a
// job by itself.
func (l Limits) Jobs(merges []Merge) []Job {
	l = l.WithDefaults()
	var jobs []Job
	var grouped []Merge
	for _, m := range merges {
		if slices.ContainsFunc(m.Inputs, func(s catalog.Segment) bool { return s.Object.Kind == catalog.Cut }) {
			grouped = append(grouped, m)
			continue
		}
		jobs = append(jobs, Job{[]Merge{m}, m.Bytes})
	}
	slices.SortStableFunc(grouped, func(a, b Merge) int { return cmp.Compare(firstCut(a), firstCut(b)) })
	var g Job
	for _, m := range grouped {
		if n := len(g.Merges); n == l.Group || n > 0 && g.Bytes+m.Bytes > l.GroupBytes {
			jobs, g = append(jobs, g), Job{}
		}
		g.Merges, g.Bytes = append(g.Merges, m), g.Bytes+m.Bytes
	}
	if len(g.Merges) > 0 {
		jobs = append(jobs, g)
	}
	return jobs
}

// firstCut is the run that made the first cut that a merge reads: cuts of one run lie side by side.
func firstCut(m Merge) uint64 {
	for i := range m.Inputs {
		if o := m.Inputs[i].Object; o.Kind == catalog.Cut {
			return o.Incarnation
		}
	}
	return 0
}
