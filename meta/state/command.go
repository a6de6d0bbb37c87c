package state

import (
	"github.com/danubemq/danube/meta/offsets"
	"github.com/danubemq/danube/meta/settings"
)

// Bounds that every broker must agree on; they are part of the format.
const (
	// MaxCommand bounds an encoded command, in bytes: larger Raft entries delay heartbeats.
	MaxCommand = 512 << 10
	// MaxPartitions bounds the partitions of a topic.
	MaxPartitions = settings.MaxPartitions
	// MaxNameBytes bounds each part of a name.
	MaxNameBytes = settings.MaxNameBytes
	// MaxCursorRanges bounds the acknowledged ranges above a cursor's prefix; a broker pauses delivery well before.
	MaxCursorRanges = offsets.MaxRanges
	// OpenCeiling is how many offsets an owner may assign before it extends the ceiling for the first time (R3).
	OpenCeiling = 1000
	// maxOffset keeps sums of offsets and counts far from overflow.
	maxOffset = offsets.Max
)

// Command is one decision. Each is a compare-and-set: applying it twice does it once. Batched commands are checked and
// applied entry by entry and answer entry by entry. The state may keep slices of a command it applied.
type Command interface {
	// apply carries the command out on s, or refuses.
	apply(s *State) Result
}

// Result answers a command. Refusals are interfaces, so an encoder passes them over: who sends a Result sends them beside it.
type Result struct {
	// Err is nil or a refusal; with ErrNewerCommand and ErrDamaged the state machine has stopped.
	Err error `msgpack:"-"`
	// Entries holds a refusal or nil for the entries of a batched command; those beyond its end succeeded.
	Entries []error `msgpack:"-"`
	// Index is the Raft index at which it was applied.
	Index uint64

	Incarnation  uint64  // RegisterStore: of this run
	Topic        TopicID // CreateTopic: of the topic that has the name now
	Subscription uint64  // CreateSubscription: id of the subscription that has the name now
	Created      bool    // CreateTopic, CreateSubscription, CreateNamespace: it was not there before
}

// Entry returns the answer to entry i of a batched command.
func (r Result) Entry(i int) error {
	if r.Err != nil || i >= len(r.Entries) {
		return r.Err
	}
	return r.Entries[i]
}

// InitCluster gives the cluster its identity, once. Another id than the one already set is ErrConflict.
type InitCluster struct {
	ID   [16]byte `msgpack:"i"`
	Name string   `msgpack:"n"`
}

// RegisterStore begins a run of a process on a store and answers its incarnation. The nonce is new for each run.
type RegisterStore struct {
	Store     StoreID   `msgpack:"i"`
	Broker    string    `msgpack:"b"`
	Nonce     [16]byte  `msgpack:"x"`
	Boot      string    `msgpack:"o"`
	Addresses Addresses `msgpack:"a"`
}

// SetStore changes the status of a store, or, with Clean, says that its run ended cleanly and leaves the status alone.
// ErrFenced if that run is over. LOST and REMOVED are set by LoseStore and RemoveStore; only a DRAINING store becomes
// DRAINED.
type SetStore struct {
	Owner  Owner       `msgpack:"o"`
	Status StoreStatus `msgpack:"s,omitempty"`
	Clean  bool        `msgpack:"c,omitempty"`
}

// CreateNamespace makes a namespace; the same limits again succeed, others are ErrExists.
type CreateNamespace struct {
	Name   string `msgpack:"n"`
	Limits Limits `msgpack:"l"`
}

// SetNamespace replaces the limits of a namespace.
type SetNamespace struct {
	Name   string `msgpack:"n"`
	Limits Limits `msgpack:"l"`
}

// DeleteNamespace removes a namespace; ErrConflict while it has topics.
type DeleteNamespace struct {
	Name string `msgpack:"n"`
}

// CreateTopic makes a topic. The same settings under the same name again succeed and answer the id of the topic that is
// there; other settings are ErrExists with the difference named. Owners, if given, are one per partition, each the latest
// run of an ACTIVE store: the partition opens there and then in its first epoch.
type CreateTopic struct {
	ID       TopicID       `msgpack:"i"`
	Name     string        `msgpack:"n"`
	Settings TopicSettings `msgpack:"s"`
	Owners   []Owner       `msgpack:"o,omitempty"`
	At       int64         `msgpack:"a,omitempty"`
}

// SetTopic replaces the settings of a topic; partitions and reliability cannot change. Another durability is in force
// for every partition once this is applied.
type SetTopic struct {
	ID       TopicID       `msgpack:"i"`
	Settings TopicSettings `msgpack:"s"`
}

// DeleteTopic turns a topic into a tombstone and removes its subscriptions.
type DeleteTopic struct {
	ID TopicID `msgpack:"i"`
	At int64   `msgpack:"a"`
}

// PurgeTopic says that a store holds nothing of a deleted topic any more; with the last store the tombstone goes, unless a
// partition of it has a catalog: then with that, see CondemnTopic.
type PurgeTopic struct {
	ID    TopicID `msgpack:"i"`
	Store StoreID `msgpack:"s"`
}

// OpenPartitions seals the open epoch of each partition and opens the next one for the owner: the epoch it was granted
// (OPENING), or, as the next run of the same store, the one after its own. The run that has a partition open opens it
// again in vain: that succeeds and changes nothing. Batched.
type OpenPartitions struct {
	Owner   Owner           `msgpack:"o"`
	Entries []PartitionOpen `msgpack:"p"`
}

// PartitionOpen is an entry of OpenPartitions.
type PartitionOpen struct {
	Topic     TopicID `msgpack:"t"`
	Partition uint32  `msgpack:"n,omitempty"`
	Epoch     uint64  `msgpack:"e,omitempty"` // of the partition: the granted one, or the one that ends, zero if none did
	End       uint64  `msgpack:"x,omitempty"` // where the open range ends, not below its start nor what the catalog covers of it; if none is open, the floor
	Tail      Tail    `msgpack:"g,omitempty"` // what lies between End and the ceiling
}

// Tail says what is known of the offsets between the end that recovery found and the ceiling, and with it where the
// next epoch opens (R3, R6, R10). A store that the open range does not name has not seen the old disk: it says
// TailOrphaned, or TailGap if no acknowledgement of the epoch rested on that disk alone, and opens at the ceiling; what it
// proved, up to End, the catalog covers, or it holds it itself. See Partition.Takeover.
type Tail uint8

// The tails.
const (
	TailProven   Tail = iota // nothing, and the same store goes on: the next epoch opens at the end
	TailGap                  // nothing: a plain gap, the next epoch opens at the ceiling
	TailLost                 // messages may have been there and are gone: LOST
	TailOrphaned             // messages may be there and cannot be read now: ORPHANED
)

// UpdatePartitions moves on what an owner reports of its partitions. Batched.
type UpdatePartitions struct {
	Entries []PartitionUpdate `msgpack:"p"`
}

// PartitionUpdate is an entry of UpdatePartitions. Each number only grows; zero leaves it as it is.
type PartitionUpdate struct {
	Topic     TopicID `msgpack:"t"`
	Partition uint32  `msgpack:"n,omitempty"`
	Epoch     uint64  `msgpack:"e"`
	Ceiling   uint64  `msgpack:"c,omitempty"`
	Floor     uint64  `msgpack:"f,omitempty"`
	LogStart  uint64  `msgpack:"l,omitempty"` // at most the floor
	Seal      bool    `msgpack:"s,omitempty"` // a clean stop: the epoch ends at End, the partition is CLOSED
	End       uint64  `msgpack:"x,omitempty"` // not below what the catalog covers
	At        int64   `msgpack:"a,omitempty"` // with LogStart: when, Unix milliseconds; what it passes in the catalog is garbage from then on
	Acked     bool    `msgpack:"k,omitempty"` // with LogStart: only if every subscription has acknowledged all that it passes, see View.Acked
}

// MarkRanges records what is known of offsets that nobody appends to any more. Batched.
type MarkRanges struct {
	Entries []RangeMark `msgpack:"p"`
}

// RangeMark is an entry of MarkRanges: the ranges within [From, To) get the status; SEALED becomes ORPHANED or LOST,
// ORPHANED becomes LOST or, repaired, SEALED; what is OPEN and lies below the floor becomes ORPHANED. Plain gaps within
// stay gaps, and what is SEALED or OPEN and covered by the catalog stays so: it can be read there.
type RangeMark struct {
	Topic     TopicID     `msgpack:"t"`
	Partition uint32      `msgpack:"n,omitempty"`
	Epoch     uint64      `msgpack:"e"` // of the partition now
	From      uint64      `msgpack:"f,omitempty"`
	To        uint64      `msgpack:"x"`
	Status    RangeStatus `msgpack:"s"`
	Accepted  bool        `msgpack:"a,omitempty"` // with ORPHANED: waiting consumers may pass it; with LOST: an operator gives it up
}

// CreateSubscription makes a subscription that starts at the given offset of each partition. The same type and options
// under the same name again succeed and leave its cursors alone; others are ErrExists.
type CreateSubscription struct {
	Topic   TopicID             `msgpack:"t"`
	Name    string              `msgpack:"n"`
	Type    SubscriptionType    `msgpack:"y,omitempty"`
	Options SubscriptionOptions `msgpack:"o"`
	Start   []uint64            `msgpack:"s"`
}

// SetSubscription replaces the options of a subscription.
type SetSubscription struct {
	Subscription uint64              `msgpack:"i"`
	Options      SubscriptionOptions `msgpack:"o"`
}

// DeleteSubscription removes a subscription; one that is already gone is a success.
type DeleteSubscription struct {
	Subscription uint64 `msgpack:"i"`
}

// ResetSubscription moves cursors of a subscription to other offsets; those it does not name stay as they are. Batched,
// but never cut: a topic has at most MaxPartitions.
type ResetSubscription struct {
	Subscription uint64        `msgpack:"i"`
	Entries      []CursorReset `msgpack:"p"`
}

// CursorReset is an entry of ResetSubscription: the partition's cursor begins generation Generation, one above its
// present one, at Start.
type CursorReset struct {
	Partition  uint32 `msgpack:"n,omitempty"`
	Generation uint64 `msgpack:"g"`
	Start      uint64 `msgpack:"s,omitempty"`
}

// MoveCursors records what consumers acknowledged since the last such command. Batched.
type MoveCursors struct {
	Entries []CursorDelta `msgpack:"p"`
}

// CursorDelta is an entry of MoveCursors: what changed in one cursor. It adds, so an entry may be cut in parts, come
// twice or late within its generation and do no harm.
type CursorDelta struct {
	Subscription uint64        `msgpack:"s"`
	Partition    uint32        `msgpack:"n,omitempty"`
	Epoch        uint64        `msgpack:"e"`           // of the partition
	Generation   uint64        `msgpack:"g,omitempty"` // of the cursor
	Prefix       uint64        `msgpack:"p,omitempty"` // all below it but orphaned ranges; zero: as it was
	Acked        Offsets       `msgpack:"a,omitempty"`
	Counts       OffsetNumbers `msgpack:"c,omitempty"` // new delivery counts
	Due          OffsetNumbers `msgpack:"d,omitempty"` // new due times; zero removes one
}
