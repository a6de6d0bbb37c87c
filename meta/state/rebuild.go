package state

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/danubemq/danube/meta/catalog"
)

// Remains is what is left of a cluster whose metadata is gone: what segments and a manifest say (R22).
type Remains struct {
	Cluster       Cluster       // History is the newest one that is known of
	Run           RegisterStore // the store, as it registers; its nonce is used once
	Namespaces    []Namespace
	Topics        []RemainsTopic
	Subscriptions []Subscription // of these topics
}

// RemainsTopic is a topic of which something is left.
type RemainsTopic struct {
	ID         TopicID
	Name       string
	Created    int64 // Unix milliseconds
	Settings   TopicSettings
	Partitions []RemainsPartition // by number, each at most once
}

// RemainsPartition is a partition that was ever opened.
type RemainsPartition struct {
	Number     uint32
	Epoch      uint64 // the highest that is known of beside those of the pieces
	LogStart   uint64
	Seen       uint64         // the highest end that is known of beside those of the pieces
	Pieces     []RemainsPiece // ascending, disjoint; epochs grow along them. What lies between them is a plain gap
	Segments   []catalog.Segment
	Superseded Offsets
}

// RemainsPiece is a run of offsets of one epoch.
type RemainsPiece struct {
	Epoch, Start, End uint64
	Stored            bool // the store holds it whole; otherwise the segments do
	Lost              bool // nobody does
}

// HistoryGap is how far above the highest offset seen every partition goes on in a new history (R22).
const HistoryGap = 1 << 32

// Rebuild makes the state of a cluster of the one store again, in the history after the newest that is known: no epoch, run
// or offset of an earlier history is ever given again.
//
// Errors: refusals of names and numbers that no cluster has.
func Rebuild(r Remains) (*State, error) {
	s := New()
	do := func(c Command) (Result, error) {
		res := s.Apply(s.index+1, c)
		return res, res.Err
	}
	if _, err := do(&InitCluster{ID: r.Cluster.ID, Name: r.Cluster.Name}); err != nil {
		return nil, fmt.Errorf("rebuild: %w", err)
	}
	s.cluster.History = r.Cluster.History
	if _, err := do(&NewHistory{History: r.Cluster.History + 1}); err != nil {
		return nil, fmt.Errorf("rebuild: %w", err)
	}
	run, err := do(&r.Run)
	if err != nil {
		return nil, fmt.Errorf("rebuild: %w", err)
	}
	for _, n := range r.Namespaces {
		_, err := do(&CreateNamespace{Name: n.Name})
		if err == nil {
			_, err = do(&SetNamespace{Name: n.Name, Limits: n.Limits})
		}
		if err != nil {
			return nil, fmt.Errorf("rebuild namespace %s: %w", n.Name, err)
		}
	}
	for _, t := range r.Topics {
		namespace, _, err := SplitTopic(t.Name)
		if err == nil && s.Namespace(namespace) == nil {
			_, err = do(&CreateNamespace{Name: namespace})
		}
		if err == nil {
			_, err = do(&CreateTopic{ID: t.ID, Name: t.Name, At: t.Created, Settings: t.Settings})
		}
		for _, p := range t.Partitions {
			if err == nil {
				err = s.rebuildPartition(t.ID, p, Owner{r.Run.Store, run.Incarnation})
			}
		}
		if err != nil {
			return nil, fmt.Errorf("rebuild topic %s: %w", t.Name, err)
		}
	}
	for i := range r.Subscriptions {
		if err := s.rebuildSubscription(r.Subscriptions[i]); err != nil {
			return nil, fmt.Errorf("rebuild subscription %s: %w", r.Subscriptions[i].Name, err)
		}
	}
	return s, nil
}

// rebuildPartition gives a partition the ranges that its pieces are and opens an epoch of the new history far above them.
func (s *State) rebuildPartition(topic TopicID, r RemainsPartition, owner Owner) error {
	p, err := s.partition(topic, r.Number)
	if err != nil {
		return err
	}
	end := max(r.Seen, r.LogStart)
	if n := len(r.Pieces); n > 0 {
		end = max(end, r.Pieces[n-1].End)
	}
	if end > maxOffset-HistoryGap-OpenCeiling {
		return refuse(ErrInvalid, "partition %d: offset %d", r.Number, end)
	}
	p.LogStart, p.Superseded = r.LogStart, r.Superseded.From(r.LogStart)
	if !p.Superseded.Valid() {
		return refuse(ErrInvalid, "partition %d: superseded offsets", r.Number)
	}
	at := r.LogStart
	for _, piece := range r.Pieces {
		if piece.Start < at || piece.End < piece.Start {
			return refuse(ErrInvalid, "partition %d: offsets [%d, %d) after %d", r.Number, piece.Start, piece.End, at)
		}
		if piece.Epoch < p.Epoch || piece.Epoch == 0 {
			return refuse(ErrInvalid, "partition %d: epoch %d after %d", r.Number, piece.Epoch, p.Epoch)
		}
		p.Ranges = appendRange(p.Ranges, piece.asRange(owner.Store))
		p.Epoch, at = piece.Epoch, piece.End
	}
	if err := s.rebuildCatalog(&p, r.Segments); err != nil {
		return err
	}
	p.Epoch = s.nextEpoch(max(p.Epoch, r.Epoch))
	p.begin(owner, end+HistoryGap)
	s.put(p)
	return nil
}

func (p RemainsPiece) asRange(store StoreID) Range {
	r := Range{Epochs: []EpochStart{{p.Epoch, p.Start}}, Start: p.Start, End: p.End, Lowest: LevelLocal, Status: RangeSealed}
	if p.Lost {
		r.Status = RangeLost
	} else if p.Stored {
		r.Stores = []StoreID{store}
	}
	return r
}

// rebuildCatalog gives p what the cold tier has of it; what no store has must be in it.
func (s *State) rebuildCatalog(p *Partition, segments []catalog.Segment) error {
	end := p.LogStart
	for _, seg := range segments {
		if !seg.Valid() || seg.End <= end || seg.Start < end && end > p.LogStart {
			return refuse(ErrInvalid, "partition %d: segment [%d, %d) after %d", p.Number, seg.Start, seg.End, end)
		}
		p.Catalog, end = p.Catalog.Add(seg), seg.End
		s.objects.Add(seg)
		for at := max(seg.Start, p.LogStart); at < seg.End; {
			r := p.Range(at)
			if r == nil || r.Status != RangeSealed {
				return refuse(ErrInvalid, "partition %d: segment [%d, %d) holds offset %d, which is none", p.Number, seg.Start, seg.End, at)
			}
			at = r.End
		}
	}
	for i := range p.Ranges {
		if r := &p.Ranges[i]; r.Status == RangeSealed && len(r.Stores) == 0 && !p.Catalog.Covers(r.Start, r.End) {
			return refuse(ErrInvalid, "partition %d: nobody has all of [%d, %d)", p.Number, r.Start, r.End)
		}
	}
	return nil
}

// rebuildSubscription makes a subscription again with what it has acknowledged; what is lost since, and what lies in front of the
// new history, it passes (R18).
func (s *State) rebuildSubscription(sub Subscription) error {
	t := s.liveTopic(sub.Topic)
	if t == nil {
		return refuse(ErrNotFound, "no topic with id %s", sub.Topic)
	}
	if sub.ID >= s.nextSub || s.SubscriptionByID(sub.ID) != nil || s.Subscription(sub.Topic, sub.Name) != nil {
		return refuse(ErrInvalid, "id %d or its name is used twice, or of a later history", sub.ID)
	}
	if err := errors.Join(CheckName("subscription", sub.Name), invalid(sub.Options.Check()), s.checkStart(t, sub.Start)); err != nil {
		return err
	}
	if sub.Type > KeyShared || len(sub.Cursors) != len(sub.Start) {
		return refuse(ErrInvalid, "type %d with %d cursors", sub.Type, len(sub.Cursors))
	}
	sub.Cursors = slices.Clone(sub.Cursors)
	for i := range sub.Cursors {
		c, p := &sub.Cursors[i], s.Partition(sub.Topic, uint32(i))
		if n := len(c.Acked); !c.Acked.Valid() || c.Prefix > p.Ceiling || n > 0 && c.Acked[n-1].End > p.Ceiling {
			return refuse(ErrInvalid, "partition %d: acknowledged above the ceiling %d", i, p.Ceiling)
		}
		*c = c.move(&CursorDelta{Acked: p.passed()})
	}
	s.subs.Set(sub.ID, &sub)
	s.subNames.Set(subKey{sub.Topic, sub.Name}, sub.ID)
	return nil
}

// passed are the offsets of a partition that no subscription waits for: what is LOST, what was stored again, and the gaps
// between its ranges.
func (p *Partition) passed() Offsets {
	var out Offsets
	at := p.LogStart
	for i := range p.Ranges {
		r := &p.Ranges[i]
		out = out.Extend(OffsetRange{Start: at, End: r.Start})
		at = r.Start
		if r.Status == RangeLost {
			at, out = r.End, out.Extend(OffsetRange{Start: r.Start, End: r.End})
		} else if r.Status != RangeOpen {
			at = r.End
		}
	}
	return out.Union(p.Superseded)
}

// UniqueNames gives topics that share a name, as one that was deleted and made again may leave them, names of their own:
// the newest keeps it. It returns those that were renamed, with the name they had.
func UniqueNames(topics []RemainsTopic) map[TopicID]string {
	slices.SortStableFunc(topics, func(a, b RemainsTopic) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(b.Created, a.Created))
	})
	renamed := make(map[TopicID]string)
	for i := range topics {
		if i > 0 && topics[i].Name == topics[i-1].Name || i > 0 && renamed[topics[i-1].ID] == topics[i].Name {
			renamed[topics[i].ID] = topics[i].Name
			topics[i].Name += "-" + topics[i].ID.String()[:8]
		}
	}
	return renamed
}
