package state

import (
	"cmp"
	"fmt"
	"slices"
)

// Remains is what is left of a cluster whose metadata is gone: what the segments of one store say (R22).
type Remains struct {
	Cluster Cluster       // History is the newest one that the segments know of
	Run     RegisterStore // the store, as it registers; its nonce is used once
	Topics  []RemainsTopic
}

// RemainsTopic is a topic that segments name.
type RemainsTopic struct {
	ID         TopicID
	Name       string
	Created    int64              // Unix milliseconds
	Partitions []RemainsPartition // by number, each at most once
}

// RemainsPartition is a partition that segments hold.
type RemainsPartition struct {
	Number uint32
	Pieces []RemainsPiece // ascending, disjoint; epochs grow along them
}

// RemainsPiece is a run of offsets of one epoch that the store holds whole.
type RemainsPiece struct {
	Epoch, Start, End uint64
}

// HistoryGap is how far above the highest offset seen every partition goes on in a new history (R22).
const HistoryGap = 1 << 32

// Rebuild makes the state of a cluster of the one store again, in the history after the newest that is known: no epoch, run
// or offset of an earlier history is ever given again. What lies between the pieces is LOST: messages may have been
// there. Every topic is reliable and of level local; whatever else the metadata held is not in segments.
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
	owner := Owner{r.Run.Store, run.Incarnation}
	for _, t := range r.Topics {
		namespace, _, err := SplitTopic(t.Name)
		if err == nil {
			_, err = do(&CreateNamespace{Name: namespace})
		}
		if err == nil {
			_, err = do(t.create())
		}
		for _, p := range t.Partitions {
			if err == nil {
				err = s.rebuildPartition(t.ID, p, owner)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("rebuild topic %s: %w", t.Name, err)
		}
	}
	return s, nil
}

// create is the command that made the topic, as far as is known: with as many partitions as have left something.
func (t RemainsTopic) create() *CreateTopic {
	n := uint32(0)
	for _, p := range t.Partitions {
		n = max(n, p.Number+1)
	}
	return &CreateTopic{ID: t.ID, Name: t.Name, At: t.Created, Settings: TopicSettings{Partitions: n, Reliable: true, Durability: LevelLocal}}
}

// rebuildPartition gives a partition the ranges that its pieces are and opens an epoch of the new history far above them.
func (s *State) rebuildPartition(topic TopicID, r RemainsPartition, owner Owner) error {
	p, err := s.partition(topic, r.Number)
	if err != nil {
		return err
	}
	end := uint64(0)
	for i, piece := range r.Pieces {
		switch {
		case piece.Start > piece.End || i > 0 && piece.Start < end || piece.End > maxOffset-HistoryGap-OpenCeiling:
			return refuse(ErrInvalid, "partition %d: offsets [%d, %d) after %d", r.Number, piece.Start, piece.End, end)
		case piece.Epoch < p.Epoch || piece.Epoch == 0:
			return refuse(ErrInvalid, "partition %d: epoch %d after %d", r.Number, piece.Epoch, p.Epoch)
		case i == 0:
			p.LogStart = piece.Start
		case piece.Start > end && piece.Start != end+HistoryGap: // such a gap an earlier rebuild has left: nothing was ever there
			p.Ranges = appendRange(p.Ranges, held(RangeLost, piece.Epoch, end, piece.Start, owner.Store))
		}
		p.Ranges = appendRange(p.Ranges, held(RangeSealed, piece.Epoch, piece.Start, piece.End, owner.Store))
		p.Epoch, end = piece.Epoch, piece.End
	}
	p.Epoch = s.nextEpoch(p.Epoch)
	p.begin(owner, end+HistoryGap)
	s.put(p)
	return nil
}

// held is a range of one epoch on one store.
func held(status RangeStatus, epoch, start, end uint64, store StoreID) Range {
	return Range{Epochs: []EpochStart{{epoch, start}}, Start: start, End: end, Stores: []StoreID{store}, Lowest: LevelLocal, Status: status}
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
