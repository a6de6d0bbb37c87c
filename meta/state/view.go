package state

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/table"
)

// View is the state at one index. It is immutable and free to share between goroutines; so are the records it hands
// out, which nobody may modify. Lookups do not allocate.
type View struct {
	index           uint64
	cluster         Cluster
	nextIncarnation uint64
	nextSub         uint64
	namespaces      table.Table[string, *Namespace]
	stores          table.Table[StoreID, *Store]
	topics          table.Table[TopicID, *Topic] // tombstones too
	names           table.Table[string, TopicID] // without tombstones
	partitions      table.Table[partitionKey, *Partition]
	subs            table.Table[uint64, *Subscription]
	subNames        table.Table[subKey, uint64]

	// What follows is not part of the state: it is made from it, and a snapshot leaves it out.
	placed    table.Table[StoreID, int]
	decisions table.Table[decision, struct{}] // the last about each partition
	decided   uint64
	overall   uint64 // the last decision about anything but partitions
	of        *byte  // the same in all views of one State

	objects catalog.Objects // garbage, which is part of the state, and what lies in cuts, which is not
}

type partitionKey struct {
	topic  TopicID
	number uint32
}

func comparePartitions(a, b partitionKey) int {
	if c := compareIDs(a.topic, b.topic); c != 0 {
		return c
	}
	return cmp.Compare(a.number, b.number)
}

type subKey struct {
	topic TopicID
	name  string
}

func compareSubs(a, b subKey) int {
	if c := compareIDs(a.topic, b.topic); c != 0 {
		return c
	}
	return strings.Compare(a.name, b.name)
}

func newView() View {
	return View{
		nextIncarnation: 1,
		nextSub:         1,
		of:              new(byte),
		namespaces:      table.New[string, *Namespace](strings.Compare),
		stores:          table.New[StoreID, *Store](compareIDs[StoreID]),
		topics:          table.New[TopicID, *Topic](compareIDs[TopicID]),
		names:           table.New[string, TopicID](strings.Compare),
		partitions:      table.New[partitionKey, *Partition](comparePartitions),
		subs:            table.New[uint64, *Subscription](cmp.Compare[uint64]),
		subNames:        table.New[subKey, uint64](compareSubs),
		placed:          table.New[StoreID, int](compareIDs[StoreID]),
		decisions:       table.New[decision, struct{}](compareDecisions),
		objects:         catalog.NewObjects(),
	}
}

// freeze returns a copy that later writes to v do not reach.
func (v *View) freeze() *View {
	c := *v
	c.namespaces = v.namespaces.Copy()
	c.stores = v.stores.Copy()
	c.topics = v.topics.Copy()
	c.names = v.names.Copy()
	c.partitions = v.partitions.Copy()
	c.subs = v.subs.Copy()
	c.subNames = v.subNames.Copy()
	c.placed = v.placed.Copy()
	c.decisions = v.decisions.Copy()
	c.objects = v.objects.Copy()
	return &c
}

// Index returns the Raft index of the last command that is in the view.
func (v *View) Index() uint64 { return v.index }

// Cluster returns the identity of the cluster.
func (v *View) Cluster() Cluster { return v.cluster }

// Store returns a store, nil if it was never registered.
func (v *View) Store(id StoreID) *Store {
	s, _ := v.stores.Get(id)
	return s
}

// Stores yields all stores in the order of their ids.
func (v *View) Stores() iter.Seq[*Store] { return values(v.stores.All()) }

// Namespace returns a namespace, nil if there is none of that name.
func (v *View) Namespace(name string) *Namespace {
	n, _ := v.namespaces.Get(name)
	return n
}

// Namespaces yields all namespaces in the order of their names.
func (v *View) Namespaces() iter.Seq[*Namespace] { return values(v.namespaces.All()) }

// Topic returns the topic that has the name "/namespace/name", nil if there is none.
func (v *View) Topic(name string) *Topic {
	id, ok := v.names.Get(name)
	if !ok {
		return nil
	}
	return v.TopicByID(id)
}

// TopicByID returns a topic or the tombstone of one, nil if the id is unknown.
func (v *View) TopicByID(id TopicID) *Topic {
	t, _ := v.topics.Get(id)
	return t
}

// Topics yields the topics whose names begin with prefix, in the order of their names, without tombstones.
func (v *View) Topics(prefix string) iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for name, id := range v.names.From(prefix) {
			if !strings.HasPrefix(name, prefix) || !yield(v.TopicByID(id)) {
				return
			}
		}
	}
}

// TopicCount returns the number of topics, without tombstones.
func (v *View) TopicCount() int { return v.names.Len() }

// Tombstones yields the deleted topics whose data are not all gone. It walks all topics.
func (v *View) Tombstones() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		for _, t := range v.topics.All() {
			if t.Deleted() && !yield(t) {
				return
			}
		}
	}
}

// Partition returns partition n of a topic or tombstone, nil if there is none.
func (v *View) Partition(topic TopicID, n uint32) *Partition {
	p, _ := v.partitions.Get(partitionKey{topic, n})
	return p
}

// Partitions yields the partitions of a topic or tombstone in order.
func (v *View) Partitions(topic TopicID) iter.Seq[*Partition] {
	return func(yield func(*Partition) bool) {
		for k, p := range v.partitions.From(partitionKey{topic: topic}) {
			if k.topic != topic || !yield(p) {
				return
			}
		}
	}
}

// Owned yields the partitions whose owner is the store, under whatever incarnation and in whatever state, in the order
// of topic id and number; those of tombstones too. It walks all partitions: about a millisecond for ten thousand.
func (v *View) Owned(store StoreID) iter.Seq[*Partition] {
	return func(yield func(*Partition) bool) {
		for _, p := range v.partitions.All() {
			if p.Owner.Store == store && !yield(p) {
				return
			}
		}
	}
}

// Held yields the partitions that have to do with a store: one of their ranges names it, it is their owner or the target
// of their move; in the order of topic id and number, those of tombstones too. It walks all partitions, as Owned does.
func (v *View) Held(store StoreID) iter.Seq[*Partition] {
	return func(yield func(*Partition) bool) {
		for _, p := range v.partitions.All() {
			if p.concerns(store) && !yield(p) {
				return
			}
		}
	}
}

func (p *Partition) concerns(store StoreID) bool {
	if p.Owner.Store == store || p.Target.Store == store {
		return true
	}
	for i := range p.Ranges {
		if slices.Contains(p.Ranges[i].Stores, store) {
			return true
		}
	}
	return false
}

// Placed returns how many partitions of topics that are not deleted a store owns, those that are moving counted where
// they go. It does not walk.
func (v *View) Placed(store StoreID) int {
	n, _ := v.placed.Get(store)
	return n
}

// home is the store that p is with or goes to.
func (p *Partition) home() StoreID {
	if p.State == Sealing {
		return p.Target.Store
	}
	return p.Owner.Store
}

// count adds n to the partitions of the home of p, of a live topic. Nil counts nothing.
func (s *State) count(p *Partition, n int) {
	if p == nil || s.liveTopic(p.Topic) == nil {
		return
	}
	home := p.home()
	if home == (StoreID{}) {
		return
	}
	if n += s.Placed(home); n == 0 {
		s.placed.Delete(home)
		return
	}
	s.placed.Set(home, n)
}

// Subscription returns a subscription with its cursors, nil if there is none of that name.
func (v *View) Subscription(topic TopicID, name string) *Subscription {
	id, ok := v.subNames.Get(subKey{topic, name})
	if !ok {
		return nil
	}
	return v.SubscriptionByID(id)
}

// SubscriptionByID returns a subscription with its cursors, nil if the id is unknown.
func (v *View) SubscriptionByID(id uint64) *Subscription {
	s, _ := v.subs.Get(id)
	return s
}

// Subscriptions yields the subscriptions of a topic in the order of their names.
func (v *View) Subscriptions(topic TopicID) iter.Seq[*Subscription] {
	return func(yield func(*Subscription) bool) {
		for k, id := range v.subNames.From(subKey{topic: topic}) {
			if k.topic != topic || !yield(v.SubscriptionByID(id)) {
				return
			}
		}
	}
}

func values[K, V any](seq iter.Seq2[K, V]) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, v := range seq {
			if !yield(v) {
				return
			}
		}
	}
}
