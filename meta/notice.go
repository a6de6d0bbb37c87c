package meta

import (
	"github.com/hashicorp/raft"
)

// A follower learns from the next message with entries how far the log is committed, or from one that Raft sends every
// 50 to 100 ms while there are none. For whoever proposed through that follower, or waits for a partition to be granted,
// that is long. So the leader tells each follower at once: a message without entries, whose previous entry is the last
// one that this follower acknowledged in this term, and whose commit index is at most that. Every follower of Raft's
// takes such a message; it says nothing that is not so. The alternatives are an entry more per command, with its two
// disk syncs on every broker, or a message to every broker each few milliseconds for ever.

// progress is what one follower acknowledged in one term.
type progress struct {
	header raft.RPCHeader
	term   uint64 // of the leader
	index  uint64 // last entry acknowledged in that term
	logged uint64 // its term
	told   uint64 // highest commit index it answered to
}

// follower is the state of one other server, with the goroutine that tells it.
type follower struct {
	id       raft.ServerID
	address  raft.ServerAddress
	progress progress
	wake     chan struct{} // room for one
}

// acknowledged records what a follower answered, and wakes its notifier if more is committed than it was told.
func (t *transport) acknowledged(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f := t.followers[id]
	if f == nil {
		f = &follower{id: id, wake: make(chan struct{}, 1)}
		t.followers[id] = f
		if !t.streams.run(func() { t.tell(f) }) {
			return
		}
	}
	f.address = target
	p := &f.progress
	if args.Term != p.term {
		*p = progress{header: args.RPCHeader, term: args.Term}
	}
	p.told = max(p.told, args.LeaderCommitIndex)
	if n := len(args.Entries); n > 0 {
		last := args.Entries[n-1]
		p.index, p.logged = last.Index, last.Term
		f.awake()
	}
}

func (f *follower) awake() {
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// committed wakes every notifier; something was committed.
func (t *transport) committed() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range t.followers {
		f.awake()
	}
}

// tell sends a follower what is committed. Returns when the streams close.
func (t *transport) tell(f *follower) {
	for {
		select {
		case <-f.wake:
		case <-t.streams.done:
			return
		}
		t.mu.Lock()
		p, address := f.progress, f.address
		t.mu.Unlock()
		r := t.raft.Load()
		if r == nil {
			continue
		}
		commit := min(r.CommitIndex(), p.index)
		// In this order: a commit index that was read in a later term may count entries of another leader's.
		if commit <= p.told || r.CurrentTerm() != p.term || r.State() != raft.Leader || t.hung() {
			continue
		}
		args := &raft.AppendEntriesRequest{
			RPCHeader: p.header, Term: p.term,
			PrevLogEntry: p.index, PrevLogTerm: p.logged, LeaderCommitIndex: commit,
		}
		var resp raft.AppendEntriesResponse
		if err := t.NetworkTransport.AppendEntries(f.id, t.route(f.id, address), args, &resp); err != nil || !resp.Success {
			continue // Raft's own message follows
		}
		t.mu.Lock()
		if f.progress.term == p.term {
			f.progress.told = max(f.progress.told, commit)
		}
		t.mu.Unlock()
	}
}
