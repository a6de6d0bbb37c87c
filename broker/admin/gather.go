package admin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Any broker answers an admin operation. What only the owner of a partition
// knows or may do is asked of the owner; of one that is away it is said so, and
// what the metadata know is shown.

// DescribeArg asks a broker what it knows of partitions that it serves.
type DescribeArg struct {
	Topic         []byte   `msgpack:"t"` // its id
	Partitions    []uint32 `msgpack:"p"`
	Subscriptions []string `msgpack:"s"`
	Index         uint64   `msgpack:"i"` // of the metadata that say that it serves them
}

// DescribeAnswer says that, and in Sync with which weaker durability it serves them.
type DescribeAnswer struct {
	Partitions []protocol.PartitionDescription `msgpack:"p"`
	Subs       []SubAnswer                     `msgpack:"s"`
	Sync       string                          `msgpack:"y"`
}

// SubAnswer is a subscription on one partition.
type SubAnswer struct {
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
	b     *Board
	view  *state.View
}

// gather asks the owners of a partition, or with -1 of all of a topic.
func (b *Board) gather(ctx context.Context, view *state.View, t *state.Topic, partition int, subs []string) *gathered {
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
		if !words.Serves(view.Store(m.Owner.Store), m) {
			g.fails[m.Number] = words.ErrNotThere.Error()
			continue
		}
		owners[m.Owner.Store] = append(owners[m.Owner.Store], m.Number)
	}
	var asked sync.WaitGroup
	for owner, numbers := range owners {
		asked.Go(func() { // returns when the owner has answered, or its time is over
			q := &DescribeArg{Topic: t.ID[:], Partitions: numbers, Subscriptions: subs, Index: view.Index()}
			a, err := calls.Errand[DescribeArg, DescribeAnswer]{Op: opDescribe, Here: b.cfg.Here.Describe}.On(ctx, b.cfg.Peers, owner, q)
			g.add(owner, numbers, a, err)
		})
	}
	asked.Wait()
	return g
}

func (g *gathered) add(owner state.StoreID, numbers []uint32, a *DescribeAnswer, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil {
		for _, n := range numbers {
			g.fails[n] = fmt.Sprintf("broker %s, which owns it, does not say more: %v", g.b.cfg.Peers.Name(owner), err)
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
			d = words.Partition(g.view, m, m.Floor)
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
				Lag: words.Lag(p, p.Floor, words.Unacked(c)), Orphaned: words.Orphaned(p, c.Prefix), State: "not served: " + g.why(p.Number), Consumers: []protocol.SubConsumer{},
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
	return words.ErrNotThere.Error()
}

// ownerOf returns the store that serves a partition of a topic.
func (b *Board) ownerOf(t *state.Topic, n int) (state.StoreID, error) {
	view := b.cfg.Meta.View()
	if n < 0 || n >= int(t.Settings.Partitions) {
		return state.StoreID{}, words.NoSuchPartition(t, n)
	}
	m := view.Partition(t.ID, uint32(n))
	if m == nil || !words.Serves(view.Store(m.Owner.Store), m) {
		return state.StoreID{}, protocol.Errorf(protocol.CodeNotReady, "%s:%d: %v", t.Name, n, words.ErrNotThere)
	}
	return m.Owner.Store, nil
}

// ownersOf returns the stores that serve partitions of a topic.
func ownersOf(view *state.View, t *state.Topic) []state.StoreID {
	seen := map[state.StoreID]bool{}
	var out []state.StoreID
	for m := range view.Partitions(t.ID) {
		if id := m.Owner.Store; !seen[id] && words.Serves(view.Store(id), m) {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

// verifyTime bounds the verification of one partition on another broker: it reads all there is.
const verifyTime = 10 * time.Minute
