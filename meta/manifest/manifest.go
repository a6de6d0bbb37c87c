package manifest

import (
	"bytes"
	"slices"

	"github.com/danubemq/danube/meta/state"
)

// Manifest is what the metadata say beside the catalogs, as of one version of them. Times are Unix milliseconds.
type Manifest struct {
	Cluster       state.Cluster
	Index         uint64 // of the Raft log
	Time          int64  // when it was written
	Namespaces    []state.Namespace
	Topics        []Topic              // by id; tombstones too
	Subscriptions []state.Subscription // by topic and name
}

// Topic is a topic, or the tombstone of one, with what is known of its offsets.
type Topic struct {
	state.Topic
	Partitions []Partition // by number; none of a tombstone
}

// Partition is what the cluster has decided about a partition, without who serves it and what holds it.
type Partition struct {
	Epoch      uint64        `msgpack:"e,omitempty"`
	Ceiling    uint64        `msgpack:"c,omitempty"`
	Floor      uint64        `msgpack:"f,omitempty"`
	LogStart   uint64        `msgpack:"l,omitempty"`
	Ranges     []Range       `msgpack:"r,omitempty"`
	Superseded state.Offsets `msgpack:"u,omitempty"`
}

// Range is a run of offsets with one fate, without its stores.
type Range struct {
	Epochs []state.EpochStart `msgpack:"e"`
	Start  uint64             `msgpack:"s,omitempty"`
	End    uint64             `msgpack:"x,omitempty"` // exclusive; zero while it is open
	Lowest state.Level        `msgpack:"v,omitempty"`
	Status state.RangeStatus  `msgpack:"u,omitempty"`
}

// Of describes a version of the metadata. It shares the records of the view.
func Of(v *state.View, now int64) *Manifest {
	m := &Manifest{Cluster: v.Cluster(), Index: v.Index(), Time: now}
	for n := range v.Namespaces() {
		m.Namespaces = append(m.Namespaces, *n)
	}
	for t := range v.Topics("") {
		topic := Topic{Topic: *t}
		for p := range v.Partitions(t.ID) {
			topic.Partitions = append(topic.Partitions, partitionOf(p))
		}
		m.Topics = append(m.Topics, topic)
	}
	for t := range v.Tombstones() {
		m.Topics = append(m.Topics, Topic{Topic: *t})
	}
	slices.SortFunc(m.Topics, func(a, b Topic) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	for i := range m.Topics {
		for s := range v.Subscriptions(m.Topics[i].ID) {
			m.Subscriptions = append(m.Subscriptions, *s)
		}
	}
	return m
}

func partitionOf(p *state.Partition) Partition {
	out := Partition{Epoch: p.Epoch, Ceiling: p.Ceiling, Floor: p.Floor, LogStart: p.LogStart, Superseded: p.Superseded}
	for i := range p.Ranges {
		r := &p.Ranges[i]
		out.Ranges = append(out.Ranges, Range{Epochs: r.Epochs, Start: r.Start, End: r.End, Lowest: r.Lowest, Status: r.Status})
	}
	return out
}

// Topic returns a topic or tombstone by its id, nil if it is not in the manifest.
func (m *Manifest) Topic(id state.TopicID) *Topic {
	i, ok := slices.BinarySearchFunc(m.Topics, id, func(t Topic, id state.TopicID) int { return bytes.Compare(t.ID[:], id[:]) })
	if !ok {
		return nil
	}
	return &m.Topics[i]
}

// Newer says whether m is of a later version of the metadata than other, which may be nil.
func (m *Manifest) Newer(other *Manifest) bool {
	if other == nil || m.Cluster.History != other.Cluster.History {
		return other == nil || m.Cluster.History > other.Cluster.History
	}
	return m.Index > other.Index
}
