package history

import (
	"context"
	"errors"
	"testing"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// What could not be committed is tried again, what is committed is not, and an
// owner whose epoch is over decides nothing (R4).
func TestDamageIsCommittedOnce(t *testing.T) {
	r := newRig(t)
	p := r.serve(64)
	if !p.damaged.found(storage.Damage{From: 3, To: 5, File: "f", Err: errors.New("bad")}) { // without waking the keeper
		t.Fatal("known already")
	}
	status := func() state.RangeStatus { return r.metadata().Range(3).Status }
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if left := r.damage.reconcile(gone); !left || status() != state.RangeOpen {
		t.Errorf("without a commit: left %t, %v", left, status())
	}
	p.epoch--
	if left := r.damage.reconcile(t.Context()); left || status() != state.RangeOpen {
		t.Errorf("under an old epoch: left %t, %v", left, status())
	}
	p.epoch++
	if left := r.damage.reconcile(t.Context()); left || status() != state.RangeOrphaned {
		t.Errorf("then: left %t, %v", left, status())
	}
	view := r.cfg.Meta.View()
	if left := r.damage.reconcile(t.Context()); left || r.cfg.Meta.View().Index() != view.Index() || r.cfg.Meta.View().Hash() != view.Hash() {
		t.Errorf("once more: left %t, index %d after %d", left, r.cfg.Meta.View().Index(), view.Index())
	}
}

// What is committed already is not committed again, and what nobody may decide yet waits.
func TestUnmarkedDamage(t *testing.T) {
	m := &state.Partition{Epoch: 4, Ranges: []state.Range{
		{Start: 10, End: 20, Status: state.RangeSealed}, {Start: 20, End: 30, Status: state.RangeOrphaned},
		{Start: 40, End: 50, Status: state.RangeLost}, {Start: 50, End: 60, Status: state.RangeSealed}, {Start: 60, Status: state.RangeOpen},
	}}
	for name, test := range map[string]struct {
		from, to uint64
		want     [][2]uint64
	}{
		"inside of one range":                 {12, 14, [][2]uint64{{12, 14}}},
		"known already":                       {20, 30, nil},
		"lost already":                        {40, 50, nil},
		"in a plain gap and below the start":  {0, 10, nil},
		"partly known":                        {15, 25, [][2]uint64{{15, 20}}},
		"over all of it, the open one too":    {0, 70, [][2]uint64{{10, 20}, {50, 60}, {60, 70}}},
		"nothing, as of a file without bytes": {12, 12, nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := unmarked(m, storage.Damage{From: test.from, To: test.to})
			if len(got) != len(test.want) {
				t.Fatalf("%+v", got)
			}
			for i, w := range test.want {
				if g := got[i]; g.From != w[0] || g.To != w[1] || g.Epoch != 4 || g.Status != state.RangeOrphaned {
					t.Errorf("%+v, want %v", g, w)
				}
			}
		})
	}
}
