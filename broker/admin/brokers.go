package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

func ownerOfStore(s *state.Store) state.Owner {
	return state.Owner{Store: s.ID, Incarnation: s.Incarnation}
}

func (b *Board) status(ctx context.Context, _ *struct{}) (any, error) {
	view := b.cfg.Meta.View()
	c := view.Cluster()
	t := words.Take(view)
	out := &protocol.Status{
		Cluster: c.Name, ClusterID: fmt.Sprintf("%x", c.ID[:]), Broker: b.cfg.Name, Release: b.cfg.Release,
		Ready: b.cfg.Ready(), Topics: view.TopicCount(), Brokers: b.brokers(ctx, view, t), History: c.History,
		Orphaned: t.Orphans + t.Unplaced, Unplaced: t.Unplaced, Moving: t.Moves, Ownerless: t.NoOwner, Durability: b.durabilityWords(),
		Orphans: t.Away, Moves: t.Moving,
	}
	if leader, ok := b.cfg.Meta.Leader(); ok {
		out.Leader = b.cfg.Peers.Name(leader.Store)
	}
	out.Degraded = append(b.cfg.Degraded(), t.Reasons(view)...)
	out.Degraded = append(out.Degraded, b.leaderNotes(ctx)...)
	return out, nil
}

// durabilityWords says what the default level of a topic means here.
func (b *Board) durabilityWords() string {
	if b.cfg.Durability == "object" {
		return "durability object: in the cold tier, whatever becomes of the broker that owns the topic"
	}
	return "durability local: one copy, on the disk of the broker that owns the topic"
}

// brokers lists those that are not removed.
func (b *Board) brokers(ctx context.Context, view *state.View, t *words.Tally) []protocol.BrokerStatus {
	stores := slices.DeleteFunc(slices.Collect(view.Stores()), func(s *state.Store) bool { return s.Status == state.StoreRemoved })
	return b.describeBrokers(view, t, stores, b.presence(ctx, stores, &PresenceArg{}))
}

// describeBrokers says of brokers what the metadata, the voters, gossip and they themselves say, each in a field of its own.
func (b *Board) describeBrokers(view *state.View, t *words.Tally, stores []*state.Store, there map[state.StoreID]present) []protocol.BrokerStatus {
	voters, gossip := map[state.StoreID]bool{}, map[state.StoreID]cluster.Member{}
	for _, s := range b.cfg.Meta.Servers() {
		voters[s.Store] = s.Voter
	}
	for _, m := range b.cfg.Cluster.Members() {
		gossip[m.Store] = m
	}
	leader, led := b.cfg.Meta.Leader()
	out := []protocol.BrokerStatus{}
	for _, s := range stores {
		p := there[s.ID]
		x := protocol.BrokerStatus{
			Name: s.Broker, Store: s.ID.String(), Address: s.Addresses.Client, State: words.Status(s), Voter: voters[s.ID], Incarnation: s.Incarnation,
			Leader: led && leader.Store == s.ID, Peer: s.Addresses.Peer, HTTP: s.Addresses.HTTP, Partitions: t.Owned[s.ID],
			OnlyCopies: max(0, t.Only[s.ID]-p.answer.Empty), Applied: p.answer.Applied, Seen: p.seen,
		}
		if m, ok := gossip[s.ID]; ok && s.ID != b.cfg.Self().Store {
			x.Gossip = m.State.String()
		}
		if p.seen == "silent" {
			x.Reason = "it does not answer"
		}
		out = append(out, x)
	}
	return out
}

type notesAnswer struct {
	Notes []string `msgpack:"n"`
}

// leaderNotes asks the leader what it knows: who is suspected, who lags, what cannot be moved.
func (b *Board) leaderNotes(ctx context.Context) []string {
	leader, ok := b.cfg.Meta.Leader()
	if !ok {
		return []string{"no leader is known: nothing can be decided"}
	}
	a, err := calls.Errand[struct{}, notesAnswer]{Op: opNotes, Limit: notesTime, Here: b.notesHere}.On(ctx, b.cfg.Peers, leader.Store, &struct{}{})
	if err != nil {
		return []string{fmt.Sprintf("the leader, broker %s, does not answer: %v", b.cfg.Peers.Name(leader.Store), err)}
	}
	return a.Notes
}

// notesTime bounds how long a status waits for the leader.
const notesTime = 2 * time.Second

func (b *Board) notesHere(context.Context, *struct{}) (*notesAnswer, error) {
	return &notesAnswer{b.cfg.Controller.Notes()}, nil
}

func (b *Board) brokerList(ctx context.Context, _ *struct{}) (any, error) {
	view := b.cfg.Meta.View()
	return &protocol.BrokerList{Brokers: b.brokers(ctx, view, words.Take(view))}, nil
}

// mostListed bounds the lists of broker describe.
const mostListed = 1000

func (b *Board) brokerDescribe(ctx context.Context, q *protocol.BrokerArgs) (any, error) {
	view := b.cfg.Meta.View()
	s, err := words.StoreNamed(view, q.Broker)
	if err != nil {
		return nil, err
	}
	out := &protocol.BrokerDescription{Owned: []protocol.BrokerPartition{}, Only: []protocol.BrokerRange{}}
	out.BrokerStatus = protocol.BrokerStatus{Name: s.Broker, Store: s.ID.String(), State: words.Status(s), Incarnation: s.Incarnation}
	var p present
	if s.Status != state.StoreRemoved {
		one := []*state.Store{s}
		there := b.presence(ctx, one, &PresenceArg{Which: true})
		p, out.BrokerStatus = there[s.ID], b.describeBrokers(view, words.Take(view), one, there)[0]
	}
	for m := range view.Held(s.ID) {
		t := view.TopicByID(m.Topic)
		if t == nil || t.Deleted() {
			continue
		}
		if m.Owner.Store == s.ID && len(out.Owned) < mostListed {
			out.Owned = append(out.Owned, protocol.BrokerPartition{Topic: t.Name, Partition: int(m.Number), Epoch: m.Epoch, State: strings.ToLower(m.State.String())})
		}
		for i := range m.Ranges {
			r := &m.Ranges[i]
			if len(r.Stores) != 1 || r.Stores[0] != s.ID || r.Status == state.RangeLost || words.Covered(m, r) || p.empty(m, r) || len(out.Only) == mostListed {
				continue
			}
			d := words.Range(view, m, r, m.Floor)
			out.Only = append(out.Only, protocol.BrokerRange{Topic: t.Name, Partition: int(m.Number), Start: d.Start, End: d.End, Status: d.Status})
		}
	}
	return out, nil
}

func (b *Board) brokerDrain(ctx context.Context, q *protocol.BrokerArgs) (any, error) {
	return b.setStatus(ctx, q, state.StoreDraining, state.StoreDraining, state.StoreDrained)
}

func (b *Board) brokerActivate(ctx context.Context, q *protocol.BrokerArgs) (any, error) {
	return b.setStatus(ctx, q, state.StoreActive, state.StoreActive)
}

// setStatus changes what the cluster expects of a broker; done are the states in which that is so already.
func (b *Board) setStatus(ctx context.Context, q *protocol.BrokerArgs, to state.StoreStatus, done ...state.StoreStatus) (any, error) {
	view := b.cfg.Meta.View()
	s, err := words.StoreNamed(view, q.Broker)
	switch {
	case err != nil:
		return nil, err
	case slices.Contains(done, s.Status):
		return protocol.Done{}, nil
	case s.Status == state.StoreLost:
		return nil, &protocol.Error{Code: protocol.CodeBadRequest, Text: fmt.Sprintf("broker %s is lost and serves nothing", s.Broker),
			Hint: "start it again, or take it out of the cluster with: danube broker remove " + s.Broker}
	case s.Status == state.StoreRemoved:
		return nil, protocol.Errorf(protocol.CodeBadRequest, "broker %s was removed from the cluster", s.Broker)
	}
	if to == state.StoreDraining && !othersTake(view, s) {
		return nil, &protocol.Error{Code: protocol.CodeBadRequest, Text: fmt.Sprintf("broker %s cannot be drained: no other broker is active to take what it has", s.Broker),
			Hint: startAnother}
	}
	if _, err := b.cfg.Peers.Request(ctx, &state.SetStore{Owner: ownerOfStore(s), Status: to}); err != nil {
		return nil, fmt.Errorf("make broker %s %s: %w", s.Broker, to, err)
	}
	return protocol.Done{}, nil
}

func (b *Board) brokerRemove(ctx context.Context, q *protocol.BrokerArgs) (any, error) {
	all, err := words.StoresNamed(b.cfg.Meta.View(), q.Broker)
	if err != nil {
		return nil, err
	}
	s, err := words.Only(q.Broker, all) // what cannot be taken back guesses nothing
	if err != nil {
		return nil, err
	}
	_, err = b.cfg.Peers.Request(ctx, &state.RemoveStore{Store: s.ID, Lose: q.Lose})
	if errors.Is(err, state.ErrConflict) {
		return nil, &protocol.Error{Code: protocol.CodeBadRequest, Text: fmt.Sprintf("broker %s cannot be removed: %v", s.Broker, err), Hint: removeHint(b.cfg.Meta.View(), s)}
	}
	if err != nil {
		return nil, fmt.Errorf("remove broker %s: %w", s.Broker, err)
	}
	return protocol.Done{}, nil
}

// removeHint says what has to be done before a broker can be removed. What it owns is never given up by a removal: others
// take it over when the broker is drained, or lost.
func removeHint(view *state.View, s *state.Store) string {
	switch {
	case s.Status == state.StoreLost:
		return "with --lose what only its disk has is given up for good"
	case !othersTake(view, s):
		return "no other broker is active to take what it has: " + startAnother
	case words.Status(s) == "stopped":
		return "start it and drain it; if its disk is gone others take over what it owns once it is lost, and --lose gives up what only that disk has"
	}
	return "danube broker drain " + s.Broker + " moves what it has to others; if its disk is gone stop it: others take over what it owns once it is lost"
}

// startAnother is what to do where no other broker takes topics.
const startAnother = "danube join starts another one; danube broker activate makes one that was drained take topics again"

// othersTake says whether another broker is active, to take what one has.
func othersTake(view *state.View, s *state.Store) bool {
	for o := range view.Stores() {
		if o.ID != s.ID && o.Status == state.StoreActive && !o.Clean {
			return true
		}
	}
	return false
}

func (b *Board) promote(ctx context.Context, q *protocol.BrokerArgs) (any, error) {
	return calls.Errand[protocol.BrokerArgs, protocol.Done]{Op: opPromote, Limit: changeTime, Here: b.promoteHere}.OnLeader(ctx, b.cfg.Peers, q)
}

func (b *Board) demote(ctx context.Context, q *protocol.BrokerArgs) (any, error) {
	return calls.Errand[protocol.BrokerArgs, protocol.Done]{Op: opDemote, Limit: changeTime, Here: b.demoteHere}.OnLeader(ctx, b.cfg.Peers, q)
}

// changeTime bounds what the leader does for an operator.
const changeTime = 30 * time.Second

func (b *Board) promoteHere(ctx context.Context, q *protocol.BrokerArgs) (*protocol.Done, error) {
	s, err := words.StoreNamed(b.cfg.Meta.View(), q.Broker)
	if err != nil {
		return nil, err
	}
	return &protocol.Done{}, b.memberError(s, "given a vote", b.cfg.Meta.Promote(ctx, s.ID))
}

func (b *Board) demoteHere(ctx context.Context, q *protocol.BrokerArgs) (*protocol.Done, error) {
	s, err := words.StoreNamed(b.cfg.Meta.View(), q.Broker)
	if err != nil {
		return nil, err
	}
	if b.onlyVoter(s.ID) {
		return nil, &protocol.Error{Code: protocol.CodeBadRequest, Text: fmt.Sprintf("broker %s cannot be demoted: it is the only voter", s.Broker),
			Hint: "danube cluster promote gives another broker a vote first; danube join starts one"}
	}
	if s.ID == b.cfg.Self().Store {
		// The leader cannot take its own vote: another leads first, and does it.
		if err := b.cfg.Meta.Transfer(ctx, nil); err != nil {
			return nil, b.memberError(s, "demoted", err)
		}
		return nil, meta.ErrNotLeader
	}
	return &protocol.Done{}, b.memberError(s, "demoted", b.cfg.Meta.Demote(ctx, s.ID))
}

// onlyVoter says whether nobody but a store votes.
func (b *Board) onlyVoter(id state.StoreID) bool {
	for _, s := range b.cfg.Meta.Servers() {
		if s.Voter != (s.Store == id) {
			return false
		}
	}
	return true
}

func (b *Board) memberError(s *state.Store, what string, err error) error {
	if errors.Is(err, meta.ErrNotMember) || errors.Is(err, meta.ErrNoQuorum) {
		return protocol.Errorf(protocol.CodeBadRequest, "broker %s cannot be %s: %v", s.Broker, what, err)
	}
	if err != nil {
		return fmt.Errorf("broker %s is not %s: %w", s.Broker, what, err)
	}
	return nil
}
