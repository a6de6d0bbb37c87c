// Package settings is what operators name and set: names, levels, limits, the settings of topics and of subscriptions, and
// what is refused of them. Both the records of the cluster and the commands that change them hold these values as they are.
package settings

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Bounds that every broker must agree on; they are part of the format.
const (
	// MaxPartitions bounds the partitions of a topic.
	MaxPartitions = 1024
	// MaxNameBytes bounds each part of a name.
	MaxNameBytes = 255
)

// Level says what an acknowledgement survives. Levels are ordered: a higher one promises more.
type Level uint8

// The levels; zero is the level of a topic that stores nothing.
const (
	LevelNone Level = iota
	LevelLocal
	LevelWarm
	LevelObject
)

// String returns the level as configuration and output spell it.
func (l Level) String() string { return spell(int(l), "none", "local", "warm", "object") }

// SubscriptionType says how the consumers of a subscription share its messages.
type SubscriptionType uint8

// The types.
const (
	Exclusive SubscriptionType = iota
	Shared
	Failover
	KeyShared
)

// String returns the type as flags and output spell it.
func (t SubscriptionType) String() string {
	return spell(int(t), "exclusive", "shared", "failover", "key-shared")
}

// PoisonPolicy says what becomes of a message that was delivered too often.
type PoisonPolicy uint8

// The policies.
const (
	PoisonBlock PoisonPolicy = iota
	PoisonDeadLetter
	PoisonDrop
)

// String returns the policy as flags and output spell it.
func (p PoisonPolicy) String() string { return spell(int(p), "block", "dead-letter", "drop") }

func spell(i int, names ...string) string {
	if i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("unknown(%d)", i)
}

// Limits are the optional bounds of a namespace or a topic; zero means not set here.
type Limits struct {
	Producers     uint64 `msgpack:"p,omitempty"`
	Subscriptions uint64 `msgpack:"s,omitempty"`
	Consumers     uint64 `msgpack:"c,omitempty"` // of one subscription
	MessageBytes  uint64 `msgpack:"m,omitempty"`
	PublishRate   uint64 `msgpack:"r,omitempty"` // bytes a second
	DispatchRate  uint64 `msgpack:"d,omitempty"` // bytes a second
}

// Topic are what CreateTopic compares: a topic of the same name with other settings is another topic.
type Topic struct {
	Partitions     uint32        `msgpack:"p"`           // 1 to MaxPartitions, fixed at creation
	Reliable       bool          `msgpack:"r,omitempty"` // whether messages are stored
	Durability     Level         `msgpack:"d,omitempty"` // LevelNone exactly if not reliable
	RetentionTime  time.Duration `msgpack:"t,omitempty"` // zero: kept for ever
	RetentionBytes uint64        `msgpack:"b,omitempty"` // of one partition; zero: no bound
	RetentionAcked bool          `msgpack:"a,omitempty"` // what every subscription has acknowledged may go
	Limits         Limits        `msgpack:"l"`
}

// Check refuses what no state allows.
func (t Topic) Check() error {
	if t.Partitions < 1 || t.Partitions > MaxPartitions {
		return fmt.Errorf("%d partitions; 1 to %d are allowed", t.Partitions, MaxPartitions)
	}
	if t.Durability > LevelObject || t.Reliable != (t.Durability != LevelNone) {
		return fmt.Errorf("durability %s for a topic that is reliable=%t", t.Durability, t.Reliable)
	}
	if t.RetentionTime < 0 {
		return errors.New("negative retention time")
	}
	return nil
}

// Difference names each setting in which want differs from what is there, "" if none does.
func (t Topic) Difference(want Topic) string {
	var d []string
	add := func(what string, has, wants any) {
		if has != wants {
			d = append(d, fmt.Sprintf("%s is %v, not %v", what, has, wants))
		}
	}
	add("partitions", t.Partitions, want.Partitions)
	add("reliable", t.Reliable, want.Reliable)
	add("durability", t.Durability, want.Durability)
	add("retention time", t.RetentionTime, want.RetentionTime)
	add("retention bytes", t.RetentionBytes, want.RetentionBytes)
	add("retention acked", t.RetentionAcked, want.RetentionAcked)
	add("limits", t.Limits, want.Limits)
	return strings.Join(d, ", ")
}

// Subscription are the settings of a subscription that may change.
type Subscription struct {
	MaxUnacked     uint32        `msgpack:"u,omitempty"`
	MaxRedelivery  uint32        `msgpack:"r,omitempty"`
	AckTimeout     time.Duration `msgpack:"t,omitempty"`
	BackoffBase    time.Duration `msgpack:"b,omitempty"`
	BackoffCap     time.Duration `msgpack:"c,omitempty"` // equal to the base: a fixed delay
	Poison         PoisonPolicy  `msgpack:"p,omitempty"`
	DeadLetter     string        `msgpack:"d,omitempty"` // topic name
	KeyFilters     []string      `msgpack:"k,omitempty"`
	GapWaitSeconds uint32        `msgpack:"g,omitempty"` // how long to wait at an orphaned range
}

// Check refuses what no state allows.
func (o Subscription) Check() error {
	if o.AckTimeout < 0 || o.BackoffBase < 0 || o.BackoffCap < 0 || o.Poison > PoisonDrop {
		return errors.New("subscription options out of bounds")
	}
	if o.DeadLetter != "" {
		if _, _, err := SplitTopic(o.DeadLetter); err != nil {
			return err
		}
	}
	return nil
}

// Equal compares.
func (o Subscription) Equal(p Subscription) bool {
	if !slices.Equal(o.KeyFilters, p.KeyFilters) {
		return false
	}
	o.KeyFilters, p.KeyFilters = nil, nil
	return reflect.DeepEqual(o, p)
}
