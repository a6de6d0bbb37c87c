package calls

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// other is the store whose handlers the peers of a test reach; nobody else is there.
var other = state.StoreID{2}

// alone opens peers of store 1 that reach store 2.
func alone(t *testing.T) *Peers {
	t.Helper()
	c, err := cluster.Open(t.Context(), cluster.Config{Dir: t.TempDir(), Identity: cluster.Identity{Store: other, Name: "n2", Cluster: "danube"}})
	if err != nil {
		t.Fatal(err)
	}
	node, err := meta.Open(t.Context(), meta.Config{Dir: t.TempDir(), Store: other, ElectionTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(errors.Join(err, c.Close()))
	}
	t.Cleanup(func() {
		if err := errors.Join(node.Close(), c.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := node.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := node.Propose(t.Context(), &state.RegisterStore{Store: other, Broker: "n2", Nonce: [16]byte{1}, Boot: "b"}); err != nil {
		t.Fatal(err)
	}
	return &Peers{Cluster: c, Meta: node, Self: state.StoreID{1}}
}

type question struct {
	Partition
	Double uint64 `msgpack:"d"`
}

type answer struct {
	Twice uint64 `msgpack:"w"`
}

// own is an error with a word of its own for the caller.
type own struct{}

func (own) Error() string { return "in its own words" }
func (own) Code() string  { return "own" }

// What a broker refuses comes back as the error that it was there; what never
// came there says that the broker is away (R5).
func TestRefusalsKeepTheirCodes(t *testing.T) {
	p := alone(t)
	ready := true
	fail := errors.New("a fault")
	s := Server{Ready: func() bool { return ready }, Coded: func(err error) *protocol.Error {
		if err == fail {
			return protocol.Errorf(protocol.CodeDamaged, "%v", err)
		}
		return err.(*protocol.Error)
	}}
	var refuse error
	p.Cluster.Handle("double", Serve(s, func(_ context.Context, q *question) (*answer, error) {
		if id, n, err := q.Key(); err != nil || id != (state.TopicID{5}) || n != 3 || q.Epoch != 4 {
			return nil, protocol.Errorf(protocol.CodeBadRequest, "partition %v:%d, epoch %d, %v", id, n, q.Epoch, err)
		}
		return &answer{2 * q.Double}, refuse
	}))
	ask := func(to state.StoreID, op string) (*answer, error) {
		q := &question{Partition: Of(&state.Partition{Topic: state.TopicID{5}, Number: 3, Epoch: 4}), Double: 21}
		return AskSoon[answer](t.Context(), p, to, op, q)
	}
	if a, err := ask(other, "double"); err != nil || a.Twice != 42 {
		t.Fatalf("%+v, %v", a, err)
	}
	code := func(err error) protocol.Code {
		var coded *protocol.Error
		if !errors.As(err, &coded) {
			t.Errorf("no coded error: %v", err)
			return 0
		}
		return coded.Code
	}
	refuse = fail
	if _, err := ask(other, "double"); code(err) != protocol.CodeDamaged {
		t.Errorf("a refusal came back as %v", err)
	}
	refuse = own{}
	if _, err := ask(other, "double"); code(err) != protocol.CodeInternal {
		t.Errorf("a word that is no code came back as %v", err)
	}
	ready = false
	if _, err := ask(other, "double"); code(err) != protocol.CodeNotReady {
		t.Errorf("before it was ready: %v", err)
	}
	if _, err := ask(other, "treble"); code(err) != protocol.CodeInternal {
		t.Errorf("an operation that is not there: %v", err)
	}
	if _, err := ask(state.StoreID{3}, "double"); code(err) != protocol.CodeNotReady || !errors.Is(err, cluster.ErrUnreachable) {
		t.Errorf("a broker that is away: %v", err)
	}
}

// An errand is done here by a call, elsewhere by a request, and by the leader
// wherever that is.
func TestErrandIsDoneWhereItBelongs(t *testing.T) {
	p := alone(t)
	there := Server{Ready: func() bool { return true }}
	p.Cluster.Handle("where", Serve(there, func(context.Context, *question) (*answer, error) { return &answer{2}, nil }))
	e := Errand[question, answer]{Op: "where", Here: func(context.Context, *question) (*answer, error) { return &answer{1}, nil }}
	for store, want := range map[state.StoreID]uint64{p.Self: 1, other: 2} {
		if a, err := e.On(t.Context(), p, store, &question{}); err != nil || a.Twice != want {
			t.Errorf("on store %v: %+v, %v, want %d", store, a, err, want)
		}
	}
	if a, err := e.OnLeader(t.Context(), p, &question{}); err != nil || a.Twice != 2 {
		t.Errorf("on the leader: %+v, %v", a, err)
	}
	all, err := e.OnEach(t.Context(), p, []state.StoreID{p.Self, {3}, other}, &question{})
	if !errors.Is(err, cluster.ErrUnreachable) || all[0].Twice != 1 || all[1] != nil || all[2].Twice != 2 {
		t.Errorf("on each: %+v, %v", all, err)
	}
}

// Of several stores those whose brokers are alive are asked first.
func TestNearestAreThoseThatLive(t *testing.T) {
	p := alone(t)
	if got := p.Nearest([]state.StoreID{{7}, {8}, other}); got[0] != other || got[1] != (state.StoreID{7}) {
		t.Errorf("in the order %v", got)
	}
	if a, b := p.Name(other), p.Name(state.StoreID{7}); a != "n2" || b != (state.StoreID{7}).String() {
		t.Errorf("called %q and %q", a, b)
	}
}
