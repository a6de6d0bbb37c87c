package salvage

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/manifest"
	"github.com/danubemq/danube/meta/state"
)

// world is a cluster with one partition, its bucket, and what its owners have done. The state machine says what is true.
type world struct {
	t     *testing.T
	rnd   *rand.Rand
	s     *state.State
	topic state.TopicID
	owner state.Owner
	end   uint64             // of what the owner has acknowledged
	began []state.EpochStart // every epoch, for the state forgets those below the log's start
	lies  map[string]Piece   // in the bucket
	told  *manifest.Manifest
	seams int
	now   int64
	uniq  uint64
}

func newWorld(t *testing.T, seed uint64, level state.Level) *world {
	w := &world{t: t, rnd: rand.New(rand.NewPCG(seed, uint64(level))), s: state.New(), topic: state.TopicID{7}, lies: map[string]Piece{}, now: 1_700_000_000_000}
	w.must(&state.InitCluster{ID: [16]byte{1}, Name: "danube"})
	w.owner = w.register(1)
	w.must(&state.CreateTopic{ID: w.topic, Name: "/default/orders", At: w.now, Owners: []state.Owner{w.owner}, Settings: state.TopicSettings{
		Partitions: 1, Reliable: true, Durability: level,
	}})
	w.must(&state.CreateSubscription{Topic: w.topic, Name: "s", Start: []uint64{0}})
	w.opened()
	return w
}

func (w *world) must(c state.Command) state.Result {
	w.t.Helper()
	r := w.s.Apply(w.s.Index()+1, c)
	if r.Err != nil || r.Entry(0) != nil {
		w.t.Fatalf("%T %+v: %v %v", c, c, r.Err, r.Entry(0))
	}
	return r
}

func (w *world) n(below uint64) uint64 { return w.rnd.Uint64N(below) }

// opened takes note of the epoch that is open now.
func (w *world) opened() {
	p := w.part()
	w.began = append(w.began, state.EpochStart{Epoch: p.Epoch, Start: p.OpenStart()})
}

// epochsOf are those of a run of offsets.
func (w *world) epochsOf(from, to uint64) (out []state.EpochStart) {
	for _, e := range w.began {
		if e.Start <= from {
			out = []state.EpochStart{{Epoch: e.Epoch, Start: from}}
		} else if e.Start < to {
			out = append(out, e)
		}
	}
	return out
}

func (w *world) part() *state.Partition { return w.s.Partition(w.topic, 0) }

func (w *world) register(store byte) state.Owner {
	w.uniq++
	r := w.must(&state.RegisterStore{Store: state.StoreID{store}, Broker: fmt.Sprintf("n%d", store), Nonce: [16]byte{byte(w.uniq), byte(w.uniq >> 8), 1}})
	return state.Owner{Store: state.StoreID{store}, Incarnation: r.Incarnation}
}

// append acknowledges messages; of the floor the metadata hear sometimes.
func (w *world) append() {
	p := w.part()
	w.end = max(w.end, p.OpenStart()) + 1 + w.n(40)
	u := state.PartitionUpdate{Topic: w.topic, Epoch: p.Epoch, Ceiling: w.end + w.n(60)}
	if w.n(2) == 0 {
		u.Floor = w.end
	}
	w.must(&state.UpdatePartitions{Entries: []state.PartitionUpdate{u}})
}

// object puts one into the bucket that nobody has committed.
func (w *world) object(from, to uint64) Piece {
	w.uniq++
	epochs := w.epochsOf(from, to)
	s := catalog.Segment{
		Start: from, End: to, Bytes: 100, CRC: uint32(w.uniq), Object: catalog.Object{
			Kind: catalog.Own, Epoch: epochs[len(epochs)-1].Epoch, Incarnation: w.owner.Incarnation, Unique: w.uniq,
		},
	}
	if w.n(4) == 0 {
		s.Object = catalog.Object{Kind: catalog.Cut, Store: w.owner.Store, Incarnation: w.owner.Incarnation, Number: w.uniq}
	}
	piece := Piece{Place: Place{Topic: w.topic, Name: "/default/orders", Created: w.now}, Key: fmt.Sprint("object ", w.uniq), Segment: s, Epochs: epochs}
	w.lies[piece.Key] = piece
	return piece
}

// export stores what comes next, and perhaps never commits it.
func (w *world) export() {
	p := w.part()
	from, to, ok := p.NextExport()
	if !ok {
		return
	}
	if r := p.OpenRange(); r != nil && from >= r.Start {
		to = min(to, w.end)
	}
	if from >= to {
		return
	}
	piece := w.object(from, from+1+w.n(to-from))
	if w.n(4) == 0 {
		return // its run ended before it was committed
	}
	w.must(&state.CommitSegments{Owner: w.owner, Entries: []state.SegmentCommit{{
		Topic: w.topic, Epoch: p.Epoch, Epochs: p.Epochs(max(from, p.LogStart), piece.Segment.End), Segment: piece.Segment,
	}}})
}

// merge puts one object in the place of a few of one range; what it replaced stays in the bucket, or goes.
func (w *world) merge() {
	p := w.part()
	all := slices.Collect(p.Catalog.All())
	if len(all) < 2 {
		return
	}
	at := int(w.n(uint64(len(all) - 1)))
	some := all[at:min(len(all), at+2+int(w.n(3)))]
	for i := 1; i < len(some); i++ {
		if r := p.Range(max(some[0].Start, p.LogStart)); some[i].Start != some[i-1].End || r == nil || p.Range(some[i].Start) == nil || p.Range(some[i].Start).Start != r.Start {
			some = some[:i]
		}
	}
	if len(some) < 2 {
		return
	}
	w.uniq++
	first, last := some[0], some[len(some)-1]
	epochs := w.epochsOf(first.Start, last.End)
	made := Piece{Place: Place{Topic: w.topic, Name: "/default/orders", Created: w.now}, Key: fmt.Sprint("merged ", w.uniq), Epochs: epochs, Segment: catalog.Segment{
		Start: first.Start, End: last.End, Bytes: 300, Object: catalog.Object{Kind: catalog.Own, Epoch: epochs[len(epochs)-1].Epoch, Incarnation: w.owner.Incarnation, Unique: w.uniq},
	}}
	w.lies[made.Key] = made
	if w.n(4) == 0 {
		return // stored and not swapped
	}
	var inputs []catalog.Input
	for _, s := range some {
		inputs = append(inputs, catalog.Input{Start: s.Start, Object: s.Object})
	}
	w.must(&state.SwapSegments{Owner: w.owner, At: w.now, Entries: []state.SegmentSwap{{Topic: w.topic, Epoch: p.Epoch, Inputs: inputs, Outputs: []catalog.Segment{made.Segment}}}})
	for key, piece := range w.lies {
		if slices.Contains(some, piece.Segment) && w.n(2) == 0 {
			delete(w.lies, key)
		}
	}
}

// trim moves the log's start; what lies below it stays in the bucket, or goes.
func (w *world) trim() {
	p := w.part()
	for i := range p.Ranges {
		if p.Ranges[i].Status == state.RangeOrphaned {
			return
		}
	}
	if p.Floor <= p.LogStart {
		return
	}
	start := p.LogStart + w.n(p.Floor-p.LogStart)
	w.must(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: w.topic, Epoch: p.Epoch, LogStart: start, At: w.now}}})
	for key, piece := range w.lies {
		if piece.Segment.End <= start && w.n(2) == 0 {
			delete(w.lies, key)
		}
	}
}

// restart opens the next epoch with the next run of the same store.
func (w *world) restart() {
	p := w.part()
	end := max(w.end, p.OpenRange().Start)
	w.owner = w.register(w.owner.Store[0])
	w.must(&state.OpenPartitions{Owner: w.owner, Entries: []state.PartitionOpen{{Topic: w.topic, Epoch: p.Epoch, End: end}}})
	w.end = end
	w.opened()
}

// lose takes the store away; another goes on at the ceiling. What the old owner stores after that is never committed.
func (w *world) lose() {
	p := w.part()
	w.must(&state.LoseStore{Owner: w.owner})
	from, _, _ := p.NextExport()
	late := w.end
	if w.n(2) == 0 && from < late && p.Range(from) != nil && p.Range(from) == p.Range(late-1) {
		w.object(from, late)
	}
	w.owner = w.register(w.owner.Store[0] + 1)
	w.must(&state.GrantPartitions{Entries: []state.PartitionGrant{{Topic: w.topic, Epoch: p.Epoch, To: w.owner}}})
	p = w.part()
	end, tail := p.Takeover()
	w.must(&state.OpenPartitions{Owner: w.owner, Entries: []state.PartitionOpen{{Topic: w.topic, Epoch: p.Epoch, End: end, Tail: tail}}})
	w.end = w.part().OpenStart()
	w.opened()
}

func (w *world) step() {
	switch w.n(12) {
	case 0, 1, 2:
		w.append()
	case 3, 4, 5, 6:
		w.export()
	case 7, 8:
		w.merge()
	case 9:
		w.trim()
	case 10:
		w.restart()
	case 11:
		if w.n(3) == 0 {
			w.lose()
		}
	}
	if w.n(20) == 0 {
		w.told = manifest.Of(w.s.Freeze(), w.now)
	}
}

// rebuilt is the state that the bucket comes to.
func (w *world) rebuilt(told *manifest.Manifest) (*state.State, Result) {
	w.t.Helper()
	e := Evidence{Manifest: told}
	for _, piece := range w.lies {
		e.Pieces = append(e.Pieces, piece)
	}
	w.rnd.Shuffle(len(e.Pieces), func(i, j int) { e.Pieces[i], e.Pieces[j] = e.Pieces[j], e.Pieces[i] })
	out := Plan(e)
	if len(out.Seams) > 0 {
		for _, x := range out.Seams {
			w.uniq++
			piece := Piece{Place: x.Piece.Place, Key: fmt.Sprint("seam ", w.uniq), Epochs: w.epochsOf(x.Start, x.End), Segment: catalog.Segment{
				Start: x.Start, End: x.End, Bytes: 50, Object: catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: 1 << 32, Unique: w.uniq},
			}}
			e.Pieces = append(e.Pieces, piece)
			w.lies[piece.Key] = piece
		}
		w.seams += len(out.Seams)
		if out = Plan(e); len(out.Seams) > 0 {
			w.t.Fatalf("%d seams are left\n%s", len(out.Seams), w.describe(told))
		}
	}
	s, err := state.Rebuild(state.Remains{
		Cluster: state.Cluster{ID: [16]byte{1}, Name: "danube", History: out.History}, Run: state.RegisterStore{Store: state.StoreID{200}, Broker: "new", Nonce: [16]byte{9}},
		Namespaces: out.Namespaces, Topics: out.Topics, Subscriptions: out.Subscriptions,
	})
	if err != nil {
		w.t.Fatalf("%v\n%s", err, w.describe(told))
	}
	var b bytes.Buffer
	if _, err := s.Freeze().WriteTo(&b); err != nil {
		w.t.Fatal(err)
	}
	if again, err := state.Restore(&b); err != nil || again.Hash() != s.Hash() {
		w.t.Fatalf("not the same after a snapshot: %v\n%s", err, w.describe(told))
	}
	return s, out
}

func (w *world) describe(told *manifest.Manifest) string {
	var b bytes.Buffer
	p := w.part()
	fmt.Fprintf(&b, "truth: start %d, floor %d, ceiling %d, ranges %+v\n", p.LogStart, p.Floor, p.Ceiling, p.Ranges)
	for s := range p.Catalog.All() {
		fmt.Fprintf(&b, "  catalog [%d, %d) %v\n", s.Start, s.End, s.Object)
	}
	if told != nil {
		fmt.Fprintf(&b, "told: %+v\n", told.Topics[0].Partitions[0])
	}
	for key, piece := range w.lies {
		fmt.Fprintf(&b, "  %s [%d, %d) %v\n", key, piece.Segment.Start, piece.Segment.End, piece.Epochs)
	}
	return b.String()
}

// check holds what was made of the bucket, with what a manifest told, against the truth.
func (w *world) check(told *manifest.Manifest) {
	t := w.t
	t.Helper()
	s, out := w.rebuilt(told)
	p, q := w.part(), s.Partition(w.topic, 0)
	if q == nil {
		if len(w.lies) > 0 {
			t.Fatalf("nothing is left\n%s", w.describe(told))
		}
		return
	}
	top := p.Ceiling
	for _, piece := range w.lies {
		top = max(top, piece.Segment.End)
	}
	exact := uint64(0) // up to here the manifest says which offsets there are
	if told != nil {
		exact = ^uint64(0)
		if k := told.Topics[0].Partitions[0]; len(k.Ranges) > 0 && k.Ranges[len(k.Ranges)-1].Status == state.RangeOpen {
			open := k.Ranges[len(k.Ranges)-1]
			exact = open.Epochs[len(open.Epochs)-1].Start
		}
	}
	for n := p.LogStart; n < top; n++ {
		r, here := p.Range(n), q.Catalog.Covers(n, n+1)
		switch {
		case p.Catalog.Covers(n, n+1) && !here:
			t.Fatalf("offset %d was in the catalog and is not\n%s", n, w.describe(told))
		case here && r != nil && q.Range(n).Epoch(n) != r.Epoch(n):
			t.Fatalf("offset %d has epoch %d, not %d\n%s", n, q.Range(n).Epoch(n), r.Epoch(n), w.describe(told))
		case here && r == nil && n < exact:
			t.Fatalf("offset %d is in the catalog, and there was none\n%s", n, w.describe(told))
		case told != nil && n < exact && r != nil && n >= q.LogStart && q.Range(n) == nil:
			t.Fatalf("offset %d was given out and is in no range\n%s", n, w.describe(told))
		}
	}
	open := q.OpenRange()
	if open == nil || open.Start < top || told != nil && open.Start < told.Topics[0].Partitions[0].Ceiling+state.HistoryGap || q.Epoch <= p.Epoch || q.Epoch>>48 == p.Epoch>>48 {
		t.Fatalf("goes on at %+v under epoch %x\n%s", open, q.Epoch, w.describe(told))
	}
	// Each object is in the catalog, or is said to be left out, once.
	named := 0
	for range q.Catalog.All() {
		named++
	}
	if named+len(out.Left) != len(w.lies) {
		t.Fatalf("%d objects are named and %d left out, of %d\n%s", named, len(out.Left), len(w.lies), w.describe(told))
	}
	if told != nil {
		if sub := s.Subscription(w.topic, "s"); sub == nil || s.TopicByID(w.topic).Settings != w.s.TopicByID(w.topic).Settings {
			t.Fatalf("subscription %+v, topic %+v", sub, s.TopicByID(w.topic))
		}
	}
}

// Whatever owners, mergers, zombies and retention did, what was in the catalog at the end is in it again, under the same
// epochs: with a manifest of any age, and with none.
func TestWhatWasCatalogedIsAgain(t *testing.T) {
	for _, level := range []state.Level{state.LevelLocal, state.LevelObject} {
		objects, seams, left := 0, 0, map[Why]int{}
		for seed := range uint64(120) {
			w := newWorld(t, seed, level)
			for range 20 + w.n(120) {
				w.step()
			}
			w.check(w.told)
			w.check(manifest.Of(w.s.Freeze(), w.now))
			w.check(nil)
			_, out := w.rebuilt(w.told)
			objects, seams = objects+len(w.lies), seams+w.seams
			for _, l := range out.Left {
				left[l.Why]++
			}
		}
		if objects < 1000 || seams == 0 || left[Covered] == 0 || left[Trimmed] == 0 || left[Unknown] == 0 && level == state.LevelObject {
			t.Errorf("%s: too little was tried: %d objects, %d seams, left out %v", level, objects, seams, left)
		}
	}
}
