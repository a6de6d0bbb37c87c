// Package calls is what brokers have each other do: requests over the peer port of package cluster, whose arguments and
// answers are encoded as the protocol encodes them, and whose refusals are the coded errors that clients get.
//
// Its few types are Peers, which asks, Server, which answers, and Errand, what one broker of the cluster does for
// whichever was asked: this one by a call, another by a request. What a broker refuses comes back as the error that it
// was there. One that was not reached, or did not answer, is NOT_READY: whether it did anything is never guessed (R5).
//
// It has no lock; the goroutines of an errand at several brokers have returned when the errand has.
package calls

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Limit bounds a request that is made of another broker, unless it says otherwise.
const Limit = 5 * time.Second

// Peers asks the other brokers. All fields are required.
type Peers struct {
	Cluster *cluster.Cluster
	Meta    *meta.Node    // what they are called, and which of them leads
	Self    state.StoreID // this broker's store
}

// Ask has another broker carry out op, with ctx as the only bound.
func Ask[A any](ctx context.Context, p *Peers, to state.StoreID, op string, q any) (*A, error) {
	body, err := protocol.EncodeBody(q)
	if err != nil {
		return nil, err
	}
	answer, err := p.Cluster.Call(ctx, to, op, body)
	if err != nil {
		return nil, p.Error(to, err)
	}
	a := new(A)
	return a, protocol.DecodeBody(answer, a)
}

// AskSoon is Ask within [Limit].
func AskSoon[A any](ctx context.Context, p *Peers, to state.StoreID, op string, q any) (*A, error) {
	ctx, cancel := context.WithTimeout(ctx, Limit)
	defer cancel()
	return Ask[A](ctx, p, to, op, q)
}

// Error is what an error of [cluster.Cluster.Call] at another broker means.
func (p *Peers) Error(to state.StoreID, err error) error {
	if remote, ok := errors.AsType[*cluster.RemoteError](err); ok {
		var code protocol.Code
		if _, err := fmt.Sscan(remote.Code, &code); err == nil {
			return protocol.Errorf(code, "%s", remote.Text)
		}
		return protocol.Errorf(protocol.CodeInternal, "broker %s: %s", p.Name(to), remote.Text)
	}
	return fmt.Errorf("broker %s: %w: %w", p.Name(to), err, protocol.Errorf(protocol.CodeNotReady, "broker %s is away", p.Name(to)))
}

// Name is how people call a store: by the name of its broker.
func (p *Peers) Name(id state.StoreID) string {
	if s := p.Meta.View().Store(id); s != nil {
		return s.Broker
	}
	return id.String()
}

// Nearest sorts stores: those that gossip calls alive come first.
func (p *Peers) Nearest(stores []state.StoreID) []state.StoreID {
	if len(stores) < 2 {
		return stores
	}
	alive := map[state.StoreID]int{}
	for _, m := range p.Cluster.Members() {
		if m.State == cluster.Alive {
			alive[m.Store] = -1
		}
	}
	out := slices.Clone(stores)
	slices.SortStableFunc(out, func(x, y state.StoreID) int { return alive[x] - alive[y] })
	return out
}

// Partition names a partition to another broker. It is a part of arguments.
type Partition struct {
	Topic  []byte `msgpack:"t"` // its id
	Number uint32 `msgpack:"n"`
	Epoch  uint64 `msgpack:"e"`
}

// Of names a partition as the metadata have it.
func Of(m *state.Partition) Partition {
	return Partition{Topic: m.Topic[:], Number: m.Number, Epoch: m.Epoch}
}

// Key is the partition's topic and number; what is no topic id is refused.
func (a *Partition) Key() (topic state.TopicID, n uint32, err error) {
	if len(a.Topic) != len(topic) {
		return topic, 0, protocol.Errorf(protocol.CodeBadRequest, "topic id of %d bytes", len(a.Topic))
	}
	copy(topic[:], a.Topic)
	return topic, a.Number, nil
}
