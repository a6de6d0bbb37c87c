package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// CreateSubscription makes a subscription that starts at a position on every partition.
func (b *Board) CreateSubscription(ctx context.Context, q *protocol.SubCreate) (bool, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return false, err
	}
	if err := protocol.CheckName("subscription", q.Subscription); err != nil {
		return false, err
	}
	if q.Type > protocol.Shared {
		return false, protocol.Errorf(protocol.CodeUnsupported, "subscriptions of type %v are not in this version; it has %v and %v", q.Type, protocol.Exclusive, protocol.Shared)
	}
	if !t.Settings.Reliable {
		return false, protocol.Errorf(protocol.CodeNotReliable, "%s is not reliable: its subscriptions are its attached consumers and are not stored", t.Name)
	}
	opts, err := subOptions(q.Options)
	if err != nil {
		return false, err
	}
	start, err := b.positions(ctx, t, q.Start)
	if err != nil {
		return false, b.decided(err)
	}
	res, err := b.cfg.Peers.Request(ctx, &state.CreateSubscription{
		Topic: t.ID, Name: q.Subscription, Type: state.SubscriptionType(q.Type), Options: opts, Start: start,
	})
	return res.Created, b.decided(err)
}

func subOptions(o protocol.SubOptions) (state.SubscriptionOptions, error) {
	if o.MaxUnacked < 0 || o.MaxUnacked > math.MaxInt32 || o.BackoffMS < 0 || o.BackoffCapMS < 0 || o.MaxRedeliver < 0 || o.MaxRedeliver > math.MaxInt32 {
		return state.SubscriptionOptions{}, protocol.Errorf(protocol.CodeBadRequest,
			"subscription options out of bounds: none but the ack timeout may be negative, and numbers are at most %d", math.MaxInt32)
	}
	out := state.SubscriptionOptions{
		MaxUnacked: uint32(o.MaxUnacked), MaxRedelivery: uint32(o.MaxRedeliver),
		AckTimeout:  time.Duration(o.AckTimeoutMS) * time.Millisecond,
		BackoffBase: time.Duration(o.BackoffMS) * time.Millisecond,
		BackoffCap:  time.Duration(o.BackoffCapMS) * time.Millisecond,
	}
	out.MaxUnacked = cmp.Or(out.MaxUnacked, uint32(protocol.SubOptions{}.WithDefaults().MaxUnacked))
	if o.BackoffFixed {
		out.BackoffBase = cmp.Or(out.BackoffBase, time.Second)
		out.BackoffCap = out.BackoffBase
	}
	return out, nil
}

// positions resolves a position on every partition of a topic.
func (b *Board) positions(ctx context.Context, t *state.Topic, at protocol.Position) ([]uint64, error) {
	out := make([]uint64, t.Settings.Partitions)
	for n := range out {
		var err error
		if out[n], err = b.position(ctx, t, uint32(n), at); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// PositionArg asks for a position on a partition.
type PositionArg struct {
	calls.Partition
	At protocol.Position `msgpack:"a"`
}

// PositionAnswer is where that is.
type PositionAnswer struct {
	Offset uint64 `msgpack:"o"`
}

// position resolves a position on one partition.
func (b *Board) position(ctx context.Context, t *state.Topic, n uint32, at protocol.Position) (uint64, error) {
	m := b.cfg.Meta.View().Partition(t.ID, n)
	if m == nil {
		return 0, words.DeletedTopic(t.Name)
	}
	q := &PositionArg{Partition: calls.Of(m), At: at}
	if m.Owner.Store == b.cfg.Self().Store {
		q.Epoch = 0 // whichever it serves by now
	}
	a, err := calls.Errand[PositionArg, PositionAnswer]{Op: opPosition, Here: b.cfg.Here.Position}.On(ctx, b.cfg.Peers, m.Owner.Store, q)
	if err != nil {
		return 0, fmt.Errorf("find the position on %s:%d: %w", t.Name, n, err)
	}
	return a.Offset, nil
}

// resetTries bounds how often a reset begins again because another took its generation.
const resetTries = 20

// ResetSubscription moves a subscription to a position on every partition, or
// on one; the others stay as they are, acknowledgements above their prefix
// included.
func (b *Board) ResetSubscription(ctx context.Context, id state.TopicID, name string, partition int, to protocol.Position) error {
	t := b.cfg.Meta.View().TopicByID(id)
	if t == nil {
		return protocol.Errorf(protocol.CodeNoSuchTopic, "the topic of subscription %q was deleted", name)
	}
	if partition >= int(t.Settings.Partitions) {
		return protocol.Errorf(protocol.CodeNoSuchPartition, "topic %s has no partition %d: it has %d", t.Name, partition, t.Settings.Partitions)
	}
	first, end := uint32(0), t.Settings.Partitions
	if partition >= 0 {
		first, end = uint32(partition), uint32(partition)+1
	}
	todo := make([]state.CursorReset, 0, end-first)
	for n := first; n < end; n++ {
		at, err := b.position(ctx, t, n, to)
		if err != nil {
			return err
		}
		todo = append(todo, state.CursorReset{Partition: n, Start: at})
	}
	var err error
	for range resetTries {
		if todo, err = b.resetCursors(ctx, t, name, todo); err != nil || len(todo) == 0 {
			return err
		}
	}
	return protocol.Errorf(protocol.CodeOverloaded, "subscription %s of %s is being moved by others all the time", name, t.Name)
}

// resetCursors commits resets and lets the shells follow. It returns those
// that lost their generation to another reset and are to be tried again: two
// that run side by side are carried out one after the other.
func (b *Board) resetCursors(ctx context.Context, t *state.Topic, name string, todo []state.CursorReset) (lost []state.CursorReset, err error) {
	m := b.cfg.Meta.View().Subscription(t.ID, name)
	if m == nil {
		return nil, words.NoSuchSubscription(t.Name, name)
	}
	for i := range todo {
		todo[i].Generation = m.Cursors[todo[i].Partition].Generation + 1
	}
	errs, err := b.cfg.Peers.RequestEach(ctx, &state.ResetSubscription{Subscription: m.ID, Entries: todo}, len(todo))
	if err != nil {
		return nil, fmt.Errorf("reset subscription %s of %s: %w", name, t.Name, err)
	}
	done := make([]state.CursorReset, 0, len(todo))
	for i, r := range todo {
		switch err := errs[i]; {
		case errors.Is(err, state.ErrStaleGeneration):
			lost = append(lost, r)
			continue
		case err != nil:
			return nil, fmt.Errorf("reset subscription %s on %s:%d: %w", name, t.Name, r.Partition, err)
		}
		done = append(done, r)
	}
	q := &ResetArg{SubscriptionArg: SubscriptionArg{Topic: t.ID[:], Subscription: name, Index: b.cfg.Meta.View().Index()}, ID: m.ID, Entries: done}
	e := calls.Errand[ResetArg, protocol.Done]{Op: opReset, Here: b.cfg.Here.Reset}
	if _, err := e.OnEach(ctx, b.cfg.Peers, ownersOf(b.cfg.Meta.View(), t), q); err != nil {
		b.cfg.Log.Info("a broker follows the reset of a subscription a little later", "topic", t.Name, "subscription", name, "err", err)
	}
	return lost, nil
}

// ResetArg tells owners of a committed reset.
type ResetArg struct {
	SubscriptionArg
	ID      uint64              `msgpack:"d"`
	Entries []state.CursorReset `msgpack:"e"`
}

// deleteSubscription removes a subscription and ends its consumers.
func (b *Board) deleteSubscription(ctx context.Context, q *protocol.SubArgs) error {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return err
	}
	m := b.cfg.Meta.View().Subscription(t.ID, q.Subscription)
	if m == nil {
		return words.NoSuchSubscription(t.Name, q.Subscription)
	}
	if n, err := b.consumersEverywhere(ctx, t, q.Subscription); !q.Force {
		if err != nil {
			return err
		}
		if n > 0 {
			return &protocol.Error{
				Code: protocol.CodeSubscriptionInUse, Hint: "--force deletes it all the same, and tells them",
				Text: fmt.Sprintf("subscription %s of %s has %s attached", q.Subscription, t.Name, words.Counted(n, "consumer", "consumers")),
			}
		}
	}
	if _, err := b.cfg.Peers.Request(ctx, &state.DeleteSubscription{Subscription: m.ID}); err != nil {
		return fmt.Errorf("delete subscription %s of %s: %w", q.Subscription, t.Name, err)
	}
	why := protocol.Errorf(protocol.CodeNoSuchSub, "subscription %s of %s was deleted", q.Subscription, t.Name)
	if err := b.endSubscription(ctx, t, m, why); err != nil {
		b.cfg.Log.Info("a broker ends the consumers of a deleted subscription a little later", "topic", t.Name, "subscription", m.Name, "err", err)
	}
	return nil
}

// SubscriptionArg names a subscription of a topic, or with "" all there are.
type SubscriptionArg struct {
	Topic        []byte `msgpack:"t"`
	Subscription string `msgpack:"s"`
	Index        uint64 `msgpack:"i"`
}

// Users are the consumers that a broker has.
type Users struct {
	Consumers int `msgpack:"c"`
}

// consumersEverywhere counts consumers on all brokers.
func (b *Board) consumersEverywhere(ctx context.Context, t *state.Topic, subscription string) (n int, err error) {
	q := &SubscriptionArg{Topic: t.ID[:], Subscription: subscription, Index: b.cfg.Meta.View().Index()}
	answers, err := calls.Errand[SubscriptionArg, Users]{Op: opUsers, Here: b.cfg.Here.Users}.OnEach(ctx, b.cfg.Peers, ownersOf(b.cfg.Meta.View(), t), q)
	for _, a := range answers {
		if a != nil {
			n += a.Consumers
		}
	}
	if err != nil {
		return n, fmt.Errorf("count the consumers of %s: %w", t.Name, err)
	}
	return n, nil
}

// EndArg ends the consumers of a subscription.
type EndArg struct {
	SubscriptionArg
	ID   uint64        `msgpack:"d"`
	Code protocol.Code `msgpack:"c"`
	Why  string        `msgpack:"w"`
}

// endSubscription ends the consumers of a subscription on all brokers, and has
// what they acknowledged committed: whoever attaches next begins there.
func (b *Board) endSubscription(ctx context.Context, t *state.Topic, m *state.Subscription, why *protocol.Error) error {
	q := &EndArg{SubscriptionArg: SubscriptionArg{Topic: t.ID[:], Subscription: m.Name, Index: b.cfg.Meta.View().Index()}, ID: m.ID, Code: why.Code, Why: why.Text}
	_, err := calls.Errand[EndArg, protocol.Done]{Op: opEnd, Here: b.cfg.Here.End}.OnEach(ctx, b.cfg.Peers, ownersOf(b.cfg.Meta.View(), t), q)
	return err
}
