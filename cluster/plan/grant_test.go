package plan

import (
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// TestGrants is who gets the partitions of an owner that cannot serve them, and when nobody does.
func TestGrants(t *testing.T) {
	lose := func(n int) func(w *scene) {
		return func(w *scene) { w.apply(&state.LoseStore{Owner: w.run(n)}) }
	}
	stop := func(w *scene) {
		for n := range 4 {
			p := w.partition(n + 1)
			w.apply(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: p.Topic, Epoch: p.Epoch, Seal: true, End: p.Floor}}})
		}
		w.apply(&state.SetStore{Owner: w.run(3), Clean: true})
		w.look()
	}
	tests := map[string]struct {
		do   []func(w *scene) // n3 owns t1 to t4, n2 owns t5
		want string
		note string
	}{
		"owner lost":                {[]func(w *scene){lose(3)}, "grant map[n1:3 n2:1], tick", ""},
		"owner restarted by itself": {[]func(w *scene){func(w *scene) { w.register(3) }}, "", ""},
		"owner came back":           {[]func(w *scene){lose(3), func(w *scene) { w.register(3) }}, "", ""},
		"owner does not take up": {[]func(w *scene){
			func(w *scene) { w.register(3); w.look(); w.pass(time.Minute) },
		}, "", "n3 does not serve 4 partitions"},
		"stopped just now": {[]func(w *scene){stop, func(w *scene) { w.pass(2900 * time.Millisecond) }}, "", "n3 is stopped"},
		"stopped":          {[]func(w *scene){stop, func(w *scene) { w.pass(3 * time.Second) }}, "grant map[n1:3 n2:1], tick", "n3 is stopped"},
		"stopped, new leader": {[]func(w *scene){
			stop, func(w *scene) { w.pass(time.Minute); w.facts.Since = w.now.Add(-time.Second) },
		}, "", ""},
		"stopped and back": {[]func(w *scene){stop, func(w *scene) { w.pass(time.Minute); w.register(3) }}, "", ""},
		"closed by one that serves": {[]func(w *scene){func(w *scene) {
			p := w.partition(1)
			w.apply(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: p.Topic, Epoch: p.Epoch, Seal: true}}})
		}}, "", ""},
		"never opened": {[]func(w *scene){func(w *scene) {
			w.apply(&state.CreateTopic{ID: topicN(9), Name: "/default/t9", Settings: state.TopicSettings{
				Partitions: 2, Reliable: true, Durability: state.LevelLocal,
			}})
		}}, "grant map[n1:2], tick", ""},
		"target without a lease": {[]func(w *scene){lose(3), func(w *scene) {
			w.peer(2, func(p *Peer) { p.Lease = w.now })
		}}, "grant map[n1:4], tick", ""},
		"lease of an older run": {[]func(w *scene){lose(3), func(w *scene) {
			w.peer(2, func(p *Peer) { p.Run = 0 })
		}}, "grant map[n1:4], tick", ""},
		"target does not answer": {[]func(w *scene){lose(3), func(w *scene) {
			w.peer(2, func(p *Peer) { p.Failures = 1 })
		}}, "grant map[n1:4], tick", ""},
		"target drains": {[]func(w *scene){lose(3), func(w *scene) {
			w.apply(&state.SetStore{Owner: w.run(2), Status: state.StoreDraining})
			w.facts.DrainParallel = 0
		}}, "grant map[n1:4], tick", ""},
		"target behind, a moment": {[]func(w *scene){lose(3), func(w *scene) {
			w.facts.Index, w.facts.IndexAt = w.index, w.now
			w.peer(1, func(p *Peer) { p.Applied = w.index })
		}}, "", "n2 is given nothing"},
		"target behind": {[]func(w *scene){lose(3), func(w *scene) {
			w.facts.Index, w.facts.IndexAt = w.index, w.now.Add(-spreadTime)
			w.peer(1, func(p *Peer) { p.Applied = w.index })
		}}, "grant map[n1:4], tick", "n2 is given nothing"},
		"nobody": {[]func(w *scene){lose(3), lose(2), func(w *scene) {
			w.peer(1, func(p *Peer) { p.Lease = w.now })
		}}, "", "no active broker can take what has no owner: 5 partitions"},
		"more bytes go elsewhere": {[]func(w *scene){lose(3), func(w *scene) {
			w.peer(1, func(p *Peer) { p.Bytes = 1e6 })
			w.topic(9, 1)
		}}, "grant map[n1:2 n2:2], tick", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newScene(t, 3)
			for n := range 4 {
				w.topic(n+1, 3)
			}
			w.topic(5, 2)
			w.pass(time.Second)
			for _, f := range test.do {
				f(w)
			}
			w.want(test.want)
			w.wantNote(test.note)
		})
	}
}

// TestGrantOfAGrant: the target of a grant is lost, restarts, stops or does not open in time.
func TestGrantOfAGrant(t *testing.T) {
	tests := map[string]struct {
		do   func(w *scene) // t1 was n3's, is OPENING at n1
		want string
	}{
		"opening":          {func(w *scene) {}, ""},
		"target restarted": {func(w *scene) { w.register(1) }, "grant map[n2:1], tick"},
		"target lost":      {func(w *scene) { w.apply(&state.LoseStore{Owner: w.run(1)}) }, "grant map[n2:1], tick"},
		"target stopped":   {func(w *scene) { w.apply(&state.SetStore{Owner: w.run(1), Clean: true}) }, "grant map[n2:1], tick"},
		"29 s":             {func(w *scene) { w.pass(29 * time.Second) }, ""},
		"31 s":             {func(w *scene) { w.pass(31 * time.Second) }, "grant map[n2:1], tick"},
		"31 s, new leader": {func(w *scene) { w.facts.Memory = NewMemory(); w.look() }, ""},
		"owner back, target restarted": {func(w *scene) {
			w.register(3)
			w.pass(0)
			w.register(1) // n3 still has the open range: it can open it without a loss
		}, "grant map[n3:1], tick"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newScene(t, 3)
			w.topic(1, 3)
			w.topic(2, 3)
			w.topic(3, 3)
			w.topic(4, 2)
			w.apply(&state.LoseStore{Owner: w.run(3)})
			w.pass(time.Second)
			p := w.partition(1)
			w.apply(&state.GrantPartitions{Entries: []state.PartitionGrant{grantOf(p, w.run(1))}})
			for n := 2; n <= 3; n++ { // out of the way
				w.apply(&state.DeleteTopic{ID: topicN(n), At: 1})
			}
			w.look()
			test.do(w)
			w.want(test.want)
		})
	}
}

// TestAborts is when a move is taken back, and when it is not.
func TestAborts(t *testing.T) {
	tests := map[string]struct {
		do   func(w *scene) // t1 moves from n2 to n3
		want string
	}{
		"moving":           {func(w *scene) {}, ""},
		"29 s":             {func(w *scene) { w.pass(29 * time.Second) }, ""},
		"31 s":             {func(w *scene) { w.pass(31 * time.Second) }, "abort, tick"},
		"31 s, new leader": {func(w *scene) { w.pass(31 * time.Second); w.facts.Memory = NewMemory() }, ""},
		"target lost":      {func(w *scene) { w.apply(&state.LoseStore{Owner: w.run(3)}) }, "abort, tick"},
		"target restarted": {func(w *scene) { w.register(3) }, "abort, tick"},
		"target stopped":   {func(w *scene) { w.apply(&state.SetStore{Owner: w.run(3), Clean: true}) }, "abort, tick"},
		"target drains": {func(w *scene) {
			w.topic(2, 3) // it is not empty
			w.apply(&state.SetStore{Owner: w.run(3), Status: state.StoreDraining})
			w.facts.DrainParallel = 0
		}, ""},
		"owner restarted": {func(w *scene) { w.register(2) }, "abort, tick"},
		"owner lost":      {func(w *scene) { w.apply(&state.LoseStore{Owner: w.run(2)}) }, "grant map[n1:1], tick"},
		"begun again after 20 s": {func(w *scene) {
			w.pass(20 * time.Second)
			p := w.partition(1)
			w.apply(&state.AbortMoves{Entries: []state.MoveAbort{{Topic: p.Topic, Epoch: p.Epoch}}})
			w.apply(&state.MovePartitions{Entries: []state.PartitionMove{{Topic: p.Topic, Epoch: p.Epoch, To: w.run(3)}}})
			w.look()
			w.pass(20 * time.Second)
		}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newScene(t, 3)
			w.topic(1, 2)
			p := w.partition(1)
			w.apply(&state.MovePartitions{Entries: []state.PartitionMove{{Topic: p.Topic, Epoch: p.Epoch, To: w.run(3)}}})
			w.pass(0)
			w.look()
			test.do(w)
			actions := w.want(test.want)
			w.carry(actions)
			if len(actions) > 0 && actions[0].Kind == abort && w.partition(1).State != state.Open {
				t.Errorf("the partition is %s after the abort", w.partition(1).State)
			}
		})
	}
}

// TestDrain empties a broker a few partitions at a time, and calls it drained when nothing is only there.
func TestDrain(t *testing.T) {
	w := newScene(t, 3)
	for n := range 6 {
		w.topic(n+1, 3)
	}
	w.apply(&state.SetStore{Owner: w.run(3), Status: state.StoreDraining})
	w.pass(time.Second)
	w.carry(w.want("move n3, tick"))
	if got := w.look().leaving[storeN(3)]; got != 4 {
		t.Fatalf("%d partitions move at once, want 4", got)
	}
	w.want("") // as many as may move do
	w.handOver(1)
	w.carry(w.want("move n3, tick"))
	for n := 2; n <= 5; n++ {
		w.handOver(n)
	}
	w.carry(w.want("move n3, tick"))
	w.handOver(6)
	c := w.look()
	if c.load[storeN(1)] != 3 || c.load[storeN(2)] != 3 {
		t.Errorf("n1 got %d and n2 %d of 6 partitions", c.load[storeN(1)], c.load[storeN(2)])
	}
	w.want("")
	w.wantNote("n3 owns nothing more; still to be copied from it: 6 ranges")
	for n := range 6 {
		p := w.partition(n + 1)
		w.apply(&state.CopyRanges{Entries: []state.RangeCopy{{
			Topic: p.Topic, Epoch: p.Epoch, From: 0, To: p.Ranges[0].End, Add: p.Owner.Store, Drop: []state.StoreID{storeN(3)},
		}}})
	}
	w.apply(&state.SetStore{Owner: w.run(3), Clean: true}) // it was stopped meanwhile
	w.carry(w.want("drained n3, tick"))
	w.want("")
	if s := w.state.Store(storeN(3)); s.Status != state.StoreDrained {
		t.Errorf("n3 is %s", s.Status)
	}
}

// handOver carries a move of topic n out, with ten messages in the log.
func (w *scene) handOver(n int) {
	w.t.Helper()
	p := w.partition(n)
	w.apply(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: p.Topic, Epoch: p.Epoch, Floor: p.Floor + 10}}})
	w.apply(&state.HandOver{Owner: p.Owner, Entries: []state.PartitionHandOver{{
		Topic: p.Topic, Epoch: p.Epoch, Move: p.Move, End: p.Floor + 10, To: p.Target,
	}}})
}

// TestDrainLeavesAloneWhatWasTakenBack: a partition whose move came to nothing is not moved again at once.
func TestDrainLeavesAloneWhatWasTakenBack(t *testing.T) {
	w := newScene(t, 3)
	w.topic(1, 3)
	w.apply(&state.SetStore{Owner: w.run(3), Status: state.StoreDraining})
	w.pass(time.Second)
	w.carry(w.want("move n3, tick"))
	w.look()
	w.pass(31 * time.Second)
	w.carry(w.want("abort, tick"))
	w.want("")
	w.pass(retryTime + time.Second)
	w.want("move n3, tick")
}

// TestDrainDoesNotRace: an owner that takes a move back at once is not asked again at once.
func TestDrainDoesNotRace(t *testing.T) {
	w := newScene(t, 3)
	w.topic(1, 3)
	w.apply(&state.SetStore{Owner: w.run(3), Status: state.StoreDraining})
	w.pass(time.Second)
	w.carry(w.want("move n3, tick"))
	p := w.partition(1)
	w.apply(&state.AbortMoves{Entries: []state.MoveAbort{{Topic: p.Topic, Partition: p.Number, Epoch: p.Epoch}}})
	w.want("")
	w.pass(retryTime + time.Second)
	w.want("move n3, tick")
}

// TestDrainSpreadsBeforeOthersSay: right after the command that drains a broker only the leader is known to have applied
// it. The others get their part all the same, but for one that stays behind.
func TestDrainSpreadsBeforeOthersSay(t *testing.T) {
	for name, test := range map[string]struct {
		since time.Duration
		want  [2]int
	}{
		"at once":      {0, [2]int{2, 2}},
		"stays behind": {saidTime, [2]int{4, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newScene(t, 3)
			for n := range 4 {
				w.topic(n+1, 3)
			}
			w.apply(&state.SetStore{Owner: w.run(3), Status: state.StoreDraining})
			w.facts.Index, w.facts.IndexAt = w.index, w.now.Add(-test.since)
			w.peer(1, func(p *Peer) { p.Applied = w.index })
			w.peer(2, func(p *Peer) { p.Applied = w.index - 1 })
			w.carry(w.want("move n3, tick"))
			c := w.look()
			if got := [2]int{c.load[storeN(1)], c.load[storeN(2)]}; got != test.want {
				t.Errorf("n1 and n2 get %v, want %v", got, test.want)
			}
		})
	}
}

// TestDrainWithoutTargets: everyone drains.
func TestDrainWithoutTargets(t *testing.T) {
	w := newScene(t, 3)
	for n := 1; n <= 3; n++ {
		w.topic(n, n)
		w.apply(&state.SetStore{Owner: w.run(n), Status: state.StoreDraining})
	}
	w.pass(time.Second)
	w.want("")
	w.wantNote("n3 drains but no active broker can take its partitions")
	w.wantNote("this leader drains, and there is no other voter that could lead")
}

// TestGrantOfTenThousand: the planner's time for a lost store of 10,000 partitions, and an even spread.
func TestGrantOfTenThousand(t *testing.T) {
	w := newScene(t, 6)
	for n := range 100 {
		owners := make([]int, 100)
		for i := range owners {
			owners[i] = 6
		}
		w.topic(n+1, owners...)
	}
	w.apply(&state.LoseStore{Owner: w.run(6)})
	w.pass(time.Second)
	start := time.Now()
	actions, _ := w.plan()
	took := time.Since(start)
	if took > time.Second {
		t.Errorf("planned in %v, want less than a second", took)
	}
	if len(actions) != 11 {
		t.Errorf("%d actions, want ten batches and a tick", len(actions))
	}
	w.carry(actions)
	c := w.look()
	for n := 1; n <= 5; n++ {
		if got := c.load[storeN(n)]; got != 2000 {
			t.Errorf("n%d got %d partitions", n, got)
		}
	}
	w.want("")
}
