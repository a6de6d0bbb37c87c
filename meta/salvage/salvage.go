package salvage

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/manifest"
	"github.com/danubemq/danube/meta/state"
)

// Evidence is what is left of a cluster.
type Evidence struct {
	// Manifest is the newest that can be read. Nil: objects and files are all there is.
	Manifest *manifest.Manifest
	Pieces   []Piece // in the cold tier
	Local    []Local // on the disk of the store that the cluster begins again on
}

// Place is a partition and what a segment says of its topic.
type Place struct {
	Topic     state.TopicID
	Partition uint32
	Name      string // of the topic when the segment was made
	Created   int64  // of the segment, Unix milliseconds
}

// Piece is a whole segment in the cold tier: an object, or a part of a cut.
type Piece struct {
	Place
	Key     string // of the object
	Segment catalog.Segment
	Epochs  []state.EpochStart // of its batches; the first begins at or below its start
}

// Local is a run of offsets of one epoch that the store holds whole. One without offsets says that the epoch was opened.
type Local struct {
	Place
	Epoch, Start, End uint64
}

// Why says why a piece was left out.
type Why uint8

// The reasons.
const (
	Covered  Why = iota + 1 // others hold the same offsets, or a part of them: merged, or stored twice
	Replaced                // an offset of it belongs to a newer epoch
	Unknown                 // an offset of it is none that there was: stored, and never committed
	Trimmed                 // the log begins behind it
	Deleted                 // its topic was deleted
	Nonsense                // offsets or a partition that no cluster has
)

// String returns the reason as output spells it.
func (w Why) String() string {
	names := [...]string{"held by others", "of an older epoch", "never committed", "below the start of the log", "topic was deleted", "nonsense"}
	if w < Covered || int(w) > len(names) {
		return fmt.Sprintf("reason %d", uint8(w))
	}
	return names[w-1]
}

// Left is a piece that was left out.
type Left struct {
	Piece *Piece
	Why   Why
}

// Seam are offsets [Start, End) that only a piece has that was left out, for it overlaps with others. Whoever puts them into
// an object of their own, and plans again with that, has them in the catalog.
type Seam struct {
	Piece      *Piece
	Start, End uint64
}

// Result is what the evidence comes to.
type Result struct {
	Namespaces    []state.Namespace
	Topics        []state.RemainsTopic // by name
	Subscriptions []state.Subscription
	Renamed       map[state.TopicID]string // topics that shared a name, with the one they had
	Unlisted      []state.TopicID          // topics that the manifest does not have: younger than it
	Left          []Left
	Seams         []Seam
	History       uint16 // the newest that the evidence knows of
}

// unheard is how much older than the manifest a segment is at most whose topic the manifest may lack: clocks of brokers
// that own partitions are at most a minute apart, and a manifest may be of a leader that was paused while it wrote.
const unheard = 15 * 60 * 1000

// Plan makes of the evidence what the state is made of.
func Plan(e Evidence) Result {
	p := planner{topics: map[state.TopicID]*topic{}, manifest: e.Manifest}
	if m := e.Manifest; m != nil {
		p.out.Namespaces, p.out.Subscriptions, p.out.History = m.Namespaces, m.Subscriptions, m.Cluster.History
		for i := range m.Topics {
			p.topics[m.Topics[i].ID] = newTopic(&m.Topics[i])
		}
	}
	for i := range e.Local {
		if l := &e.Local[i]; l.Partition < state.MaxPartitions && l.Start <= l.End && l.End < highest {
			p.seen(l.Epoch)
			t := p.topic(&l.Place)
			t.local[l.Partition] = append(t.local[l.Partition], l)
		}
	}
	for i := range e.Pieces {
		piece := &e.Pieces[i]
		if !piece.sound() {
			p.out.Left = append(p.out.Left, Left{piece, Nonsense})
			continue
		}
		p.seen(piece.Epochs[len(piece.Epochs)-1].Epoch)
		t := p.topic(&piece.Place)
		t.pieces[piece.Partition] = append(t.pieces[piece.Partition], piece)
	}
	for _, id := range p.ids() {
		p.finish(p.topics[id])
	}
	p.out.Renamed = state.UniqueNames(p.out.Topics)
	slices.SortStableFunc(p.out.Left, func(a, b Left) int { return cmp.Compare(a.Piece.Key, b.Piece.Key) })
	return p.out
}

// highest bounds offsets that a partition can still go on behind.
const highest = 1<<62 - state.HistoryGap - state.OpenCeiling

// sound says whether a piece can be one of a partition at all.
func (p *Piece) sound() bool {
	s := p.Segment
	if !s.Valid() || s.End >= highest || p.Partition >= state.MaxPartitions || len(p.Epochs) == 0 || p.Epochs[0].Start > s.Start || p.Epochs[0].Epoch == 0 {
		return false
	}
	for i := 1; i < len(p.Epochs); i++ {
		if p.Epochs[i].Epoch <= p.Epochs[i-1].Epoch || p.Epochs[i].Start < p.Epochs[i-1].Start {
			return false
		}
	}
	return p.Epochs[len(p.Epochs)-1].Start < s.End
}

// planner gathers what belongs together.
type planner struct {
	manifest *manifest.Manifest
	topics   map[state.TopicID]*topic
	out      Result
}

// topic is what is known of one.
type topic struct {
	Place                  // by its newest segment
	listed *manifest.Topic // in the manifest
	pieces map[uint32][]*Piece
	local  map[uint32][]*Local
}

func newTopic(listed *manifest.Topic) *topic {
	return &topic{listed: listed, pieces: map[uint32][]*Piece{}, local: map[uint32][]*Local{}}
}

func (p *planner) seen(epoch uint64) { p.out.History = max(p.out.History, uint16(epoch>>48)) }

func (p *planner) topic(at *Place) *topic {
	t := p.topics[at.Topic]
	if t == nil {
		t = newTopic(nil)
		p.topics[at.Topic] = t
	}
	if t.Name == "" || at.Created > t.Created {
		t.Place = *at
	}
	return t
}

func (p *planner) ids() []state.TopicID {
	var ids []state.TopicID
	for id := range p.topics {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b state.TopicID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// finish plans the partitions of a topic.
func (p *planner) finish(t *topic) {
	if p.gone(t) {
		for _, pieces := range t.pieces {
			for _, piece := range pieces {
				p.out.Left = append(p.out.Left, Left{piece, Deleted})
			}
		}
		return
	}
	out := state.RemainsTopic{ID: t.Topic, Name: t.Name, Created: t.Created}
	if t.listed == nil {
		p.out.Unlisted = append(p.out.Unlisted, t.Topic)
		out.Settings = state.TopicSettings{Partitions: t.partitions(), Reliable: true, Durability: state.LevelLocal}
	} else {
		out.ID, out.Name, out.Created, out.Settings = t.listed.ID, t.listed.Name, t.listed.CreatedAt, t.listed.Settings
	}
	for n := range out.Settings.Partitions {
		part := partition{pieces: t.pieces[n], local: t.local[n]}
		delete(t.pieces, n)
		if t.listed != nil {
			part.known = &t.listed.Partitions[n]
		}
		r, left, seams := part.plan()
		p.out.Left, p.out.Seams = append(p.out.Left, left...), append(p.out.Seams, seams...)
		if r.Number = n; part.known != nil && part.known.Epoch > 0 || len(part.pieces)+len(part.local) > 0 {
			out.Partitions = append(out.Partitions, r)
		}
	}
	for _, pieces := range t.pieces { // of partitions that the topic does not have
		for _, piece := range pieces {
			p.out.Left = append(p.out.Left, Left{piece, Nonsense})
		}
	}
	p.out.Topics = append(p.out.Topics, out)
}

// gone says whether a topic was deleted: the manifest has its tombstone, or has forgotten it.
func (p *planner) gone(t *topic) bool {
	if t.listed != nil {
		return t.listed.Deleted()
	}
	return p.manifest != nil && t.Created < p.manifest.Time-unheard
}

// partitions is as many as have left something.
func (t *topic) partitions() uint32 {
	n := uint32(0)
	for i := range t.pieces {
		n = max(n, i+1)
	}
	for i := range t.local {
		n = max(n, i+1)
	}
	return n
}
