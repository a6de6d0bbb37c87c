package delivery

import (
	"errors"
	"testing"

	"github.com/danubemq/danube/broker/dispatch"
)

// A cursor whose proposal failed is proposed again, whole (R5, R18).
func TestFailedCursorIsProposedAgain(t *testing.T) {
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
