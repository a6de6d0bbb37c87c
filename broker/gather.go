package broker

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Any broker answers an admin operation. What only the owner of a partition
// knows or may do is asked of the owner; of one that is away it is said so, and
// what the metadata know is shown.

// hereArg asks a broker what it knows of partitions that it serves.
type hereArg struct {
	Topic         []byte   `msgpack:"t"` // its id
	Partitions    []uint32 `msgpack:"p"`
	Subscriptions []string `msgpack:"s"`
	Index         uint64   `msgpack:"i"` // of the metadata that say that it serves them
}

type hereAnswer struct {
	Partitions []protocol.PartitionDescription `msgpack:"p"`
	Subs       []subHere                       `msgpack:"s"`
	Sync       string                          `msgpack:"y"`
}

// subHere is a subscription on one partition.
type subHere struct {
	Name      string                `msgpack:"n"`
	Partition protocol.SubPartition `msgpack:"p"`
}

// gathered is what the owners of a topic's partitions have answered.
type gathered struct {
	topic *state.Topic
	parts []*state.Partition // those asked for
	mu    sync.Mutex         // guards what follows
	known map[uint32]protocol.PartitionDescription
	subs  map[string]map[uint32]protocol.SubPartition
	fails map[uint32]string // why nothing more is known of a partition than the metadata do
	sync  string
	b     *Broker
	view  *state.View
}

// gather asks the owners of a partition, or with -1 of all of a topic.
func (b *Broker) gather(ctx context.Context, view *state.View, t *state.Topic, partition int, subs []string) *gathered {
	g := &gathered{
		topic: t, b: b, view: view, known: map[uint32]protocol.PartitionDescription{},
		subs: map[string]map[uint32]protocol.SubPartition{}, fails: map[uint32]string{},
	}
	for _, name := range subs {
		g.subs[name] = map[uint32]protocol.SubPartition{}
	}
	owners := map[state.StoreID][]uint32{}
	for m := range view.Partitions(t.ID) {
		if partition >= 0 && m.Number != uint32(partition) {
			continue
		}
		g.parts = append(g.parts, m)
		if !serves(view.Store(m.Owner.Store), m) {
			g.fails[m.Number] = errNotThere.Error()
			continue
		}
		owners[m.Owner.Store] = append(owners[m.Owner.Store], m.Number)
	}
	var asked sync.WaitGroup
	for owner, numbers := range owners {
		asked.Go(func() { // returns when the owner has answered, or its time is over
			q := &hereArg{Topic: t.ID[:], Partitions: numbers, Subscriptions: subs, Index: view.Index()}
			a, err := calls.Errand[hereArg, hereAnswer]{Op: opDescribe, Here: b.describeHere}.On(ctx, b.peers, owner, q)
			g.add(owner, numbers, a, err)
		})
	}
	asked.Wait()
	return g
}

func (g *gathered) add(owner state.StoreID, numbers []uint32, a *hereAnswer, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		for _, n := range numbers {
			g.fails[n] = fmt.Sprintf("broker %s, which owns it, does not say more: %v", g.b.brokerName(owner), err)
		}
		return
	}
	for _, d := range a.Partitions {
		g.known[uint32(d.Partition)] = d
	}
	for _, s := range a.Subs {
		if of := g.subs[s.Name]; of != nil {
			of[uint32(s.Partition.Partition)] = s.Partition
		}
	}
	if a.Sync != "" {
		g.sync = a.Sync
	}
}

// partitions describes those asked for, of which the owner is silent by the metadata.
func (g *gathered) partitions() []protocol.PartitionDescription {
	out := []protocol.PartitionDescription{}
	for _, m := range g.parts {
		d, ok := g.known[m.Number]
		if !ok {
			d = g.b.describePartition(g.view, m, nil, nil)
			d.Reason = g.fails[m.Number]
		}
		out = append(out, d)
	}
	return out
}

// subscription describes a subscription on every partition asked for.
func (g *gathered) subscription(m *state.Subscription) []protocol.SubPartition {
	out := []protocol.SubPartition{}
	for _, p := range g.parts {
		d, ok := g.subs[m.Name][p.Number]
		if !ok {
			c := &m.Cursors[p.Number]
			d = protocol.SubPartition{
				Partition: int(p.Number), Cursor: c.Prefix, Ranges: len(c.Acked), Generation: c.Generation,
				Lag: p.Floor - min(max(c.Prefix, p.LogStart), p.Floor), State: "not served: " + g.why(p.Number), Consumers: []protocol.SubConsumer{},
			}
		}
		out = append(out, d)
	}
	return out
}

// why says why a partition has no subscriptions: its owner is silent, or has failed to open it and said so.
func (g *gathered) why(n uint32) string {
	if fail := g.fails[n]; fail != "" {
		return fail
	}
	if d, ok := g.known[n]; ok && d.Reason != "" {
		return d.Reason
	}
	return errNotThere.Error()
}

// describeHere says what this broker knows of partitions that it serves.
func (b *Broker) describeHere(ctx context.Context, q *hereArg) (*hereAnswer, error) {
	t, err := b.topicOf(ctx, q.Topic, q.Index)
	if err != nil {
		return nil, err
	}
	out := &hereAnswer{}
	for _, n := range q.Partitions {
		view := b.meta.View()
		m := view.Partition(t.ID, n)
		if m == nil {
			continue
		}
		p, err := b.owned(ctx, partitionKey{t.ID, n}, 0)
		out.Partitions = append(out.Partitions, b.describePartition(view, m, p, err))
		if p == nil {
			continue
		}
		if p.level() == protocol.LevelInterval {
			out.Sync = "interval"
		}
		for _, name := range q.Subscriptions {
			sub := view.Subscription(t.ID, name)
			if sub == nil || p.log == nil {
				continue
			}
			s, err := p.shell(sub)
			if err != nil {
				return nil, err
			}
			out.Subs = append(out.Subs, subHere{name, s.describe()})
		}
	}
	return out, nil
}

// catchUp is how long a request waits until this broker has applied what the
// caller knows.
const catchUp = time.Second

// topicOf returns a topic by its id, as of an index of the metadata.
func (b *Broker) topicOf(ctx context.Context, id []byte, index uint64) (*state.Topic, error) {
	wait, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if err := b.meta.WaitIndex(wait, index); err != nil {
		return nil, protocol.Errorf(protocol.CodeNotReady, "this broker has not applied index %d of the metadata", index)
	}
	var key state.TopicID
	if len(id) != len(key) {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "topic id of %d bytes", len(id))
	}
	copy(key[:], id)
	t := b.meta.View().TopicByID(key)
	if t == nil || t.Deleted() {
		return nil, protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s was deleted", key)
	}
	return t, nil
}

// ownerOf returns the store that serves a partition of a topic.
func (b *Broker) ownerOf(t *state.Topic, n int) (state.StoreID, error) {
	view := b.meta.View()
	if n < 0 || n >= int(t.Settings.Partitions) {
		return state.StoreID{}, noSuchPartition(t, n)
	}
	m := view.Partition(t.ID, uint32(n))
	if m == nil || !serves(view.Store(m.Owner.Store), m) {
		return state.StoreID{}, protocol.Errorf(protocol.CodeNotReady, "%s:%d: %v", t.Name, n, errNotThere)
	}
	return m.Owner.Store, nil
}

// ownersOf returns the stores that serve partitions of a topic.
func ownersOf(view *state.View, t *state.Topic) []state.StoreID {
	seen := map[state.StoreID]bool{}
	var out []state.StoreID
	for m := range view.Partitions(t.ID) {
		if id := m.Owner.Store; !seen[id] && serves(view.Store(id), m) {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// verifyTime bounds the verification of one partition on another broker: it reads all there is.
const verifyTime = 10 * time.Minute
