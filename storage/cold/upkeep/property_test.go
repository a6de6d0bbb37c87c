package upkeep

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/state"
)

// cluster is the real state of one partition, whose segments have no bytes, and for each segment of its catalog what it was
// made of.
type cluster struct {
	t      *testing.T
	rnd    *rand.Rand
	s      *state.State
	index  uint64
	now    int64
	topic  state.TopicID
	unique uint64
	cuts   uint64
	runs   byte
	made   map[catalog.Object]map[uint64][]grain // by object and start
	pages  map[uint64][]byte                     // contents by start

	written, merged int64 // bytes
}

// grain is a segment as it was exported: how long it was, and how often it was written again.
type grain struct {
	bytes int64
	cut   bool
	again int
}

func newCluster(t *testing.T, seed uint64) *cluster {
	c := &cluster{
		t: t, rnd: rand.New(rand.NewPCG(seed, 3)), s: state.New(), now: 1_700_000_000_000, topic: state.TopicID{9},
		made: map[catalog.Object]map[uint64][]grain{}, pages: map[uint64][]byte{},
	}
	o := c.register()
	c.must(&state.CreateTopic{ID: c.topic, Name: "/default/t", Owners: []state.Owner{o}, Settings: state.TopicSettings{Partitions: 1, Reliable: true, Durability: state.LevelObject}})
	c.must(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: c.topic, Epoch: 1, Ceiling: 1 << 40}}})
	return c
}

func (c *cluster) must(x state.Command) state.Result {
	c.t.Helper()
	c.index++
	r := c.s.Apply(c.index, x)
	if r.Err != nil || r.Entry(0) != nil {
		c.t.Fatalf("%T is refused: %v %v", x, r.Err, r.Entry(0))
	}
	return r
}

func (c *cluster) register() state.Owner {
	c.runs++
	r := c.must(&state.RegisterStore{Store: state.StoreID{1}, Broker: "n1", Nonce: [16]byte{c.runs}})
	c.cuts = 0
	return state.Owner{Store: state.StoreID{1}, Incarnation: r.Incarnation}
}

func (c *cluster) partition() *state.Partition { return c.s.Partition(c.topic, 0) }

// known is the partition as upkeep sees it.
func (c *cluster) known() Partition {
	p := c.partition()
	q := Partition{Topic: p.Topic, Number: p.Number, Epoch: p.Epoch, Mine: true, LogStart: p.LogStart, Catalog: p.Catalog}
	for _, r := range p.Ranges {
		x := Range{Start: r.Start, End: r.End}
		if r.Status == state.RangeOpen {
			x.End = p.Ceiling
		}
		for _, e := range r.Epochs {
			x.Epochs = append(x.Epochs, Epoch{Epoch: e.Epoch, Start: e.Start})
		}
		q.Ranges = append(q.Ranges, x)
	}
	return q
}

// commit exports a segment of so many bytes.
func (c *cluster) commit(bytes int64, cut bool) {
	p := c.partition()
	from, _, ok := p.NextExport()
	if !ok {
		c.t.Fatal("nothing to export")
	}
	c.unique++
	s := catalog.Segment{Start: from, End: from + 1 + c.rnd.Uint64N(50), Bytes: bytes, FirstTime: c.now, LastTime: c.now}
	if c.now += 1 + c.rnd.Int64N(5000); cut {
		c.cuts++
		s.Object = catalog.Object{Kind: catalog.Cut, Store: p.Owner.Store, Incarnation: p.Owner.Incarnation, Number: c.cuts, Unique: 1}
		s.Position = c.rnd.Int64N(1 << 20)
	} else {
		s.Object = catalog.Object{Kind: catalog.Own, Epoch: p.Epoch, Incarnation: p.Owner.Incarnation, Unique: c.unique}
	}
	c.must(&state.CommitSegments{Owner: p.Owner, Entries: []state.SegmentCommit{{Topic: c.topic, Epoch: p.Epoch, Epochs: p.Epochs(s.Start, s.End), Segment: s}}})
	c.note(s, []grain{{bytes: bytes, cut: cut}})
	c.written += bytes
}

func (c *cluster) note(s catalog.Segment, grains []grain) {
	if c.made[s.Object] == nil {
		c.made[s.Object] = map[uint64][]grain{}
	}
	c.made[s.Object][s.Start] = grains
}

// restart opens the partition in a new run, densely or with a plain gap.
func (c *cluster) restart() {
	o := c.register()
	p := c.partition()
	end, _ := p.Takeover()
	c.must(&state.OpenPartitions{Owner: o, Entries: []state.PartitionOpen{{Topic: c.topic, Epoch: p.Epoch, End: end, Tail: state.TailProven}}})
	if q := c.partition(); q.Ceiling < end+1<<20 {
		c.must(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: c.topic, Epoch: q.Epoch, Ceiling: end + 1<<40}}})
	}
}

// round carries out what is proposed, and returns how much that was. Nothing may be refused.
func (c *cluster) round(l Limits) (n int) {
	c.t.Helper()
	list := l.Merges(c.known(), c.now, func(catalog.Segment) bool { return false })
	for _, m := range list {
		n++
		c.swap(l, m)
	}
	p := c.known()
	if page, ok := l.Unpage(p); ok {
		n++
		c.must(&state.UnpageCatalog{Owner: c.partition().Owner, Topic: c.topic, Epoch: p.Epoch, Start: page.Start, Object: page.Object, Content: c.pages[page.Start], At: c.now})
	} else if list := l.Page(p, nil); list != nil {
		n++
		c.unique++
		page, content := catalog.NewPage(c.topic, 0, list, catalog.Object{Kind: catalog.PageObject, Incarnation: c.partition().Owner.Incarnation, Unique: c.unique})
		c.pages[page.Start] = content
		c.must(&state.PageCatalog{Owner: c.partition().Owner, Topic: c.topic, Epoch: p.Epoch, Page: page})
	}
	return n
}

func (c *cluster) swap(l Limits, m Merge) {
	c.t.Helper()
	p := c.partition()
	c.unique++
	last := m.Inputs[len(m.Inputs)-1]
	out := catalog.Segment{
		Start: m.Start(), End: m.End(), Bytes: m.Bytes, FirstTime: m.Inputs[0].FirstTime, LastTime: last.LastTime,
		Object: catalog.Object{Kind: catalog.Own, Epoch: p.Epoch, Incarnation: p.Owner.Incarnation, Unique: c.unique},
	}
	e := state.SegmentSwap{Topic: c.topic, Epoch: p.Epoch, Outputs: []catalog.Segment{out}}
	var grains []grain
	for _, s := range m.Inputs {
		e.Inputs = append(e.Inputs, catalog.Input{Start: s.Start, Object: s.Object})
		grains = append(grains, c.made[s.Object][s.Start]...)
	}
	for i := range grains {
		g := &grains[i]
		g.again++
		bound := int(math.Floor(math.Log2(float64(l.Most) / float64(g.bytes))))
		if g.cut {
			bound++
		}
		if g.again > max(bound, 0) {
			c.t.Fatalf("%d bytes are written for the %d. time: at most %d", g.bytes, g.again, bound)
		}
	}
	if out.Bytes > l.Most && len(m.Inputs) > 1 {
		c.t.Fatalf("a segment of %d bytes is made, at most %d", out.Bytes, l.Most)
	}
	c.must(&state.SwapSegments{Owner: p.Owner, At: c.now, Entries: []state.SegmentSwap{e}})
	c.note(out, grains)
	c.merged += out.Bytes
}

func testLimits() Limits {
	return Limits{Most: 1 << 20, Ratio: 4, Enough: 64 << 10, Patience: time.Minute, Settled: 10 * time.Minute, Inputs: 40, Hot: 30}.WithDefaults()
}

// TestProposalsAreAcceptedAndEnd: whatever was exported, cut, restarted and given up, the state refuses nothing that is
// proposed, no byte is written too often, and once nothing happens any more there is nothing left to do.
func TestProposalsAreAcceptedAndEnd(t *testing.T) {
	for seed := range uint64(15) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			c, l := newCluster(t, seed), testLimits()
			for range 300 {
				switch c.rnd.IntN(20) {
				case 0:
					c.restart()
				case 1:
					p := c.partition()
					if k := p.ColdEnd(); k > p.LogStart {
						start := p.LogStart + c.rnd.Uint64N((k-p.LogStart)/4+1)
						c.must(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: c.topic, Epoch: p.Epoch, Floor: max(p.Floor, k), LogStart: start, At: c.now}}})
					}
				case 2:
					c.now += c.rnd.Int64N(20 * 60_000)
				case 3, 4, 5:
					c.round(l)
				default:
					c.commit(1+c.rnd.Int64N(1<<(4+c.rnd.IntN(16))), c.rnd.IntN(3) > 0)
				}
			}
			c.now += time.Hour.Milliseconds()
			rounds := 0
			for c.round(l) > 0 {
				if rounds++; rounds > 50 {
					t.Fatal("there is always something left to do")
				}
			}
			for s := range c.partition().Catalog.All() {
				if s.Object.Kind == catalog.Cut {
					t.Fatalf("a piece of a cut is left at %d", s.Start)
				}
			}
		})
	}
}

// TestASteadyLogIsWrittenAgainAFewTimes states the write amplification of a log of small segments that never pauses.
func TestASteadyLogIsWrittenAgainAFewTimes(t *testing.T) {
	for name, test := range map[string]struct {
		bytes  int64
		cut    bool
		pieces int
		most   float64
	}{
		"cuts of 64 KiB":       {64 << 10, true, 6_000, 2.8}, // out of the cut after Patience: 8 MB; 60 MB; the full length
		"segments of 1 MiB":    {1 << 20, false, 2_000, 2.2},
		"segments of 64 MiB":   {64 << 20, false, 400, 1.01},
		"segments of 200 MiB":  {200 << 20, false, 100, 0},
		"cuts of 300 bytes":    {300, true, 4_000, 4.2},
		"segments of 16 bytes": {16, false, 3_000, 5},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			l := Limits{}.WithDefaults()
			longest := 0
			for i := range test.pieces {
				c.commit(test.bytes, test.cut)
				if i%16 == 0 {
					c.round(l)
				}
				longest = max(longest, c.partition().Catalog.Len())
			}
			got := float64(c.merged) / float64(c.written)
			t.Logf("%.2f bytes are written again for each byte exported; at most %d segments outside of pages, %d at the end", got, longest, c.partition().Catalog.Len())
			if got > test.most {
				t.Errorf("%.2f bytes are written again for each, want at most %.2f", got, test.most)
			}
			if longest > 1100 {
				t.Errorf("the catalog had %d segments outside of pages", longest)
			}
		})
	}
}

// TestMergesStayWithinARange: of two ranges each is merged by itself.
func TestMergesStayWithinARange(t *testing.T) {
	c := newCluster(t, 1)
	for i := range 2 {
		if i > 0 {
			c.restart()
		}
		for range 8 {
			c.commit(1<<10, false)
		}
	}
	c.now += time.Hour.Milliseconds()
	p := c.known()
	if len(p.Ranges) != 2 {
		t.Fatalf("%d ranges, want 2", len(p.Ranges))
	}
	list := testLimits().Merges(p, c.now, func(catalog.Segment) bool { return false })
	if len(list) == 0 {
		t.Fatal("nothing is merged")
	}
	for _, m := range list {
		if r := p.Range(m.Start()); r == nil || m.End() > r.End {
			t.Errorf("[%d, %d) lies in two ranges", m.Start(), m.End())
		}
	}
}

func TestPagesLeaveOutWhatTheyMayNotList(t *testing.T) {
	seg := func(start, end uint64, k catalog.Kind) catalog.Segment {
		o := catalog.Object{Kind: k, Epoch: 1, Incarnation: 1, Unique: start + 1}
		if k == catalog.Cut {
			o = catalog.Object{Kind: k, Store: [16]byte{1}, Incarnation: 1, Number: start + 1, Unique: 1}
		}
		return catalog.Segment{Start: start, End: end, Object: o, Bytes: 1 << 30, FirstTime: 1, LastTime: 1}
	}
	build := func(leave func(i int) bool, kind func(i int) catalog.Kind) Partition {
		p := Partition{Topic: [16]byte{1}, Ranges: []Range{{0, 10_000, []Epoch{{1, 0}}}}}
		for i := range 100 {
			if !leave(i) {
				p.Catalog = p.Catalog.Add(seg(uint64(10*i), uint64(10*i+10), kind(i)))
			}
		}
		return p
	}
	none := func(int) bool { return false }
	own := func(int) catalog.Kind { return catalog.Own }
	l := Limits{Hot: 30}.WithDefaults()
	for name, test := range map[string]struct {
		p          Partition
		start, end uint64
	}{
		"the oldest half": {build(none, own), 0, 500},
		"not over a hole": {build(func(i int) bool { return i == 20 }, own), 210, 500},
		"not over a cut": {build(none, func(i int) catalog.Kind {
			if i == 30 {
				return catalog.Cut
			}
			return catalog.Own
		}), 0, 300},
	} {
		t.Run(name, func(t *testing.T) {
			list := l.Page(test.p, nil)
			if len(list) == 0 || list[0].Start != test.start || list[len(list)-1].End != test.end {
				t.Errorf("%d segments, want [%d, %d)", len(list), test.start, test.end)
			}
		})
	}
	p := build(none, own)
	p.Ranges = []Range{{0, 500, []Epoch{{1, 0}}}, {500, 2000, []Epoch{{2, 500}}}}
	if list := l.Page(p, nil); len(list) != 50 {
		t.Errorf("%d segments of two ranges that follow each other, want 50", len(list))
	}
	if list := l.Page(p, []Merge{{Inputs: slices.Collect(p.Catalog.All())[5:10]}}); len(list) != 50 {
		t.Errorf("%d segments, want 50: a catalog of three times its length waits for no merge", len(list))
	}
	l.Hot = 60
	if list := l.Page(p, []Merge{{Inputs: slices.Collect(p.Catalog.All())[5:10]}}); len(list) != 40 || list[0].Start != 100 {
		t.Errorf("%d segments, want the 40 behind what is merged", len(list))
	}
}

// TestMergesThatReadCutsGoTogether, up to a number and a length; every other is a job by itself.
func TestMergesThatReadCutsGoTogether(t *testing.T) {
	merge := func(run uint64, bytes int64, kind catalog.Kind) Merge {
		return Merge{Bytes: bytes, Inputs: []catalog.Segment{{Object: catalog.Object{Kind: kind, Incarnation: run}}}}
	}
	l := Limits{Group: 3, GroupBytes: 100}
	jobs := l.Jobs([]Merge{
		merge(2, 10, catalog.Cut), merge(1, 60, catalog.Own), merge(1, 10, catalog.Cut), merge(2, 10, catalog.Cut), merge(1, 10, catalog.Cut),
		merge(2, 90, catalog.Cut), merge(2, 500, catalog.Cut),
	})
	var got []string
	for _, j := range jobs {
		text := ""
		for _, m := range j.Merges {
			text += fmt.Sprintf("%d:%d ", m.Inputs[0].Object.Incarnation, m.Bytes)
		}
		got = append(got, fmt.Sprintf("%s= %d", text, j.Bytes))
	}
	want := []string{"1:60 = 60", "1:10 1:10 2:10 = 30", "2:10 2:90 = 100", "2:500 = 500"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
