package history

import (
	"cmp"
	"slices"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
)

// What producers sent again while a tail was away is found by their sequences (R15).

// session names a producer's session.
type session struct {
	producer uint64
	number   uint32
}

// sentBatch is a batch of a tail: Count sequences from sequence on at the offsets from base on.
type sentBatch struct {
	sequence, base uint64
	count          uint32
}

// sentIndex is what a tail holds of each session, in the order of offsets and with that of sequences.
type sentIndex map[session][]sentBatch

func (x sentIndex) addAll(data batch.Batch) {
	for ; len(data) > 0; data = data[data.Len():] {
		if data.Control() {
			continue
		}
		key := session{data.Producer(), data.Session()}
		x[key] = append(x[key], sentBatch{data.Sequence(), data.Base(), uint32(data.Count())})
	}
}

// note is addAll, which also notes what the batches' producers have stored by them.
func (x sentIndex) note(data batch.Batch, producers *storage.Sessions) {
	x.addAll(data)
	for ; len(data) > 0; data = data[data.Len():] {
		producers.Record(data[:data.Len()])
	}
}

// addTable adds what a producer table remembers.
func (x sentIndex) addTable(t *storage.Sessions) {
	for k, s := range t.All() {
		key := session{k.Producer, k.Number}
		x[key] = append(x[key], sentBatch{s.Sequence, s.Base, s.Count})
	}
}

// repeats are the offsets of a tail whose sequences were stored again in a later epoch.
type repeats struct {
	sent  sentIndex
	found state.Offsets
}

func (r *repeats) addAll(data batch.Batch) {
	for ; len(data) > 0; data = data[data.Len():] {
		if data.Control() {
			continue
		}
		list := r.sent[session{data.Producer(), data.Session()}]
		first, end := data.Sequence(), data.Sequence()+uint64(data.Count())
		i, _ := slices.BinarySearchFunc(list, first, func(s sentBatch, seq uint64) int {
			return cmp.Compare(s.sequence+uint64(s.count), seq+1) // the first that ends above seq
		})
		for ; i < len(list) && list[i].sequence < end; i++ {
			s := list[i]
			from, to := max(first, s.sequence), min(end, s.sequence+uint64(s.count))
			if from < to {
				r.found = append(r.found, state.OffsetRange{Start: s.base + from - s.sequence, End: s.base + to - s.sequence})
			}
		}
	}
}

// offsets returns what was found, as a set.
func (r *repeats) offsets() state.Offsets {
	slices.SortFunc(r.found, func(a, b state.OffsetRange) int { return cmp.Compare(a.Start, b.Start) })
	r.found = state.Joined(r.found)
	return r.found
}
