package admin

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Lookup answers who serves a topic, and makes it if the request says so.
func (b *Board) Lookup(ctx context.Context, q *protocol.Lookup) (protocol.Header, error) {
	full, _, err := protocol.ParseTopic(q.Topic)
	if err != nil {
		return nil, err
	}
	created := false
	t, err := b.topicKnown(ctx, full)
	if err != nil {
		return nil, b.decided(err)
	}
	if t == nil {
		switch {
		case q.Create == nil:
			return nil, words.NoSuchTopic(full)
		case !b.cfg.AutoCreate:
			return nil, protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s does not exist, and this cluster does not let producers make topics", full)
		}
		if created, err = b.autoCreate(ctx, full, *q.Create); err != nil {
			return nil, b.decided(err)
		}
		if t = b.cfg.Meta.View().Topic(full); t == nil {
			return nil, words.NoSuchTopic(full)
		}
	}
	return b.owners(t, created), nil
}

// topicKnown returns a topic, nil if there is none. That is not said by a broker
// that only has not heard of it yet: the client would believe it.
func (b *Board) topicKnown(ctx context.Context, full string) (*state.Topic, error) {
	if t := b.cfg.Meta.View().Topic(full); t != nil {
		return t, nil
	}
	if _, leads := b.cfg.Meta.Leading(); !leads {
		ctx, cancel := context.WithTimeout(ctx, calls.Limit)
		defer cancel()
		if err := b.cfg.Meta.Barrier(ctx); err != nil {
			return nil, fmt.Errorf("look up topic %s: %w", full, err)
		}
	}
	return b.cfg.Meta.View().Topic(full), nil
}

// autoCreate makes a topic that a producer wants. Losing the race for the name
// against other settings is no error: the topic is answered as it is.
func (b *Board) autoCreate(ctx context.Context, full string, c protocol.TopicConfig) (bool, error) {
	res, err := b.createTopic(ctx, full, c)
	if errors.Is(err, state.ErrExists) {
		return false, nil
	}
	return res.Created, err
}

func (b *Board) owners(t *state.Topic, created bool) *protocol.LookupOK {
	view := b.cfg.Meta.View()
	ok := &protocol.LookupOK{
		ID: t.ID[:], Name: t.Name, Reliable: t.Settings.Reliable, Durability: t.Settings.Durability.String(), Created: created,
	}
	for p := range view.Partitions(t.ID) {
		o := protocol.PartitionOwner{Epoch: p.Epoch}
		if s := view.Store(p.Owner.Store); words.Serves(s, p) {
			o.Broker, o.Address = s.Broker, s.Addresses.Client
		}
		ok.Partitions = append(ok.Partitions, o)
	}
	return ok
}

// settings turns a request's settings into the metadata's, refusing what no
// configured tier can keep.
func (b *Board) settings(c protocol.TopicConfig) (state.TopicSettings, error) {
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
	if !s.Reliable && (c.RetentionMS > 0 || c.RetentionBytes > 0 || c.RetentionAcked) {
		return s, protocol.Errorf(protocol.CodeBadRequest, "a non-reliable topic keeps nothing: it has no retention")
	}
	s.RetentionTime = time.Duration(c.RetentionMS) * time.Millisecond
	s.RetentionBytes = uint64(c.RetentionBytes)
	s.RetentionAcked = c.RetentionAcked
	var err error
	s.Durability, err = b.level(c.Durability, s.Reliable)
	return s, err
}

func (b *Board) level(name string, reliable bool) (state.Level, error) {
	switch {
	case !reliable && (name == "" || name == "none"):
		return state.LevelNone, nil
	case !reliable:
		return 0, protocol.Errorf(protocol.CodeBadRequest, "a non-reliable topic keeps nothing: it has no durability %q", name)
	case name == "" || name == "auto":
		return b.level(cmp.Or(b.cfg.Durability, "local"), reliable)
	case name == "local":
		return state.LevelLocal, nil
	case name == "warm": // no setting that this version takes would bring it
		return 0, protocol.Errorf(protocol.CodeLevelUnavailable, "durability warm is not in this version; it has local (synced to the broker's disk) and object (in the cold tier)")
	case name == "object" && b.cfg.Audit != nil:
		return state.LevelObject, nil
	case name == "object":
		return 0, protocol.Errorf(protocol.CodeLevelUnavailable, "durability object needs a cold tier: storage.mode is local, not shared_fs or object_store with storage.durable.url")
	}
	return 0, protocol.Errorf(protocol.CodeBadRequest, "unknown durability %q; this version has local and object", name)
}

// createTopic makes a topic whose partitions are spread over the brokers by load.
func (b *Board) createTopic(ctx context.Context, full string, c protocol.TopicConfig) (state.Result, error) {
	s, err := b.settings(c)
	if err != nil {
		return state.Result{}, err
	}
	if namespace, _, err := state.SplitTopic(full); err == nil && b.cfg.Meta.View().Namespace(namespace) == nil {
		return state.Result{}, words.NoSuchNamespace(full, namespace)
	}
	cmd := &state.CreateTopic{Name: full, Settings: s, At: b.cfg.Now().UnixMilli(), Owners: b.place(int(s.Partitions))}
	if _, err := rand.Read(cmd.ID[:]); err != nil {
		return state.Result{}, fmt.Errorf("draw topic id: %w", err)
	}
	return b.cfg.Peers.Request(ctx, cmd)
}

// place chooses owners for n new partitions. Where no broker is known to be
// able, this one takes them.
func (b *Board) place(n int) []state.Owner {
	if owners := cluster.Place(b.cfg.Meta.View(), b.cfg.Cluster.Members(), n); owners != nil {
		return owners
	}
	return slices.Repeat([]state.Owner{b.cfg.Self()}, n)
}

// topicNamed returns a topic by the name a person wrote.
func (b *Board) topicNamed(name string) (*state.Topic, error) {
	full, _, err := protocol.ParseTopic(name)
	if err != nil {
		return nil, err
	}
	if t := b.cfg.Meta.View().Topic(full); t != nil {
		return t, nil
	}
	return nil, words.NoSuchTopic(full)
}

// deleteTopic makes a tombstone of a topic, then removes its data here. What
// of the data is not gone when the process ends is removed at its next start.
func (b *Board) deleteTopic(ctx context.Context, t *state.Topic) error {
	if _, err := b.cfg.Peers.Request(ctx, &state.DeleteTopic{ID: t.ID, At: b.cfg.Now().UnixMilli()}); err != nil {
		return fmt.Errorf("delete topic %s: %w", t.Name, err)
	}
	return b.cfg.Here.Bury(ctx, t)
}
