package delivery

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/meta/state"
)

// acknowledged is a subscription of which [0, 3) and [5, 6) are acknowledged and not committed.
func acknowledged(t *testing.T) *dispatch.Subscription {
	t.Helper()
	d, err := dispatch.New(dispatch.Config{}, dispatch.Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Join(dispatch.Consumer{ID: 1, Name: "c"}, 0); err != nil {
		t.Fatal(err)
	}
	if err := d.Grant(1, 10); err != nil {
		t.Fatal(err)
	}
	if got := d.Offer(d.Next(0), dispatch.Batch{Count: 10}, 0, nil); len(got) != 1 {
		t.Fatalf("delivered %+v", got)
	}
	if _, err := d.Ack(dispatch.Settle{Consumer: 1, Ranges: []dispatch.Range{{Start: 0, End: 3}, {Start: 5, End: 6}}}); err != nil {
		t.Fatal(err)
	}
	return d
}

// A cursor whose proposal failed is proposed again, whole (R5, R18).
func TestFailedCursorIsProposedAgain(t *testing.T) {
	d := acknowledged(t)
	s := &Subscription{c: Open(Config{}), d: d}
	for range 3 {
		r := s.takeRound()
		if r.delta == nil || r.delta.Prefix != 3 || len(r.delta.Acked) != 1 || r.delta.Acked[0] != (dispatch.Range{Start: 5, End: 6}) {
			t.Fatalf("proposed %+v", r.delta)
		}
		s.roundDone(r, errors.New("nobody knows"))
		if !s.dirty {
			t.Fatal("a cursor that may not be stored waits for no commit")
		}
	}
	r := s.takeRound()
	s.roundDone(r, nil)
	if r = s.takeRound(); r.delta != nil {
		t.Errorf("committed, and proposed again: %+v", r.delta)
	}
}

// owner is an owner whose epoch is not over.
type owner struct{}

func (owner) CursorEpoch() uint64   { return 1 }
func (owner) HandsOver(uint64) bool { return false }

// Whoever hands a partition over does not take a cursor for settled that is on
// its way to the metadata and not there yet (R16).
func TestSettleWaitsForTheCommitThatIsOut(t *testing.T) {
	out, release := make(chan struct{}), make(chan struct{})
	var away atomic.Bool
	halt := sync.OnceFunc(func() {
		away.Store(true)
		close(out)
		<-release
		away.Store(false)
	})
	c := Open(Config{Log: slog.New(slog.DiscardHandler), Leased: func() bool { halt(); return false }})
	s := &Subscription{c: c, d: acknowledged(t), part: &Partition{Owner: owner{}}}
	s.changedQuietly()
	var committing, settling sync.WaitGroup
	committing.Go(func() { c.Commit(t.Context()) })
	<-out
	rounds := 0
	settling.Go(func() {
		c.Settle(t.Context(), func() bool {
			if away.Load() {
				t.Error("asked what is left while a commit is out")
			}
			rounds++
			return s.Unsettled() && rounds < 3
		})
	})
	<-time.After(10 * time.Millisecond)
	close(release)
	committing.Wait()
	settling.Wait()
	if rounds != 3 {
		t.Errorf("tried %d times to commit what is refused", rounds)
	}
}

// What a subscription that names no options is told to have is what dispatch goes by.
func TestDefaultsAreTheProtocols(t *testing.T) {
	got := dispatchConfig(&state.Subscription{})
	want := dispatch.Config{MaxUnacked: 1000, AckTimeout: 30 * time.Second, BackoffBase: time.Second, BackoffMax: time.Minute, MaxRedeliveries: 5}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
