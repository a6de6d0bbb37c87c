package history

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
)

// rig is a broker as far as its history sees one: a store of its own, metadata
// that the rigs of a test share, and the one partition there is, while it serves it.
type rig struct {
	t *testing.T
	*History
	owner  state.Owner
	served *served
	part   *Partition // nil while it is not served here
	walks  int        // how often all that is served was asked for
}

// served is a partition that is served by nobody in particular.
type served struct {
	over   atomic.Bool
	turned []Outcome // of the goroutine that brings
	log    *storage.Log
}

func (s *served) Over() bool        { return s.over.Load() }
func (s *served) Turned(o *Outcome) { s.turned = append(s.turned, *o) }

func (s *served) Hold() (func(), error) {
	_, err := s.log.Pause()
	return func() { _ = s.log.Resume() }, err // closed: nobody waits at its door
}

func closed(t *testing.T, close func() error) { t.Cleanup(func() { wantNil(t, close()) }) }

func wantNil(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var topic = state.TopicID{1}

// newRig is a broker that owns the partition.
func newRig(t *testing.T) *rig {
	t.Helper()
	node, err := meta.Open(t.Context(), meta.Config{Dir: t.TempDir(), Store: state.StoreID{9}, ElectionTimeout: 50 * time.Millisecond})
	wantNil(t, err)
	closed(t, node.Close)
	wantNil(t, node.WaitReady(t.Context()))
	r := join(t, node, "n1")
	r.commit(&state.CreateTopic{
		ID: topic, Name: "/default/t", Owners: []state.Owner{r.owner},
		Settings: state.TopicSettings{Partitions: 1, Reliable: true, Durability: state.LevelLocal},
	})
	return r
}

// join adds a broker whose requests reach the store of the one before, if there is one.
func join(t *testing.T, node *meta.Node, name string, before ...*rig) *rig {
	t.Helper()
	store, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), SegmentBytes: 64 << 10})
	wantNil(t, err)
	closed(t, store.Close)
	id := state.StoreID(store.ID())
	reached := id
	for _, b := range before {
		reached = b.owner.Store
	}
	c, err := cluster.Open(t.Context(), cluster.Config{Dir: t.TempDir(), Identity: cluster.Identity{Store: reached, Name: name, Cluster: "danube"}})
	wantNil(t, err)
	closed(t, c.Close)
	for _, b := range before {
		s := calls.Server{Ready: func() bool { return true }, Coded: func(err error) *protocol.Error { return protocol.Errorf(protocol.CodePending, "%v", err) }}
		c.Handle(OpFetch, s.Raw(b.Fetch))
		c.Handle(OpReport, s.Raw(b.Report))
	}
	r := &rig{t: t, served: &served{}}
	res := r.must(node.Propose(t.Context(), &state.RegisterStore{Store: id, Broker: name, Nonce: [16]byte{id[0], id[1], id[2]}, Boot: "b"}))
	r.owner = state.Owner{Store: id, Incarnation: res.Incarnation}
	r.History = Open(Config{
		Store: store, Meta: node, Peers: &calls.Peers{Cluster: c, Meta: node, Self: id},
		Self:   func() state.Owner { return r.owner },
		Served: func(storage.PartitionID) *Partition { return r.part },
		Serving: func() []*Partition {
			r.walks++
			if r.part == nil {
				return nil
			}
			return []*Partition{r.part}
		},
		Now: time.Now, At: func(string) {}, Log: slog.New(slog.DiscardHandler),
	})
	closed(t, r.Close)
	return r
}

func (r *rig) must(res state.Result, err error) state.Result {
	r.t.Helper()
	wantNil(r.t, errors.Join(append(res.Entries, err, res.Err)...))
	return res
}

func (r *rig) commit(c state.Command) {
	r.t.Helper()
	r.must(r.cfg.Meta.Propose(r.t.Context(), c))
}

// metadata is what they say of the partition.
func (r *rig) metadata() *state.Partition { return r.cfg.Meta.View().Partition(topic, 0) }

// serve serves the partition under its present epoch, and appends n messages.
func (r *rig) serve(n uint64) *Partition {
	r.t.Helper()
	m := r.metadata()
	facts := Facts(r.cfg.Meta.View().TopicByID(topic), m, r.owner.Store)
	log, _, err := r.Own(r.t.Context(), facts)
	wantNil(r.t, err)
	r.served.log = log
	wantNil(r.t, log.Begin(m.Epoch, m.OpenStart(), m.Ceiling))
	log.SetRanges(facts.Ranges)
	if n > 0 {
		_, _, err := log.OpenSession(7, 1, 0)
		wantNil(r.t, err)
	}
	for at := uint64(0); at < n; at++ {
		p, err := log.Append(batch.Batch(pageOf(r.t, 0, at, at+1)))
		wantNil(r.t, err)
		wantNil(r.t, p.Wait())
	}
	r.part = r.Partition(Serving{Meta: m, Topic: "/default/t", Log: log}, r.served)
	r.t.Cleanup(r.leave)
	return r.part
}

// leave serves the partition no more.
func (r *rig) leave() {
	if p := r.part; p != nil {
		r.part = nil
		r.served.over.Store(true)
		wantNil(r.t, p.log.Close())
	}
}

// moveTo hands the partition over, at the end of its log.
func (r *rig) moveTo(to *rig) {
	r.t.Helper()
	m, end := r.metadata(), r.part.log.Committed()
	r.commit(&state.MovePartitions{Entries: []state.PartitionMove{{Topic: topic, Epoch: m.Epoch, To: to.owner}}})
	r.commit(&state.HandOver{Owner: r.owner, Entries: []state.PartitionHandOver{{
		Topic: topic, Epoch: m.Epoch, Move: r.metadata().Move, End: end, To: to.owner,
	}}})
	r.leave()
}

// read returns up to where a reader from offset 0 on finds messages without a gap.
func (r *rig) read() uint64 {
	r.t.Helper()
	reader := r.part.Reader(r.t.Context(), 0)
	defer reader.Close()
	for at := uint64(0); ; {
		view, err := reader.Next(1 << 10)
		if errors.Is(err, storage.ErrEnd) {
			return at
		}
		wantNil(r.t, err)
		if view.Base != at {
			r.t.Fatalf("offset %d comes after %d", view.Base, at)
		}
		at = view.End
		view.Release()
	}
}

// What another store holds is read from there at once; once it is copied it is
// listed for this store alone, and the other gives nothing out any more (R16, R19).
func TestHistoryIsReadWhereItLiesAndCopied(t *testing.T) {
	n1 := newRig(t)
	n1.serve(50)
	n2 := join(t, n1.cfg.Meta, "n2", n1)
	n1.moveTo(n2)
	p := n2.serve(0)
	if got := n2.read(); got != 50 {
		t.Fatalf("read up to %d, want 50", got)
	}
	if rg := n2.metadata().Range(0); rg == nil || !lacks(n2.metadata(), rg, n2.owner.Store) {
		t.Fatalf("before the copy: %+v", rg)
	}
	wantNil(t, n2.copyHistory(t.Context(), p))
	rg := n2.metadata().Range(0)
	if rg == nil || rg.End != 50 || len(rg.Stores) != 1 || rg.Stores[0] != n2.owner.Store {
		t.Fatalf("after the copy: %+v", rg)
	}
	p.log.SetRanges(Facts(n2.cfg.Meta.View().TopicByID(topic), n2.metadata(), n2.owner.Store).Ranges)
	wantNil(t, n1.Close())
	if got := n2.read(); got != 50 {
		t.Errorf("read from the copy up to %d, want 50", got)
	}
	body, err := protocol.EncodeBody(&fetchArg{Partition: calls.Of(n2.metadata()), To: 50, Max: 1, Index: n2.cfg.Meta.View().Index()})
	wantNil(t, err)
	var refused *protocol.Error
	if _, err := n1.Fetch(t.Context(), body); !errors.As(err, &refused) || refused.Code != protocol.CodePending {
		t.Errorf("the store that was struck answers %v", err)
	}
}

// Nothing is brought for a partition while somebody keeps it.
func TestKeptPartitionIsLeftAlone(t *testing.T) {
	n1 := newRig(t)
	n1.serve(20)
	n2 := join(t, n1.cfg.Meta, "n2", n1)
	n1.moveTo(n2)
	p := n2.serve(0)
	release, free := n2.Keep(p.id)
	if _, again := n2.Keep(p.id); !free || again {
		t.Fatalf("kept once %t, twice %t", free, again)
	}
	look := func() (here bool) {
		l := looking{h: n2.History}
		l.look(t.Context(), n2.cfg.Meta.View(), nil)
		l.workers.Wait()
		return !lacks(n2.metadata(), n2.metadata().Range(0), n2.owner.Store)
	}
	if look() {
		t.Error("history was brought for a partition that is kept")
	}
	release()
	if !look() {
		t.Error("history was not brought after that")
	}
}
