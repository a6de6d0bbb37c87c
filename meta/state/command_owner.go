package state

// Commands about who owns a partition and who holds its offsets.

// LoseStore ends the run of a store by decision of the leader (R7): its status is LOST, whatever it still proposes in its
// own name is ErrFenced, and its partitions may be granted to others. What is SEALED, is not in the catalog and is held by no
// other present store becomes ORPHANED and keeps its end. Open ranges stay as they are until their partition is opened elsewhere. Only a new
// registration, with a new nonce, makes the store ACTIVE again; what it orphaned then comes back with RestoreRange or
// MarkRanges. ErrFenced if Owner is not the store's latest run.
type LoseStore struct {
	Owner Owner `msgpack:"o"`
}

// RemoveStore ends the membership of a store for good and strikes it from every range. ErrConflict, naming one, while it
// owns partitions, is the target of a move, has a range open, or holds the only copy of a SEALED or ORPHANED range that the
// catalog does not cover; with Lose such ranges become LOST, or ORPHANED if a lost store may hold them too.
type RemoveStore struct {
	Store StoreID `msgpack:"s"`
	Lose  bool    `msgpack:"l,omitempty"`
}

// GrantPartitions gives partitions that nobody serves to other owners, each in the next epoch and OPENING: until the
// owner opens it nobody appends, and what the epoch before left open stays open and under that epoch. Batched.
type GrantPartitions struct {
	Entries []PartitionGrant `msgpack:"p"`
}

// PartitionGrant is an entry of GrantPartitions. ErrConflict while the present owner serves or is about to: the partition
// must be CLOSED, or its owner's store be LOST, REMOVED or unknown, or it is OPENING or SEALING and its owner is not the
// latest run of its store; of an OPENING partition the grant may also pass to another store. To must be the latest run
// of an ACTIVE store.
type PartitionGrant struct {
	Topic     TopicID `msgpack:"t"`
	Partition uint32  `msgpack:"n,omitempty"`
	Epoch     uint64  `msgpack:"e,omitempty"` // of the partition now; zero if never opened
	To        Owner   `msgpack:"o"`
}

// MovePartitions begins planned moves (R16): OPEN → SEALING. The owner goes on under its epoch until it hands over; its
// updates and its cursors are accepted as before. Batched.
type MovePartitions struct {
	Entries []PartitionMove `msgpack:"p"`
}

// PartitionMove is an entry of MovePartitions. To must be the latest run of another store that is ACTIVE. The partition's
// Move is then the number of this move.
type PartitionMove struct {
	Topic     TopicID `msgpack:"t"`
	Partition uint32  `msgpack:"n,omitempty"`
	Epoch     uint64  `msgpack:"e"`
	To        Owner   `msgpack:"o"`
}

// AbortMoves gives moves up: SEALING → OPEN, same owner, same epoch. Batched.
type AbortMoves struct {
	Entries []MoveAbort `msgpack:"p"`
}

// MoveAbort is an entry of AbortMoves. Move, if not zero, is the only move that it ends.
type MoveAbort struct {
	Topic     TopicID `msgpack:"t"`
	Partition uint32  `msgpack:"n,omitempty"`
	Epoch     uint64  `msgpack:"e"`
	Move      uint64  `msgpack:"m,omitempty"`
}

// HandOver ends moves: each partition's epoch is sealed at its exact end, and the next one opens there for the target, in
// one step. From then on the old owner's updates and cursors are ErrStaleEpoch; what it wants kept it commits before.
// Batched.
type HandOver struct {
	Owner   Owner               `msgpack:"o"` // who hands over
	Entries []PartitionHandOver `msgpack:"p"`
}

// PartitionHandOver is an entry of HandOver. Move must be the partition's: a proposal left over from a move that was
// aborted must not seal below what was acknowledged since. To must be the target and still the latest run of its store.
type PartitionHandOver struct {
	Topic     TopicID `msgpack:"t"`
	Partition uint32  `msgpack:"n,omitempty"`
	Epoch     uint64  `msgpack:"e"`
	Move      uint64  `msgpack:"m"`
	End       uint64  `msgpack:"x,omitempty"` // not below the floor
	To        Owner   `msgpack:"o"`
}

// CopyRanges records which stores hold a synced, whole copy of sealed offsets. Batched.
type CopyRanges struct {
	Entries []RangeCopy `msgpack:"p"`
}

// RangeCopy is an entry of CopyRanges: Add joins the holders of [From, To), each of Drop leaves them; a dropped store may
// delete its copy once it has applied this. ErrConflict if a part of [From, To) is not SEALED (plain gaps may lie within)
// or if no store would remain that is neither LOST nor REMOVED and the catalog does not cover it (R16). An entry must name no more than was copied: a range that
// was not SEALED when the copy was made may be by now.
type RangeCopy struct {
	Topic     TopicID   `msgpack:"t"`
	Partition uint32    `msgpack:"n,omitempty"`
	Epoch     uint64    `msgpack:"e"` // of the partition now
	From      uint64    `msgpack:"f,omitempty"`
	To        uint64    `msgpack:"x"`
	Add       StoreID   `msgpack:"a"` // zero: none
	Drop      []StoreID `msgpack:"d,omitempty"`
}

// RestoreRange takes back what a returned store has of an ORPHANED range (R15): [From, End) is SEALED and held by Stores or,
// once its exporter has committed it, by the catalog; [End, To) was never written and is a plain gap. [From, To) must lie within one ORPHANED range, and End may lie below To
// only where that range is a Tail and its last epoch is cut. Cursors get [From, End) late: what they did not acknowledge
// there stays unacknowledged (R18). Superseded offsets, stored again in a later epoch, count as acknowledged for every
// subscription, those made or reset later too.
//
// A SEALED range in doubt is taken back too, where it lies: that is how an owner that has learned who stored what in it says
// which of that was stored again (R17). The doubt ends, unless more may come back behind it.
//
// With Adopt the range is a LOST one: what is SEALED again can be fetched, no subscription gets it, and [End, To) stays
// LOST.
type RestoreRange struct {
	Topic      TopicID   `msgpack:"t"`
	Partition  uint32    `msgpack:"n,omitempty"`
	Epoch      uint64    `msgpack:"e"` // of the partition now
	From       uint64    `msgpack:"f,omitempty"`
	End        uint64    `msgpack:"m,omitempty"`
	To         uint64    `msgpack:"x"`
	Stores     []StoreID `msgpack:"s,omitempty"` // none LOST; may be empty if the catalog covers [From, End)
	Superseded Offsets   `msgpack:"u,omitempty"` // within [From, End)
	Adopt      bool      `msgpack:"d,omitempty"`
}

// NewHistory begins history History, one above the present one: every epoch, incarnation and subscription id from now on
// is above all earlier ones, those included that this state never knew. No partition goes on where this state knows its
// end: other owners, under epochs that were forgotten, may have given out what lies above. Each is OPENING again, or stays
// CLOSED, with its ceiling raised by HistoryGap; it opens there, and what lies between is ORPHANED (R22).
type NewHistory struct {
	History uint16 `msgpack:"h"`
}

// Tick does nothing. Committing it tells every broker the commit index of the decision before it (R7).
type Tick struct{}
