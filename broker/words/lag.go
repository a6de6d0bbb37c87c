package words

import "github.com/danubemq/danube/meta/state"

// Lag is how many messages of a partition below end a subscription has still to acknowledge, by whoever shows it. below says
// how many offsets below one it has not: of those nothing counts that no message is known to have. That are plain gaps, as
// between two histories, what is ORPHANED (see [Orphaned]), what is LOST, and what was stored again at a later offset.
func Lag(m *state.Partition, end uint64, below func(offset uint64) uint64) (lag uint64) {
	for r := range readable(m, 0, end) {
		lag += below(r.End) - below(r.Start)
		for _, again := range m.Superseded {
			if from, to := max(again.Start, r.Start), min(again.End, r.End); from < to {
				lag -= below(to) - below(from)
			}
		}
	}
	return lag
}

// Orphaned is how many messages from an offset on may come back with a broker that is away, at most: an epoch whose owner
// was lost may have ended anywhere below its ceiling.
func Orphaned(m *state.Partition, from uint64) (most uint64) {
	if m == nil {
		return 0
	}
	for i := range m.Ranges {
		if r := &m.Ranges[i]; r.Status == state.RangeOrphaned && len(r.Stores) > 0 && r.End > from {
			most += r.End - max(r.Start, from)
		}
	}
	return most
}

// Unacked says of a cursor as the metadata have it how many offsets below one it has not acknowledged.
func Unacked(c *state.Cursor) func(offset uint64) uint64 {
	return func(offset uint64) uint64 {
		n := offset - min(c.Prefix, offset)
		for _, a := range c.Acked {
			if from, to := max(a.Start, c.Prefix), min(a.End, offset); from < to {
				n -= to - from
			}
		}
		return n
	}
}
