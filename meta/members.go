package meta

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/danubemq/danube/meta/state"
)

var (
	// ErrNotMember: the server is not what the change needs: a member, a voter, or another than the leader itself.
	ErrNotMember = errors.New("not a fitting member of the metadata")
	// ErrNoQuorum: too few of the voters that would remain answer now; the change would leave the cluster without a
	// leader. Nothing was changed.
	ErrNoQuorum = errors.New("too few of the remaining metadata voters answer")
)

// Servers returns the members in the order of joining, the newest change included even if it is not committed yet. Their
// addresses are those they registered with, or until then those they were added with.
func (n *Node) Servers() []Server {
	servers := n.raft.GetConfiguration().Configuration().Servers
	view := n.View()
	all := make([]Server, 0, len(servers))
	for _, s := range servers {
		store, err := state.ParseStoreID(string(s.ID))
		if err != nil {
			continue // none that this code added
		}
		address := hostPort(s.Address)
		if known := view.Store(store); known != nil && known.Addresses.Peer != "" {
			address = known.Addresses.Peer
		}
		all = append(all, Server{Store: store, Address: address, Voter: s.Suffrage == raft.Voter})
	}
	return all
}

// serverAddress is the address that Raft's configuration has of a server, from its first day there to its last: Raft
// keeps no lock on it while it replicates, and holds it against a server that comes where another one was. Where the
// server is now is known from Config.Resolve and from its registration.
func serverAddress(store state.StoreID, address string) raft.ServerAddress {
	return raft.ServerAddress(store.String() + "@" + address)
}

// hostPort returns what serverAddress was made of.
func hostPort(a raft.ServerAddress) string {
	if _, address, ok := strings.Cut(string(a), "@"); ok {
		return address
	}
	return string(a)
}

// raftAddress returns the address that Raft's configuration has of a store; empty: none.
func (n *Node) raftAddress(store state.StoreID) raft.ServerAddress {
	for _, s := range n.raft.GetConfiguration().Configuration().Servers {
		if s.ID == serverID(store) {
			return s.Address
		}
	}
	return ""
}

func (n *Node) server(store state.StoreID) (Server, bool) {
	for _, s := range n.Servers() {
		if s.Store == store {
			return s, true
		}
	}
	return Server{}, false
}

// AddServer adds a server as a non-voter. Of one that is a member it does nothing, whatever its address: it tells that
// itself when it registers. On the leader only. Errors: ErrNotLeader and those of Propose.
func (n *Node) AddServer(ctx context.Context, s Server) error {
	return n.change(ctx, func() error {
		if _, known := n.server(s.Store); known {
			return nil
		}
		return n.await(ctx, func() raft.Future {
			return n.raft.AddNonvoter(serverID(s.Store), serverAddress(s.Store, s.Address), 0, enqueueTimeout)
		})
	})
}

// Promote makes a non-voter a voter once it says itself that it has applied what this leader has: a voter that is far
// behind or out of reach can take the cluster's majority away. On the leader only. ctx bounds the waiting for it.
// Errors: ErrNotLeader, ErrNotMember, ErrNoQuorum and those of Propose.
func (n *Node) Promote(ctx context.Context, store state.StoreID) error {
	return n.change(ctx, func() error {
		s, ok := n.server(store)
		if !ok {
			return fmt.Errorf("promote %s: %w", store, ErrNotMember)
		}
		if s.Voter {
			return nil
		}
		if n.cfg.Forward == nil {
			return fmt.Errorf("promote %s: no way to ask how far it is: %w", store, ErrNoQuorum)
		}
		reply, err := n.cfg.Forward(ctx, s, opReach, appendIndex(nil, n.View().Index()))
		if err == nil {
			_, err = decodeReply(reply)
		}
		if err != nil {
			return fmt.Errorf("promote %s: it does not say that it has caught up: %w: %w", store, ErrNoQuorum, err)
		}
		return n.await(ctx, func() raft.Future {
			return n.raft.AddVoter(serverID(store), n.raftAddress(store), 0, enqueueTimeout)
		})
	})
}

// Demote makes a voter a non-voter. On the leader only, of another server, and not if the voters that remain could not
// commit. Errors: ErrNotLeader, ErrNotMember (the leader itself: Transfer first), ErrNoQuorum and those of Propose.
func (n *Node) Demote(ctx context.Context, store state.StoreID) error {
	return n.change(ctx, func() error {
		s, ok := n.server(store)
		if !ok || store == n.cfg.Store {
			return fmt.Errorf("demote %s: %w", store, ErrNotMember)
		}
		if !s.Voter {
			return nil
		}
		if err := n.canLose(store); err != nil {
			return err
		}
		return n.await(ctx, func() raft.Future { return n.raft.DemoteVoter(serverID(store), 0, enqueueTimeout) })
	})
}

// RemoveServer takes a server out of the group for good: it is sent nothing more and no vote of its counts. One that is
// not a member is a success. On the leader only, of another server, and not if the voters that remain could not commit.
// Errors as of Demote.
func (n *Node) RemoveServer(ctx context.Context, store state.StoreID) error {
	return n.change(ctx, func() error {
		s, ok := n.server(store)
		if !ok {
			return nil
		}
		if store == n.cfg.Store {
			return fmt.Errorf("remove %s: %w: it leads", store, ErrNotMember)
		}
		if s.Voter {
			if err := n.canLose(store); err != nil {
				return err
			}
		}
		return n.await(ctx, func() raft.Future { return n.raft.RemoveServer(serverID(store), 0, enqueueTimeout) })
	})
}

// quorumFresh is how long ago a voter may have answered to be counted on.
const quorumFresh = time.Second

// canLose says whether the voters other than store can commit.
func (n *Node) canLose(store state.StoreID) error {
	var rest []Server
	for _, s := range n.Servers() {
		if s.Store != store {
			rest = append(rest, s)
		}
	}
	if n.quorumContact(rest) > quorumFresh {
		return fmt.Errorf("without %s: %w", store, ErrNoQuorum)
	}
	return nil
}

// Transfer hands leadership to another voter, nil: to the one that is most up to date. It returns when this node leads
// no more. On the leader only. Errors: ErrNotLeader, ErrNotMember, ErrBusy while another transfer is under way, or that
// the target did not take it within an election timeout; then this node may still lead.
func (n *Node) Transfer(ctx context.Context, to *state.StoreID) error {
	return n.change(ctx, func() error {
		if to == nil {
			return n.transfer(ctx, func() raft.Future { return n.raft.LeadershipTransfer() })
		}
		s, ok := n.server(*to)
		if !ok || !s.Voter || *to == n.cfg.Store { // Raft would try a non-voter, and be without a leader meanwhile
			return fmt.Errorf("transfer to %s: %w", *to, ErrNotMember)
		}
		return n.transfer(ctx, func() raft.Future {
			return n.raft.LeadershipTransferToServer(serverID(*to), n.raftAddress(*to))
		})
	})
}

func (n *Node) transfer(ctx context.Context, f func() raft.Future) error {
	return n.call(ctx, func() error {
		err := f().Error()
		switch {
		case errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
			return ErrBusy
		case errors.Is(err, raft.ErrNotLeader):
			return ErrNotLeader
		case err != nil:
			return fmt.Errorf("transfer leadership: %w", err)
		}
		return nil
	})
}

func (n *Node) await(ctx context.Context, f func() raft.Future) error {
	return n.call(ctx, func() error { return translate(f().Error()) })
}

// change runs one change of the members at a time, on the leader.
func (n *Node) change(ctx context.Context, f func() error) error {
	select {
	case n.membership <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	case <-n.stop:
		return ErrClosed
	}
	defer func() { <-n.membership }()
	if _, leads := n.Leading(); !leads {
		return ErrNotLeader
	}
	return f()
}
