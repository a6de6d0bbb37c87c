package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// What tests of several brokers see of one.

// OwnerOf is the name of the broker that serves a partition, by what this one has applied; "" for nobody.
func (b *Broker) OwnerOf(topic string, n int) string {
	m := b.Partition(topic, n)
	if m == nil || m.State != state.Open {
		return ""
	}
	return b.brokerName(m.Owner.Store)
}

// Partition is what this broker has applied of a partition.
func (b *Broker) Partition(topic string, n int) *state.Partition {
	full, _, _ := protocol.ParseTopic(topic)
	v := b.meta.View()
	if t := v.Topic(full); t != nil {
		return v.Partition(t.ID, uint32(n))
	}
	return nil
}

// Serves says under which epoch this broker serves a partition, 0 for none.
func (b *Broker) Serves(topic string, n int) uint64 {
	m := b.Partition(topic, n)
	if m == nil {
		return 0
	}
	if p := b.served(served.Key{Topic: m.Topic, N: m.Number}); p != nil {
		return p.Epoch
	}
	return 0
}

// Acknowledged is the prefix that a subscription has acknowledged on this broker, committed or not.
func (b *Broker) Acknowledged(topic string, n int, subscription string) uint64 {
	s := b.running(b.Partition(topic, n).Topic, subscription)[uint32(n)]
	if s == nil {
		return 0
	}
	prefix, _ := s.Standing()
	return prefix
}

// Cursor is the acknowledged prefix of a subscription on a partition, by what this broker has applied.
func (b *Broker) Cursor(topic string, n int, subscription string) uint64 {
	m := b.Partition(topic, n)
	return b.meta.View().Subscription(m.Topic, subscription).Cursors[n].Prefix
}

// CommitCursors commits what changed in cursors here, or lists it to be tried again.
func (b *Broker) CommitCursors(ctx context.Context) { b.carrier.Commit(ctx) }

// Move asks the cluster to move a partition to a broker.
func (b *Broker) Move(ctx context.Context, topic string, n int, to string) error {
	m := b.Partition(topic, n)
	for s := range b.meta.View().Stores() {
		if s.Broker != to || s.Status != state.StoreActive {
			continue
		}
		errs, err := b.proposeEach(ctx, &state.MovePartitions{Entries: []state.PartitionMove{{
			Topic: m.Topic, Partition: m.Number, Epoch: m.Epoch, To: state.Owner{Store: s.ID, Incarnation: s.Incarnation},
		}}}, 1)
		return errors.Join(append(errs, err)...)
	}
	return fmt.Errorf("no broker %s", to)
}

// Lose makes a range of partition 0 LOST that nobody has given up, as what did not come back with its store.
func (b *Broker) Lose(ctx context.Context, topic string, r state.Range) error {
	m := b.Partition(topic, 0)
	errs, err := b.proposeEach(ctx, &state.MarkRanges{Entries: []state.RangeMark{{
		Topic: m.Topic, Partition: m.Number, Epoch: m.Epoch, From: r.Start, To: r.End, Status: state.RangeLost,
	}}}, 1)
	return errors.Join(append(errs, err)...)
}

// RemoveStore ends the membership of a broker's store, whatever becomes of what only it holds.
func (b *Broker) RemoveStore(ctx context.Context, name string) error {
	for s := range b.meta.View().Stores() {
		if s.Broker == name {
			_, err := b.propose(ctx, &state.RemoveStore{Store: s.ID, Lose: true})
			return err
		}
	}
	return fmt.Errorf("no broker %s", name)
}

// Ask carries out an admin operation and returns the error that a client would get.
func (b *Broker) Ask(ctx context.Context, op string, arg any) *protocol.Error {
	body, err := protocol.EncodeBody(arg)
	if err == nil {
		_, err = b.call(ctx, op, func(v any) error { return protocol.DecodeBody(body, v) })
	}
	if err == nil {
		return nil
	}
	return b.wireError(err)
}

// Leads says whether this broker leads the cluster.
func (b *Broker) Leads() bool {
	_, leads := b.meta.Leading()
	return leads
}

// Leased says whether this broker may act as an owner.
func (b *Broker) Leased() bool { return b.leased() }

// Run number of this broker's store.
func (b *Broker) Incarnation() uint64 { return b.self().Incarnation }

// Abandon closes everything without giving anything back, as a process that is killed.
func (b *Broker) Abandon() error { return b.shut(nil, nil) }

// BrokerName is how people call a store.
func (b *Broker) BrokerName(id state.StoreID) string { return b.brokerName(id) }

// HoldHistory has nothing brought here for a partition, unless something is being brought: then it says no.
func (b *Broker) HoldHistory(topic string, n int) bool {
	m := b.Partition(topic, n)
	_, free := b.history.Keep(served.Key{Topic: m.Topic, N: m.Number}.ID())
	return free
}

// ReadHeld is what this broker answers another that asks for offsets of partition 0 from one on.
func (b *Broker) ReadHeld(ctx context.Context, topic string, from uint64, returned bool) ([]byte, error) {
	body, err := protocol.EncodeBody(&struct {
		calls.Partition
		From     uint64 `msgpack:"f"`
		To       uint64 `msgpack:"to"`
		Max      int    `msgpack:"m"`
		Index    uint64 `msgpack:"i"`
		Returned bool   `msgpack:"r"`
	}{calls.Of(b.Partition(topic, 0)), from, 1 << 50, 1 << 20, b.meta.View().Index(), returned})
	if err != nil {
		return nil, err
	}
	return b.history.Fetch(ctx, body)
}

// Tombstones is how many deleted topics are not gone yet.
func (b *Broker) Tombstones() (n int) {
	for range b.meta.View().Tombstones() {
		n++
	}
	return n
}

// NewHistory begins the next history, as a rebuild, a restore and a recovery do.
func (b *Broker) NewHistory(ctx context.Context) error {
	_, err := b.propose(ctx, &state.NewHistory{History: b.meta.View().Cluster().History + 1})
	return err
}
