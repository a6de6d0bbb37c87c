package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// lookup answers who serves a topic, and makes it if the request says so.
func (b *Broker) lookup(ctx context.Context, q *protocol.Lookup) (protocol.Header, error) {
	full, _, err := protocol.ParseTopic(q.Topic)
	if err != nil {
		return nil, err
	}
	created := false
	t, err := b.topicKnown(ctx, full)
	if err != nil {
		return nil, err
	}
	if t == nil {
		switch {
		case q.Create == nil:
			return nil, noSuchTopic(full)
		case !*b.cfg.AutoCreate:
			return nil, protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s does not exist, and this cluster does not let producers make topics", full)
		}
		if created, err = b.autoCreate(ctx, full, *q.Create); err != nil {
			return nil, err
		}
		if t = b.meta.View().Topic(full); t == nil {
			return nil, noSuchTopic(full)
		}
	}
	return b.owners(t, created), nil
}

// topicKnown returns a topic, nil if there is none. That is not said by a broker
// that only has not heard of it yet: the client would believe it.
func (b *Broker) topicKnown(ctx context.Context, full string) (*state.Topic, error) {
	if t := b.meta.View().Topic(full); t != nil {
		return t, nil
	}
	if _, leads := b.meta.Leading(); !leads {
		ctx, cancel := context.WithTimeout(ctx, calls.Limit)
		defer cancel()
		if err := b.meta.Barrier(ctx); err != nil {
			return nil, fmt.Errorf("look up topic %s: %w", full, err)
		}
	}
	return b.meta.View().Topic(full), nil
}

// autoCreate makes a topic that a producer wants. Losing the race for the name
// against other settings is no error: the topic is answered as it is.
func (b *Broker) autoCreate(ctx context.Context, full string, c protocol.TopicConfig) (bool, error) {
	res, err := b.createTopic(ctx, full, c)
	if errors.Is(err, state.ErrExists) {
		return false, nil
	}
	return res.Created, err
}

func (b *Broker) owners(t *state.Topic, created bool) *protocol.LookupOK {
	view := b.meta.View()
	ok := &protocol.LookupOK{
		ID: t.ID[:], Name: t.Name, Reliable: t.Settings.Reliable, Durability: t.Settings.Durability.String(), Created: created,
	}
	for p := range view.Partitions(t.ID) {
		o := protocol.PartitionOwner{Epoch: p.Epoch}
		if s := view.Store(p.Owner.Store); serves(s, p) {
			o.Broker, o.Address = s.Broker, s.Addresses.Client
		}
		ok.Partitions = append(ok.Partitions, o)
	}
	return ok
}

// settings turns a request's settings into the metadata's, refusing what no
// configured tier can keep.
func settings(c protocol.TopicConfig) (state.TopicSettings, error) {
	s := state.TopicSettings{Partitions: 1, Reliable: !c.NonReliable}
	if c.Partitions < 0 || c.Partitions > state.MaxPartitions {
		return s, protocol.Errorf(protocol.CodeBadRequest, "%d partitions: 1 to %d are allowed", c.Partitions, state.MaxPartitions)
	}
	if c.Partitions > 0 {
		s.Partitions = uint32(c.Partitions)
	}
	if c.RetentionMS < 0 || c.RetentionBytes < 0 || c.RetentionMS > math.MaxInt64/int64(time.Millisecond) {
		return s, protocol.Errorf(protocol.CodeBadRequest, "retention out of bounds")
	}
	s.RetentionTime = time.Duration(c.RetentionMS) * time.Millisecond
	s.RetentionBytes = uint64(c.RetentionBytes)
	var err error
	s.Durability, err = level(c.Durability, s.Reliable)
	return s, err
}

func level(name string, reliable bool) (state.Level, error) {
	switch {
	case !reliable && (name == "" || name == "none"):
		return state.LevelNone, nil
	case !reliable:
		return 0, protocol.Errorf(protocol.CodeBadRequest, "a non-reliable topic keeps nothing: it has no durability %q", name)
	case name == "" || name == "auto" || name == "local":
		return state.LevelLocal, nil
	case name == "warm":
		return 0, protocol.Errorf(protocol.CodeLevelUnavailable, "durability warm needs a write buffer: storage.write_buffer is not configured")
	case name == "object":
		return 0, protocol.Errorf(protocol.CodeLevelUnavailable, "durability object needs shared storage: storage.mode is local")
	}
	return 0, protocol.Errorf(protocol.CodeBadRequest, "unknown durability %q: use local, warm or object", name)
}

// createTopic makes a topic whose partitions are spread over the brokers by load.
func (b *Broker) createTopic(ctx context.Context, full string, c protocol.TopicConfig) (state.Result, error) {
	s, err := settings(c)
	if err != nil {
		return state.Result{}, err
	}
	cmd := &state.CreateTopic{Name: full, Settings: s, At: b.cfg.Now().UnixMilli(), Owners: b.place(int(s.Partitions))}
	if _, err := rand.Read(cmd.ID[:]); err != nil {
		return state.Result{}, fmt.Errorf("draw topic id: %w", err)
	}
	return b.request(ctx, cmd)
}

// place chooses owners for n new partitions. Where no broker is known to be
// able, this one takes them.
func (b *Broker) place(n int) []state.Owner {
	if owners := cluster.Place(b.meta.View(), b.cluster.Members(), n); owners != nil {
		return owners
	}
	return slices.Repeat([]state.Owner{b.self()}, n)
}

// topicNamed returns a topic by the name a person wrote.
func (b *Broker) topicNamed(name string) (*state.Topic, error) {
	full, _, err := protocol.ParseTopic(name)
	if err != nil {
		return nil, err
	}
	if t := b.meta.View().Topic(full); t != nil {
		return t, nil
	}
	return nil, noSuchTopic(full)
}

// deleteTopic makes a tombstone of a topic, then removes its data here. What
// of the data is not gone when the process ends is removed at its next start.
func (b *Broker) deleteTopic(ctx context.Context, t *state.Topic) error {
	if _, err := b.request(ctx, &state.DeleteTopic{ID: t.ID, At: b.cfg.Now().UnixMilli()}); err != nil {
		return fmt.Errorf("delete topic %s: %w", t.Name, err)
	}
	return b.bury(ctx, t)
}

// consumers counts the consumers of a topic on this broker.
func (b *Broker) consumers(t *state.Topic) (n int) {
	for i := range t.Settings.Partitions {
		p := b.served(partitionKey{t.ID, i})
		if p == nil {
			continue
		}
		if p.live != nil {
			n += p.live.attached()
			continue
		}
		for _, s := range b.subscriptionsOf(p) {
			s.mu.Lock()
			n += len(s.consumers)
			s.mu.Unlock()
		}
	}
	return n
}

// bury removes what this store holds of a deleted topic and says so.
func (b *Broker) bury(ctx context.Context, t *state.Topic) error {
	for n := range t.Settings.Partitions {
		key := partitionKey{t.ID, n}
		if p := b.served(key); p != nil {
			b.retire(p, deletedTopic(t.Name))
		}
		b.dropPrepared(func(k partitionKey, _ *prepared) bool { return k == key })
		if err := b.history.Remove(key.id()); err != nil {
			return fmt.Errorf("remove data of %s:%d: %w", t.Name, n, err)
		}
	}
	if _, err := b.request(ctx, &state.PurgeTopic{ID: t.ID, Store: b.self().Store}); err != nil {
		return fmt.Errorf("purge topic %s: %w", t.Name, err)
	}
	return nil
}

// createSubscription makes a subscription that starts at a position on every partition.
func (b *Broker) createSubscription(ctx context.Context, q *protocol.SubCreate) (bool, error) {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return false, err
	}
	if err := protocol.CheckName("subscription", q.Subscription); err != nil {
		return false, err
	}
	if q.Type > protocol.Shared {
		return false, protocol.Errorf(protocol.CodeUnsupported, "subscriptions of type %v are not supported yet by this version", q.Type)
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
		return false, err
	}
	res, err := b.request(ctx, &state.CreateSubscription{
		Topic: t.ID, Name: q.Subscription, Type: state.SubscriptionType(q.Type), Options: opts, Start: start,
	})
	return res.Created, err
}

// defaultMaxUnacked is the window of a subscription that names none.
const defaultMaxUnacked = 1000

func subOptions(o protocol.SubOptions) (state.SubscriptionOptions, error) {
	if o.MaxUnacked < 0 || o.MaxUnacked > math.MaxInt32 || o.BackoffMS < 0 || o.BackoffCapMS < 0 || o.MaxRedeliver < 0 {
		return state.SubscriptionOptions{}, protocol.Errorf(protocol.CodeBadRequest, "subscription options out of bounds")
	}
	out := state.SubscriptionOptions{
		MaxUnacked: uint32(o.MaxUnacked), MaxRedelivery: uint32(o.MaxRedeliver),
		AckTimeout:  time.Duration(o.AckTimeoutMS) * time.Millisecond,
		BackoffBase: time.Duration(o.BackoffMS) * time.Millisecond,
		BackoffCap:  time.Duration(o.BackoffCapMS) * time.Millisecond,
	}
	orDefault(&out.MaxUnacked, defaultMaxUnacked)
	if o.BackoffFixed {
		orDefault(&out.BackoffBase, time.Second)
		out.BackoffCap = out.BackoffBase
	}
	return out, nil
}

// positions resolves a position on every partition of a topic.
func (b *Broker) positions(ctx context.Context, t *state.Topic, at protocol.Position) ([]uint64, error) {
	out := make([]uint64, t.Settings.Partitions)
	for n := range out {
		var err error
		if out[n], err = b.position(ctx, partitionKey{t.ID, uint32(n)}, at); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// position resolves a position on one partition.
func (b *Broker) position(ctx context.Context, key partitionKey, at protocol.Position) (uint64, error) {
	m := b.meta.View().Partition(key.topic, key.n)
	if m != nil && m.Owner.Store != b.self().Store {
		a, err := calls.AskSoon[positionAnswer](ctx, b.peers, m.Owner.Store, opPosition, &positionArg{Partition: calls.Of(m), At: at})
		if err != nil {
			return 0, fmt.Errorf("find the position on partition %d: %w", key.n, err)
		}
		return a.Offset, nil
	}
	p, err := b.owned(ctx, key, 0)
	if err != nil {
		return 0, err
	}
	n, err := p.resolve(at)
	if err != nil {
		return 0, fmt.Errorf("find the position on %s: %w", p.name(), err)
	}
	return n, nil
}

// resetTries bounds how often a reset begins again because another took its generation.
const resetTries = 20

// resetSubscription moves a subscription to a position on every partition, or
// on one; the others stay as they are, acknowledgements above their prefix
// included.
func (b *Broker) resetSubscription(ctx context.Context, id state.TopicID, name string, partition int, to protocol.Position) error {
	t := b.meta.View().TopicByID(id)
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
		at, err := b.position(ctx, partitionKey{id, n}, to)
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
func (b *Broker) resetCursors(ctx context.Context, t *state.Topic, name string, todo []state.CursorReset) (lost []state.CursorReset, err error) {
	m := b.meta.View().Subscription(t.ID, name)
	if m == nil {
		return nil, protocol.Errorf(protocol.CodeNoSuchSub, "topic %s has no subscription %q", t.Name, name)
	}
	for i := range todo {
		todo[i].Generation = m.Cursors[todo[i].Partition].Generation + 1
	}
	errs, err := b.requestEach(ctx, &state.ResetSubscription{Subscription: m.ID, Entries: todo}, len(todo))
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
	q := &resetArg{usersArg: usersArg{Topic: t.ID[:], Subscription: name, Index: b.meta.View().Index()}, ID: m.ID, Entries: done}
	e := calls.Errand[resetArg, protocol.Done]{Op: opReset, Here: b.resetHere}
	if _, err := e.OnEach(ctx, b.peers, ownersOf(b.meta.View(), t), q); err != nil {
		b.log.Info("a broker follows the reset of a subscription a little later", "topic", t.Name, "subscription", name, "err", err)
	}
	return lost, nil
}

// resetArg tells owners of a committed reset.
type resetArg struct {
	usersArg
	ID      uint64              `msgpack:"d"`
	Entries []state.CursorReset `msgpack:"e"`
}

// resetHere lets the shells of this broker follow a committed reset.
func (b *Broker) resetHere(ctx context.Context, q *resetArg) (*protocol.Done, error) {
	t, err := b.topicOf(ctx, q.Topic, q.Index)
	if err != nil {
		return nil, err
	}
	shells := b.running(t.ID, q.Subscription) // looked up after the commit: one that begins later reads it
	for _, r := range q.Entries {
		if s := shells[r.Partition]; s != nil && s.id == q.ID {
			if err := s.reset(r.Generation, r.Start); err != nil {
				return nil, err
			}
		}
	}
	return &protocol.Done{}, nil
}

// running returns the shells of a subscription by partition.
func (b *Broker) running(id state.TopicID, name string) map[uint32]*subscription {
	out := map[uint32]*subscription{}
	b.mu.RLock()
	defer b.mu.RUnlock()
	for key, p := range b.parts {
		if key.topic != id {
			continue
		}
		p.mu.Lock()
		if s := p.subs[name]; s != nil {
			out[key.n] = s
		}
		p.mu.Unlock()
	}
	return out
}

// reset follows a committed reset.
func (s *subscription) reset(generation, to uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.d.Generation() < generation {
		if err := s.d.Reset(to); err != nil {
			return err
		}
	}
	s.gapSince = 0
	s.changed()
	return nil
}

// deleteSubscription removes a subscription and ends its consumers.
func (b *Broker) deleteSubscription(ctx context.Context, q *protocol.SubArgs) error {
	t, err := b.topicNamed(q.Topic)
	if err != nil {
		return err
	}
	m := b.meta.View().Subscription(t.ID, q.Subscription)
	if m == nil {
		return protocol.Errorf(protocol.CodeNoSuchSub, "topic %s has no subscription %q", t.Name, q.Subscription)
	}
	if n, err := b.consumersEverywhere(ctx, t, q.Subscription); !q.Force {
		if err != nil {
			return err
		}
		if n > 0 {
			return protocol.Errorf(protocol.CodeSubscriptionInUse, "subscription %s of %s has %s attached", q.Subscription, t.Name, counted(n, "consumer", "consumers"))
		}
	}
	if _, err := b.request(ctx, &state.DeleteSubscription{Subscription: m.ID}); err != nil {
		return fmt.Errorf("delete subscription %s of %s: %w", q.Subscription, t.Name, err)
	}
	why := protocol.Errorf(protocol.CodeNoSuchSub, "subscription %s of %s was deleted", q.Subscription, t.Name)
	if err := b.endSubscription(ctx, t, m, why); err != nil {
		b.log.Info("a broker ends the consumers of a deleted subscription a little later", "topic", t.Name, "subscription", m.Name, "err", err)
	}
	return nil
}

// usersArg names a subscription of a topic, or with "" all there are.
type usersArg struct {
	Topic        []byte `msgpack:"t"`
	Subscription string `msgpack:"s"`
	Index        uint64 `msgpack:"i"`
}

type usersAnswer struct {
	Consumers int `msgpack:"c"`
}

// consumersEverywhere counts consumers on all brokers.
func (b *Broker) consumersEverywhere(ctx context.Context, t *state.Topic, subscription string) (n int, err error) {
	q := &usersArg{Topic: t.ID[:], Subscription: subscription, Index: b.meta.View().Index()}
	answers, err := calls.Errand[usersArg, usersAnswer]{Op: opUsers, Here: b.usersHere}.OnEach(ctx, b.peers, ownersOf(b.meta.View(), t), q)
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

// usersHere counts the consumers on this broker.
func (b *Broker) usersHere(ctx context.Context, q *usersArg) (*usersAnswer, error) {
	t, err := b.topicOf(ctx, q.Topic, q.Index)
	if err != nil {
		return nil, err
	}
	if q.Subscription == "" {
		return &usersAnswer{b.consumers(t)}, nil
	}
	n := 0
	for _, s := range b.running(t.ID, q.Subscription) {
		s.mu.Lock()
		n += len(s.consumers)
		s.mu.Unlock()
	}
	return &usersAnswer{n}, nil
}

// endArg ends the consumers of a subscription.
type endArg struct {
	usersArg
	ID   uint64        `msgpack:"d"`
	Code protocol.Code `msgpack:"c"`
	Why  string        `msgpack:"w"`
}

// endSubscription ends the consumers of a subscription on all brokers, and has
// what they acknowledged committed: whoever attaches next begins there.
func (b *Broker) endSubscription(ctx context.Context, t *state.Topic, m *state.Subscription, why *protocol.Error) error {
	q := &endArg{usersArg: usersArg{Topic: t.ID[:], Subscription: m.Name, Index: b.meta.View().Index()}, ID: m.ID, Code: why.Code, Why: why.Text}
	_, err := calls.Errand[endArg, protocol.Done]{Op: opEnd, Here: b.endHere}.OnEach(ctx, b.peers, ownersOf(b.meta.View(), t), q)
	return err
}

func (b *Broker) endHere(ctx context.Context, q *endArg) (*protocol.Done, error) {
	t, err := b.topicOf(ctx, q.Topic, q.Index)
	if err != nil {
		return nil, err
	}
	why := protocol.Errorf(q.Code, "%s", q.Why)
	subs := b.running(t.ID, q.Subscription)
	for n, s := range subs {
		if s.id != q.ID {
			delete(subs, n) // one of the same name, made since
			continue
		}
		s.close(why)
	}
	b.cursors.commit(ctx)
	for n, s := range subs {
		b.unlist(partitionKey{t.ID, n}, s)
	}
	return &protocol.Done{}, nil
}

// unlist forgets a subscription that was closed.
func (b *Broker) unlist(key partitionKey, s *subscription) {
	p := b.served(key)
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.subs[s.name] == s {
		delete(p.subs, s.name)
	}
}

// served returns a partition that is being served, nil otherwise.
func (b *Broker) served(key partitionKey) *partition {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.parts[key]
}
