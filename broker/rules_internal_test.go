package broker

import (
	"errors"
	"testing"

	"github.com/danubemq/danube/broker/dispatch"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// An epoch opens at the end only where nothing above it can have been acknowledged (R3, R6, R10).
func TestEpochOpensWhereTheEndIsProven(t *testing.T) {
	damagedTail := []storage.Damage{{From: 7, To: 9}}
	damagedInside := []storage.Damage{{From: 2, To: 4}}
	for name, test := range map[string]struct {
		meta state.Partition
		what storage.Recovery
		tail state.Tail
		end  uint64
	}{
		"proven":              {state.Partition{State: state.Open, Floor: 9}, storage.Recovery{End: 9, Proven: true}, state.TailProven, 9},
		"not proven":          {state.Partition{State: state.Open, Floor: 9}, storage.Recovery{End: 9}, state.TailLost, 9},
		"below the floor":     {state.Partition{State: state.Open, Floor: 9}, storage.Recovery{End: 8, Proven: true}, state.TailOrphaned, 8},
		"damaged at the end":  {state.Partition{State: state.Open, Floor: 7}, storage.Recovery{End: 9, Proven: true, Damaged: damagedTail}, state.TailOrphaned, 9},
		"damaged before that": {state.Partition{State: state.Open, Floor: 7}, storage.Recovery{End: 9, Proven: true, Damaged: damagedInside}, state.TailProven, 9},
		"sealed":              {state.Partition{Floor: 5, State: state.Closed}, storage.Recovery{End: 9}, state.TailProven, 5},
	} {
		r := recovered{meta: &test.meta, what: test.what}
		if got := r.open(); got.Tail != test.tail || got.End != test.end {
			t.Errorf("%s: opens with tail %d at %d, want %d at %d", name, got.Tail, got.End, test.tail, test.end)
		}
	}
}

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
	b := &Broker{}
	b.cursors = newCursorKeeper(b)
	s := &subscription{b: b, d: d}
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
