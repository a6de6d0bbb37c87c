package broker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// adminTopicMove moves partitions to a broker and waits until it serves them
// (R16). Those that are there already are left out of the answer.
func (b *Broker) adminTopicMove(ctx context.Context, q *protocol.TopicMove) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	view := b.meta.View()
	var to *state.Store
	if q.To != "" {
		if to, err = brokerNamed(view, q.To); err == nil {
			err = takes(to)
		}
		if err != nil {
			return nil, err
		}
	}
	out := &protocol.TopicMoved{Partitions: []protocol.PartitionMoved{}}
	c := &state.MovePartitions{}
	named := false
	for m := range view.Partitions(t.ID) {
		if q.Partition >= 0 && m.Number != uint32(q.Partition) {
			continue
		}
		named = true
		x := protocol.PartitionMoved{Partition: int(m.Number), From: nameIn(view, m.Owner.Store), Epoch: m.Epoch, MovedAt: m.Floor}
		target, err := b.targetOf(view, m, to)
		if err != nil {
			return nil, err
		}
		if m.State != state.Sealing && target.Store == m.Owner.Store && serves(view.Store(m.Owner.Store), m) {
			continue
		}
		x.To = nameIn(view, target.Store)
		out.Partitions = append(out.Partitions, x)
		c.Entries = append(c.Entries, state.PartitionMove{Topic: m.Topic, Partition: m.Number, Epoch: m.Epoch, To: target})
	}
	if !named {
		return nil, noSuchPartition(t, q.Partition)
	}
	return out, b.moveAll(ctx, t, c, out)
}

// takes says why a broker cannot be given partitions, nil if it can.
func takes(s *state.Store) error {
	if s.Status == state.StoreActive && !s.Clean {
		return nil
	}
	hint := ""
	if s.Status == state.StoreDraining || s.Status == state.StoreDrained {
		hint = "danube broker activate " + s.Broker + " ends the drain"
	}
	return &protocol.Error{Code: protocol.CodeBadRequest, Text: fmt.Sprintf("broker %s takes no topics: it is %s", s.Broker, statusOf(s)), Hint: hint}
}

// targetOf is where a partition goes: to the broker that was named, or to the
// one with the least to do among the others.
func (b *Broker) targetOf(view *state.View, m *state.Partition, to *state.Store) (state.Owner, error) {
	if to != nil {
		return ownerOfStore(to), nil
	}
	var others []cluster.Member
	for _, x := range b.cluster.Members() {
		if x.Store != m.Owner.Store {
			others = append(others, x)
		}
	}
	if owners := cluster.Place(view, others, 1); len(others) > 0 && owners != nil {
		return owners[0], nil
	}
	return state.Owner{}, protocol.Errorf(protocol.CodeBadRequest, "no other broker is active to take partition %d", m.Number)
}

// moveAll asks for moves and waits for them.
func (b *Broker) moveAll(ctx context.Context, t *state.Topic, c *state.MovePartitions, out *protocol.TopicMoved) error {
	errs, err := b.requestEach(ctx, c, len(c.Entries))
	if err != nil {
		return fmt.Errorf("move %s: %w", t.Name, err)
	}
	for i, e := range c.Entries {
		if errs[i] != nil {
			return fmt.Errorf("move %s:%d: %w", t.Name, e.Partition, b.moveError(t, &e, errs[i]))
		}
	}
	for _, e := range c.Entries {
		m, err := b.awaitMove(ctx, t, &e)
		if err != nil {
			return err
		}
		for i := range out.Partitions {
			if x := &out.Partitions[i]; x.Partition == int(e.Partition) {
				x.Epoch, x.MovedAt = m.Epoch, openStart(m)
			}
		}
	}
	return nil
}

// moveError says why a move cannot begin. One that begins in a moment is worth another try.
func (b *Broker) moveError(t *state.Topic, e *state.PartitionMove, err error) error {
	m := b.meta.View().Partition(e.Topic, e.Partition)
	if m != nil && (m.State == state.Opening || m.Epoch != e.Epoch) {
		return protocol.Errorf(protocol.CodeNotReady, "another broker is just taking it over: %v", err)
	}
	if m != nil && m.State == state.Sealing {
		return protocol.Errorf(protocol.CodeMoving, "it is moving to broker %s already", b.brokerName(m.Target.Store))
	}
	if errors.Is(err, state.ErrFenced) {
		return protocol.Errorf(protocol.CodeNotReady, "broker %s has just restarted", b.brokerName(e.To.Store))
	}
	return err
}

// awaitMove waits until the target serves a partition, or the move came to nothing.
func (b *Broker) awaitMove(ctx context.Context, t *state.Topic, e *state.PartitionMove) (*state.Partition, error) {
	name := fmt.Sprintf("%s:%d", t.Name, e.Partition)
	for {
		changed := b.meta.Changed()
		m := b.meta.View().Partition(e.Topic, e.Partition)
		switch {
		case m == nil:
			return nil, protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s was deleted", t.Name)
		case m.Epoch > e.Epoch && m.State == state.Open && m.Owner.Store == e.To.Store:
			return m, b.awaitServed(ctx, name, m)
		case m.Epoch > e.Epoch && m.State == state.Open:
			return nil, protocol.Errorf(protocol.CodeBadRequest, "%s went to broker %s instead", name, b.brokerName(m.Owner.Store))
		case m.Epoch == e.Epoch && m.State == state.Open:
			return nil, &protocol.Error{Code: protocol.CodeBadRequest, Text: fmt.Sprintf("the move of %s to broker %s was taken back; broker %s serves it as before",
				name, b.brokerName(e.To.Store), b.brokerName(m.Owner.Store)), Hint: "its log says why; try again"}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the move of %s: %w", name, context.Cause(ctx))
		}
	}
}

// awaitServed waits until the owner of a partition serves it.
func (b *Broker) awaitServed(ctx context.Context, name string, m *state.Partition) error {
	q := &servesArg{Partition: calls.Of(m), Index: b.meta.View().Index()}
	e := calls.Errand[servesArg, protocol.Done]{Op: opServes, Here: b.servesHere}
	var err error
	for range 20 {
		if _, err = e.On(ctx, b.peers, m.Owner.Store, q); err == nil {
			return nil
		}
		wait(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			break
		}
	}
	return fmt.Errorf("%s was moved; broker %s does not serve it yet: %w", name, b.brokerName(m.Owner.Store), err)
}

type servesArg struct {
	calls.Partition
	Index uint64 `msgpack:"i"`
}

// servesHere returns when this broker serves a partition under an epoch or a later one.
func (b *Broker) servesHere(ctx context.Context, q *servesArg) (*protocol.Done, error) {
	if _, err := b.topicOf(ctx, q.Topic, q.Index); err != nil {
		return nil, err
	}
	key, err := keyOf(&q.Partition)
	if err != nil {
		return nil, err
	}
	_, err = b.owned(ctx, key, 0)
	return &protocol.Done{}, err
}
