package state

import (
	"fmt"

	"github.com/danubemq/danube/meta/catalog"
)

// Every record a View hands out is shared and must not be modified. Times are Unix milliseconds, given by whoever
// proposed the command; the state itself has no clock.

// Cluster is the identity of the cluster.
type Cluster struct {
	ID      [16]byte `msgpack:"i"` // random; zero until InitCluster was applied
	Name    string   `msgpack:"n,omitempty"`
	History uint16   `msgpack:"h,omitempty"` // the high 16 bits of every new epoch (R22)
	Audited uint16   `msgpack:"a,omitempty"` // the history in which an operator has looked at what earlier ones left
}

// Store is one data directory and the process that runs on it (R9).
type Store struct {
	ID          StoreID     `msgpack:"i"`
	Broker      string      `msgpack:"b"` // the broker's name
	Incarnation uint64      `msgpack:"n"` // of the latest run; from one cluster-wide counter, never used twice
	Nonce       [16]byte    `msgpack:"x"` // of the registration, so that proposing it twice registers once
	Boot        string      `msgpack:"o"` // boot id of the machine of that run
	Addresses   Addresses   `msgpack:"a"`
	Status      StoreStatus `msgpack:"s,omitempty"`
	Clean       bool        `msgpack:"c,omitempty"` // that run ended cleanly
	Cuts        uint64      `msgpack:"u,omitempty"` // that run's cuts below it join no catalog any more
}

// Addresses are what a broker advertises, host:port; empty means it does not listen there.
type Addresses struct {
	Client string `msgpack:"c,omitempty"`
	Peer   string `msgpack:"p,omitempty"`
	HTTP   string `msgpack:"h,omitempty"`
}

// Owner is one run of a process on one store: who serves a partition.
type Owner struct {
	Store       StoreID `msgpack:"s"`
	Incarnation uint64  `msgpack:"i"`
}

// IsZero says whether o is nobody.
func (o Owner) IsZero() bool { return o == Owner{} }

// String names the run as refusals do.
func (o Owner) String() string { return fmt.Sprintf("run %d of store %s", o.Incarnation, o.Store) }

// Namespace groups topics and bounds them.
type Namespace struct {
	Name   string `msgpack:"n"`
	Limits Limits `msgpack:"l"`
}

// Topic is a topic, or the tombstone of one.
type Topic struct {
	ID        TopicID       `msgpack:"i"`
	Name      string        `msgpack:"n"` // "/namespace/name"
	Settings  TopicSettings `msgpack:"s"`
	CreatedAt int64         `msgpack:"c,omitempty"`
	DeletedAt int64         `msgpack:"d,omitempty"` // nonzero: a tombstone, which keeps the id until its data are gone
}

// Deleted says whether the record is a tombstone.
func (t *Topic) Deleted() bool { return t.DeletedAt != 0 }

// Partition is what the cluster has decided about one partition (section 2 of the design's ownership rules).
type Partition struct {
	Topic    TopicID        `msgpack:"t"`
	Number   uint32         `msgpack:"n"`
	Epoch    uint64         `msgpack:"e,omitempty"` // history in the high 16 bits; zero until first opened
	Owner    Owner          `msgpack:"o"`
	State    PartitionState `msgpack:"s,omitempty"`
	Level    Level          `msgpack:"v,omitempty"`
	Ceiling  uint64         `msgpack:"c,omitempty"` // offsets below it may be assigned in this epoch (R3)
	Floor    uint64         `msgpack:"f,omitempty"` // highest acknowledged end reported; of a CLOSED partition, its sealed end
	LogStart uint64         `msgpack:"l,omitempty"` // offsets below it are given up (retention, truncate)
	Ranges   []Range        `msgpack:"r,omitempty"` // ascending, disjoint; gaps between them are plain gaps
	Anew     bool           `msgpack:"w,omitempty"` // the next epoch opens at the ceiling, whatever end is proven (R22)

	Target     Owner   `msgpack:"g,omitempty"` // who a SEALING partition goes to; zero otherwise
	Move       uint64  `msgpack:"m,omitempty"` // number of the move of a SEALING partition, never used twice; zero otherwise
	Superseded Offsets `msgpack:"u,omitempty"` // stored again in a later epoch: no subscription gets them (R15)

	Catalog *catalog.Catalog `msgpack:"k,omitempty"` // what the cold tier has; nil: nothing

	decided uint64 // index of the last decision about it, in this process; not part of the state
}

// Range is a run of offsets of a partition with one fate.
type Range struct {
	Epochs   []EpochStart `msgpack:"e"` // ascending; the first Start is the range's
	Start    uint64       `msgpack:"s,omitempty"`
	End      uint64       `msgpack:"x,omitempty"` // exclusive; zero while the range is open
	Stores   []StoreID    `msgpack:"t,omitempty"` // every store with a synced, whole copy of what the catalog does not cover
	Lowest   Level        `msgpack:"v,omitempty"` // lowest level in force while its epochs were open
	Status   RangeStatus  `msgpack:"u,omitempty"`
	Accepted bool         `msgpack:"a,omitempty"` // an orphaned range that waiting consumers may pass; a lost one that an operator gave up
	Tail     bool         `msgpack:"g,omitempty"` // an orphaned range that ends at a ceiling: what it holds may end earlier
	Exporter Owner        `msgpack:"o,omitempty"` // an orphaned range: who may put it into the catalog (R15)
	Doubt    uint64       `msgpack:"d,omitempty"` // of a sealed or orphaned range: from this offset on owners may have stored again what it holds; zero: none has
}

// EpochStart says that an epoch's offsets within a range begin at Start.
type EpochStart struct {
	Epoch uint64 `msgpack:"e"`
	Start uint64 `msgpack:"s,omitempty"`
}

// OpenRange returns the range that is open, nil if none is. Of an OPENING partition it is that of the epoch before, whose
// stores are those of the owner before.
func (p *Partition) OpenRange() *Range {
	if n := len(p.Ranges); n > 0 && p.Ranges[n-1].Status == RangeOpen {
		return &p.Ranges[n-1]
	}
	return nil
}

// OpenStart is where the open range begins. A joined range began earlier: then it is where its last epoch did. Zero
// without ranges.
func (p *Partition) OpenStart() uint64 {
	if len(p.Ranges) == 0 {
		return 0
	}
	last := &p.Ranges[len(p.Ranges)-1]
	return last.Epochs[len(last.Epochs)-1].Start
}

// Range returns the range that holds offset n, nil if n lies in a plain gap, below the log's start or at or above the
// ceiling.
func (p *Partition) Range(n uint64) *Range {
	for i := len(p.Ranges) - 1; i >= 0; i-- {
		r := &p.Ranges[i]
		if n < r.Start {
			continue
		}
		if r.Status == RangeOpen && n < p.Ceiling || n < r.End {
			return r
		}
		return nil
	}
	return nil
}

// Epoch returns the epoch whose batch is the value of offset n, which must lie in the range (R19).
func (r *Range) Epoch(n uint64) uint64 {
	epoch := r.Epochs[0].Epoch
	for _, e := range r.Epochs {
		if e.Start > n {
			break
		}
		epoch = e.Epoch
	}
	return epoch
}

// Subscription is a named position in every partition of a topic.
type Subscription struct {
	ID      uint64              `msgpack:"i"` // never used twice in a cluster; cursor commands name it
	Topic   TopicID             `msgpack:"t"`
	Name    string              `msgpack:"n"`
	Type    SubscriptionType    `msgpack:"y,omitempty"`
	Options SubscriptionOptions `msgpack:"o"`
	Start   []uint64            `msgpack:"s"` // per partition: where it began, or was last reset to
	Cursors []Cursor            `msgpack:"c"` // per partition
}

// Cursor is what a subscription has acknowledged of one partition (R18).
type Cursor struct {
	Generation uint64        `msgpack:"g,omitempty"` // how often it was reset: each partition is moved by itself
	Prefix     uint64        `msgpack:"p,omitempty"` // every offset below it is acknowledged, or lost, or a plain gap
	Acked      Offsets       `msgpack:"a,omitempty"` // acknowledged above the prefix, kept whole
	Counts     OffsetNumbers `msgpack:"c,omitempty"` // deliveries so far of unacknowledged messages, where above one
	Due        OffsetNumbers `msgpack:"d,omitempty"` // when a delayed redelivery is due, Unix milliseconds
}

// Acknowledged says whether offset n needs no further delivery.
func (c *Cursor) Acknowledged(n uint64) bool { return n < c.Prefix || c.Acked.Contains(n) }
