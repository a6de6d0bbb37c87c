package admin

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// topicMove moves partitions to a broker and waits until it serves them
// (R16). Those that are there already are left out of the answer.
func (b *Board) topicMove(ctx context.Context, q *protocol.TopicMove) (any, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return nil, err
	}
	view := b.cfg.Meta.View()
	var to *state.Store
	if q.To != "" {
		if to, err = words.StoreNamed(view, q.To); err == nil {
			err = b.takes(to)
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
		x := protocol.PartitionMoved{Partition: int(m.Number), From: words.Name(view, m.Owner.Store), Epoch: m.Epoch, MovedAt: m.Floor}
		target, err := b.targetOf(view, m, to)
		if err != nil {
			return nil, err
		}
		if m.State != state.Sealing && target.Store == m.Owner.Store && words.Serves(view.Store(m.Owner.Store), m) {
			continue
		}
		x.To = words.Name(view, target.Store)
		out.Partitions = append(out.Partitions, x)
		c.Entries = append(c.Entries, state.PartitionMove{Topic: m.Topic, Partition: m.Number, Epoch: m.Epoch, To: target})
	}
	if !named {
		return nil, words.NoSuchPartition(t, q.Partition)
	}
	return out, b.moveAll(ctx, t, c, out)
}

// takes says why partitions cannot be moved to a broker now, nil if they can.
func (b *Board) takes(s *state.Store) error {
	if err := words.Takes(s); err != nil || s.ID == b.cfg.Self().Store {
		return err
	}
	return answers(s, b.cfg.Cluster.Members(), b.cfg.Now())
}

// answers says why a broker is not there to take anything, as gossip has it, nil if it is. That it is not declared lost yet
// helps nobody: a move to it would be waited for and then taken back.
func answers(s *state.Store, members []cluster.Member, now time.Time) error {
	for _, m := range members {
		if m.Store == s.ID && m.State != cluster.Alive {
			return &protocol.Error{
				Code: protocol.CodeBadRequest, Hint: "start it again, or name another: danube broker list shows which are active",
				Text: fmt.Sprintf("broker %s takes no topics: it does not answer (%s for %v)", s.Broker, m.State, now.Sub(m.Since).Round(time.Second)),
			}
		}
	}
	return nil
}

// targetOf is where a partition goes: to the broker that was named, or to the
// one with the least to do among the others.
func (b *Board) targetOf(view *state.View, m *state.Partition, to *state.Store) (state.Owner, error) {
	if to != nil {
		return ownerOfStore(to), nil
	}
	var others []cluster.Member
	for _, x := range b.cfg.Cluster.Members() {
		if x.Store != m.Owner.Store {
			others = append(others, x)
		}
	}
	if owners := cluster.Place(view, others, 1); len(others) > 0 && owners != nil {
		return owners[0], nil
	}
	return state.Owner{}, &protocol.Error{Code: protocol.CodeBadRequest, Text: fmt.Sprintf("no other broker is active to take partition %d", m.Number), Hint: startAnother}
}

// moveAll asks for moves and waits for them.
func (b *Board) moveAll(ctx context.Context, t *state.Topic, c *state.MovePartitions, out *protocol.TopicMoved) error {
	errs, err := b.cfg.Peers.RequestEach(ctx, c, len(c.Entries))
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
				x.Epoch, x.MovedAt = m.Epoch, m.OpenStart()
			}
		}
	}
	return nil
}

// moveError says why a move cannot begin. One that begins in a moment is worth another try.
func (b *Board) moveError(t *state.Topic, e *state.PartitionMove, err error) error {
	m := b.cfg.Meta.View().Partition(e.Topic, e.Partition)
	if m != nil && (m.State == state.Opening || m.Epoch != e.Epoch) {
		return protocol.Errorf(protocol.CodeNotReady, "another broker is just taking it over: %v", err)
	}
	if m != nil && m.State == state.Sealing {
		return protocol.Errorf(protocol.CodeMoving, "it is moving to broker %s already", b.cfg.Peers.Name(m.Target.Store))
	}
	if errors.Is(err, state.ErrFenced) {
		return protocol.Errorf(protocol.CodeNotReady, "broker %s has just restarted", b.cfg.Peers.Name(e.To.Store))
	}
	return err
}

// awaitMove waits until the target serves a partition, or the move came to nothing.
func (b *Board) awaitMove(ctx context.Context, t *state.Topic, e *state.PartitionMove) (*state.Partition, error) {
	name := fmt.Sprintf("%s:%d", t.Name, e.Partition)
	for {
		changed := b.cfg.Meta.Changed()
		m := b.cfg.Meta.View().Partition(e.Topic, e.Partition)
		switch {
		case m == nil:
			return nil, protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s was deleted", t.Name)
		case m.Epoch > e.Epoch && m.State == state.Open && m.Owner.Store == e.To.Store:
			return m, b.awaitServed(ctx, name, m)
		case m.Epoch > e.Epoch && m.State == state.Open:
			return nil, protocol.Errorf(protocol.CodeBadRequest, "%s went to broker %s instead", name, b.cfg.Peers.Name(m.Owner.Store))
		case m.Epoch == e.Epoch && m.State == state.Open:
			return nil, &protocol.Error{Code: protocol.CodeBadRequest, Text: fmt.Sprintf("the move of %s to broker %s was taken back; broker %s serves it as before",
				name, b.cfg.Peers.Name(e.To.Store), b.cfg.Peers.Name(m.Owner.Store)), Hint: "the log of broker " + b.cfg.Peers.Name(e.To.Store) + " says why, if it runs; danube cluster status tells whether it does"}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the move of %s: %w", name, context.Cause(ctx))
		}
	}
}

// awaitServed waits until the owner of a partition serves it.
func (b *Board) awaitServed(ctx context.Context, name string, m *state.Partition) error {
	q := &ServesArg{Partition: calls.Of(m), Index: b.cfg.Meta.View().Index()}
	e := calls.Errand[ServesArg, protocol.Done]{Op: opServes, Here: b.cfg.Here.Serves}
	var err error
	for range 20 {
		if _, err = e.On(ctx, b.cfg.Peers, m.Owner.Store, q); err == nil {
			return nil
		}
		calls.Pause(ctx, 100*time.Millisecond)
		if ctx.Err() != nil {
			break
		}
	}
	return fmt.Errorf("%s was moved; broker %s does not serve it yet: %w", name, b.cfg.Peers.Name(m.Owner.Store), err)
}

// ServesArg asks whether a broker serves a partition.
type ServesArg struct {
	calls.Partition
	Index uint64 `msgpack:"i"`
}
