package state

import (
	"cmp"
	"encoding/hex"
	"fmt"

	"github.com/danubemq/danube/meta/offsets"
	"github.com/danubemq/danube/meta/settings"
)

// What operators set is a package of its own, for the records and commands here are full of it.
type (
	Level               = settings.Level
	Limits              = settings.Limits
	TopicSettings       = settings.Topic
	SubscriptionOptions = settings.Subscription
	SubscriptionType    = settings.SubscriptionType
	PoisonPolicy        = settings.PoisonPolicy
)

// The levels, types and policies.
const (
	LevelNone, LevelLocal, LevelWarm, LevelObject = settings.LevelNone, settings.LevelLocal, settings.LevelWarm, settings.LevelObject
	Exclusive, Shared, Failover, KeyShared        = settings.Exclusive, settings.Shared, settings.Failover, settings.KeyShared
	PoisonBlock, PoisonDeadLetter, PoisonDrop     = settings.PoisonBlock, settings.PoisonDeadLetter, settings.PoisonDrop
)

// Sets of offsets are a package of their own; records and commands are full of them.
type (
	OffsetRange   = offsets.Range
	Offsets       = offsets.Set
	OffsetNumber  = offsets.Number
	OffsetNumbers = offsets.Numbers
)

// Joined makes ranges that ascend by their starts a set, in place: those that touch become one.
func Joined(ranges []OffsetRange) Offsets { return offsets.Joined(ranges) }

// TopicID names one creation of a topic. Files, stream keys and objects are keyed by it, never by the topic's name, so
// that delete and re-create cannot mix data. The proposer of CreateTopic draws it at random.
type TopicID [16]byte

// String returns the id as 32 hex digits.
func (id TopicID) String() string { return hex.EncodeToString(id[:]) }

// StoreID names one data directory, for ever. Random, made with the directory.
type StoreID [16]byte

// String returns the id as 32 hex digits.
func (id StoreID) String() string { return hex.EncodeToString(id[:]) }

// ParseTopicID reads what TopicID.String wrote.
func ParseTopicID(s string) (id TopicID, err error) {
	err = parseID(id[:], s, "topic")
	return id, err
}

// ParseStoreID reads what StoreID.String wrote.
func ParseStoreID(s string) (id StoreID, err error) {
	err = parseID(id[:], s, "store")
	return id, err
}

func parseID(dst []byte, s, what string) error {
	if len(s) != 2*len(dst) {
		return fmt.Errorf("parse %s id %q: want %d hex digits", what, s, 2*len(dst))
	}
	if _, err := hex.Decode(dst, []byte(s)); err != nil {
		return fmt.Errorf("parse %s id %q: %w", what, s, err)
	}
	return nil
}

// PartitionState says whether a partition has an owner that serves.
type PartitionState uint8

// The states. A partition that nobody has opened yet is CLOSED with epoch 0.
const (
	Closed  PartitionState = iota // sealed at its floor, or never opened
	Opening                       // granted to a target that has not yet recovered
	Open                          // its owner serves
	Sealing                       // on its way to another owner
)

// String returns the state in capitals.
func (s PartitionState) String() string { return spell(int(s), "CLOSED", "OPENING", "OPEN", "SEALING") }

// RangeStatus says what is known of the offsets of a range.
type RangeStatus uint8

// The statuses.
const (
	RangeOpen     RangeStatus = iota // the open end: its owner appends to it
	RangeSealed                      // complete and readable
	RangeOrphaned                    // acknowledged messages may exist on its stores, which cannot be read now
	RangeLost                        // given up for good
)

// String returns the status in capitals.
func (s RangeStatus) String() string { return spell(int(s), "OPEN", "SEALED", "ORPHANED", "LOST") }

// StoreStatus says what the cluster expects of a store.
type StoreStatus uint8

// The statuses of a store.
const (
	StoreActive StoreStatus = iota
	StoreJoining
	StoreDraining
	StoreDrained
	StoreLost
	StoreRemoved
)

// String returns the status as output spells it.
func (s StoreStatus) String() string {
	return spell(int(s), "active", "joining", "draining", "drained", "lost", "removed")
}

func spell(i int, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

func compareIDs[T ~[16]byte](a, b T) int {
	for i := range a {
		if a[i] != b[i] {
			return cmp.Compare(a[i], b[i])
		}
	}
	return 0
}
