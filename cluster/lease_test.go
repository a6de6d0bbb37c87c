package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
)

func TestLeaseOfTheOwner(t *testing.T) {
	wall := time.UnixMilli(1_000_000_000)
	good := grant{Term: 5, Lease: 3 * time.Second, Time: wall.UnixMilli()}
	sent := 100 * time.Second
	tests := map[string]struct {
		answers []grant
		term    uint64 // of the owner's own node
		until   time.Duration
		why     string
	}{
		"none":               {nil, 5, 0, ""},
		"counts from sent":   {[]grant{good}, 5, sent + 2700*time.Millisecond, ""},
		"newer leader":       {[]grant{good}, 4, sent + 2700*time.Millisecond, ""},
		"older than known":   {[]grant{good}, 6, 0, "term 5, which is over"},
		"older than granted": {[]grant{{Term: 7, Lease: time.Second, Time: good.Time}, good}, 5, sent + 700*time.Millisecond, "term 5"},
		"refused":            {[]grant{{Term: 5, Time: good.Time, Refused: "no"}}, 5, 0, "no"},
		"refused later":      {[]grant{good, {Term: 5, Time: good.Time, Refused: "no"}}, 5, sent + 2700*time.Millisecond, "no"},
		"shorter later":      {[]grant{good, {Term: 5, Lease: time.Second, Time: good.Time}}, 5, sent + 2700*time.Millisecond, ""},
		"clock off":          {[]grant{good, {Term: 5, Lease: time.Second, Time: good.Time + 61_000}}, 5, 0, "1m1s off"},
		"clock nearly off":   {[]grant{{Term: 5, Lease: 3 * time.Second, Time: good.Time - 60_000}}, 5, sent + 2700*time.Millisecond, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var l lease
			for _, g := range test.answers {
				l.granted(g, sent, wall, test.term)
			}
			if test.until > 0 && (!l.valid(test.until-1) || l.valid(test.until)) {
				t.Errorf("valid until %v, want %v", time.Duration(l.deadline.Load()), test.until)
			}
			if test.until == 0 && l.valid(0) {
				t.Error("valid without a lease")
			}
			if !strings.Contains(l.why(), test.why) || (test.why == "") != (l.why() == "") {
				t.Errorf("says %q, want %q", l.why(), test.why)
			}
			l.give("stopping")
			if l.valid(0) {
				t.Error("valid after it was given up")
			}
		})
	}
}

// A renewal may be under way when the broker learns that it is out.
func TestLeaseThatIsOver(t *testing.T) {
	var l lease
	wall := time.UnixMilli(1_000_000_000)
	sent := 100 * time.Second
	good := grant{Term: 5, Lease: 3 * time.Second, Time: wall.UnixMilli()}
	l.granted(good, sent, wall, 5)
	if !l.valid(sent) {
		t.Fatal("no lease to begin with")
	}
	l.end("removed")
	l.end("stopping")
	l.failed("no answer")
	l.give("registered again")
	l.granted(good, sent+time.Second, wall, 5)
	if l.valid(sent+time.Second) || l.why() != "removed" {
		t.Errorf("valid %v, because %q", l.valid(sent+time.Second), l.why())
	}
}

func TestLeasesOfTheLeader(t *testing.T) {
	wall := time.UnixMilli(1_000_000_000)
	run := &state.Store{ID: store(1), Incarnation: 4}
	lost := &state.Store{ID: store(1), Incarnation: 4, Status: state.StoreLost}
	ask := func(change func(*renewal)) renewal {
		r := renewal{Owner: state.Owner{Store: store(1), Incarnation: 4}, Time: wall.UnixMilli()}
		change(&r)
		return r
	}
	tests := map[string]struct {
		r   renewal
		run *state.Store
		why string
	}{
		"granted":         {ask(func(*renewal) {}), run, ""},
		"unknown":         {ask(func(*renewal) {}), nil, "not registered"},
		"an earlier run":  {ask(func(r *renewal) { r.Owner.Incarnation = 3 }), run, "run 3"},
		"lost":            {ask(func(*renewal) {}), lost, "is lost"},
		"hung disk":       {ask(func(r *renewal) { r.Unfinished = 5001 * time.Millisecond }), run, "unfinished for 5.001s"},
		"nearly hung":     {ask(func(r *renewal) { r.Unfinished = 5 * time.Second }), run, ""},
		"clock off":       {ask(func(r *renewal) { r.Time += 61_000 }), run, "1m1s off"},
		"clock below":     {ask(func(r *renewal) { r.Time -= 61_000 }), run, "1m1s off"},
		"clock within it": {ask(func(r *renewal) { r.Time += 60_000 }), run, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLeases(3 * time.Second)
			l.lead(2, time.Second)
			g := l.renew(test.r, test.run, 10*time.Second, wall)
			if g.Term != 2 || (g.Lease > 0) != (test.why == "") || !strings.Contains(g.Refused, test.why) {
				t.Errorf("%+v, want %q", g, test.why)
			}
			until := 4 * time.Second // a refusal prolongs nothing
			if test.why == "" {
				until = 13 * time.Second
			}
			if l.expired(store(1), until) || !l.expired(store(1), until+1) {
				t.Errorf("not out right after %v", until)
			}
		})
	}
}

// TestNewLeaderCountsAFullLease: it cannot know what the one before it granted.
func TestNewLeaderCountsAFullLease(t *testing.T) {
	l := newLeases(3 * time.Second)
	l.lead(2, 0)
	owner := state.Owner{Store: store(1), Incarnation: 4}
	run := &state.Store{ID: store(1), Incarnation: 4}
	l.renew(renewal{Owner: owner}, run, time.Second, time.UnixMilli(0))
	l.lead(3, 10*time.Second)
	if _, known := l.of(store(1)); known || l.expired(store(1), 13*time.Second) || !l.expired(store(1), 13*time.Second+1) {
		t.Error("a lease of the leader before counts, or none does")
	}
	l.lead(3, 20*time.Second)
	if !l.expired(store(1), 13*time.Second+1) {
		t.Error("the same term began again")
	}
}

// TestCondemnedGetsNoLease: between the decision that a broker is lost and its commit no renewal is granted.
func TestCondemnedGetsNoLease(t *testing.T) {
	l := newLeases(3 * time.Second)
	l.lead(2, 0)
	owner := state.Owner{Store: store(1), Incarnation: 4}
	run := &state.Store{ID: store(1), Incarnation: 4}
	renew := func(at time.Duration) bool {
		return l.renew(renewal{Owner: owner}, run, at, time.UnixMilli(0)).Lease > 0
	}
	if !renew(2 * time.Second) {
		t.Fatal("no lease")
	}
	if l.condemn(owner, 2, 5*time.Second) {
		t.Error("condemned within its lease")
	}
	if l.condemn(owner, 1, 6*time.Second) {
		t.Error("condemned by a leader of an earlier term")
	}
	if !l.condemn(owner, 2, 6*time.Second) || renew(6*time.Second) {
		t.Error("condemned, and granted a lease all the same")
	}
	l.pardon(owner)
	if !renew(7 * time.Second) {
		t.Error("no lease after the pardon")
	}
	// A new run of the store is another matter.
	if !l.condemn(owner, 2, 11*time.Second) {
		t.Error("not condemned after its lease")
	}
	next := &state.Store{ID: store(1), Incarnation: 5}
	if g := l.renew(renewal{Owner: state.Owner{Store: store(1), Incarnation: 5}}, next, 11*time.Second, time.UnixMilli(0)); g.Lease == 0 {
		t.Errorf("the next run is refused: %s", g.Refused)
	}
	if l.condemn(owner, 2, 20*time.Second) {
		t.Error("a run was condemned after the next had a lease")
	}
}

func TestBoottimeGoesOn(t *testing.T) {
	a := boottime()
	if b := boottime(); a <= 0 || b < a {
		t.Errorf("%v, then %v", a, b)
	}
}
