package cluster

import (
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// TestVoters is what becomes of Raft's configuration, step by step: each want is planned and carried out.
func TestVoters(t *testing.T) {
	lose := func(n int) func(w *scene) {
		return func(w *scene) {
			w.silence(n)
			w.apply(&state.LoseStore{Owner: w.run(n)})
			w.look()
			w.pass(replaceTime)
		}
	}
	remove := func(n int) func(w *scene) {
		return func(w *scene) { w.apply(&state.RemoveStore{Store: storeN(n)}); w.pass(0) }
	}
	votes := func(voters ...int) func(w *scene) {
		return func(w *scene) {
			for i := range w.facts.servers {
				w.facts.servers[i].Voter = false
				for _, v := range voters {
					if w.facts.servers[i].Store == storeN(v) {
						w.facts.servers[i].Voter = true
					}
				}
			}
		}
	}
	status := func(n int, s state.StoreStatus) func(w *scene) {
		return func(w *scene) { w.apply(&state.SetStore{Owner: w.run(n), Status: s}); w.pass(0) }
	}
	tests := map[string]struct {
		brokers int
		do      []func(w *scene)
		want    []string
	}{
		"three of five vote":        {5, nil, []string{""}},
		"five wanted":               {6, []func(w *scene){func(w *scene) { w.facts.voters = 5 }}, []string{"promote n4", "promote n5", ""}},
		"five wanted, four there":   {4, []func(w *scene){func(w *scene) { w.facts.voters = 5 }}, []string{""}},
		"a lone voter and a second": {2, []func(w *scene){votes(1)}, []string{""}},
		"a lone voter and two more": {3, []func(w *scene){votes(1)}, []string{"promote n2", "promote n3", ""}},
		"two voters and a third":    {3, []func(w *scene){votes(1, 2)}, []string{"promote n3", ""}},
		"a voter lost, nobody else": {3, []func(w *scene){lose(3)}, []string{""}},
		"a voter lost, a spare":     {4, []func(w *scene){lose(3)}, []string{"promote n4", "demote n3", ""}},
		"a voter lost just now":     {4, []func(w *scene){lose(3), func(w *scene) { w.facts.memory = newMemory() }}, []string{""}},
		"a voter silent, not lost": {4, []func(w *scene){func(w *scene) {
			w.silence(3)
			w.pass(time.Hour / 2)
			w.peer(3, func(p *peerFacts) { p.failing = w.now })
		}}, []string{""}},
		"the spare is behind":         {4, []func(w *scene){lose(3), func(w *scene) { w.index += 1000; w.pass(0); w.index += 1000; w.apply(&state.Tick{}) }}, []string{""}},
		"the spare has no lease":      {4, []func(w *scene){lose(3), func(w *scene) { w.peer(4, func(p *peerFacts) { p.lease = w.now }) }}, []string{""}},
		"the spare drains":            {4, []func(w *scene){lose(3), func(w *scene) { w.facts.drainParallel = 0 }, status(4, state.StoreDraining), status(4, state.StoreDrained)}, []string{""}},
		"two voters lost":             {5, []func(w *scene){lose(3), lose(2)}, []string{""}},
		"a voter removed":             {3, []func(w *scene){remove(3)}, []string{"remove_server n3", ""}},
		"a voter removed, a spare":    {4, []func(w *scene){remove(3)}, []string{"promote n4", "remove_server n3", ""}},
		"a non-voter removed":         {4, []func(w *scene){remove(4)}, []string{"remove_server n4", ""}},
		"removed while one is silent": {3, []func(w *scene){remove(3), func(w *scene) { w.silence(2) }}, []string{""}},
		"two voters, one removed":     {2, []func(w *scene){remove(2)}, []string{"remove_server n2", ""}},
		"the leader drains":           {3, []func(w *scene){func(w *scene) { w.topic(1, 1); w.facts.drainParallel = 0 }, status(1, state.StoreDraining)}, []string{"transfer_leadership n2"}},
		"the leader is removed":       {3, []func(w *scene){remove(1)}, []string{"transfer_leadership n2"}},
		"all drain":                   {2, []func(w *scene){func(w *scene) { w.topic(1, 1, 2); w.facts.drainParallel = 0 }, status(1, state.StoreDraining), status(2, state.StoreDraining)}, []string{""}},
		"the leader cannot renew":     {3, []func(w *scene){func(w *scene) { w.peer(1, func(p *peerFacts) { p.lease = w.now }) }}, []string{"transfer_leadership n2"}},
		"nobody could lead":           {3, []func(w *scene){remove(1), func(w *scene) { w.silence(2); w.silence(3) }}, []string{""}},
		"a new address":               {3, []func(w *scene){func(w *scene) { w.facts.servers[1].Address = "127.0.0.1:1" }}, []string{"add_server n2", ""}},
		"a store Raft does not know":  {4, []func(w *scene){func(w *scene) { w.facts.servers = w.facts.servers[:3] }}, []string{"add_server n4", ""}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newScene(t, test.brokers)
			for _, f := range test.do {
				f(w)
			}
			for _, want := range test.want {
				w.carry(w.want(want))
			}
		})
	}
}

// TestVotersStayAMajority: whatever is lost, removed or restarted, no step leaves voters of which no majority is up.
func TestVotersStayAMajority(t *testing.T) {
	for up := range 1 << 5 {
		for voters := 1; voters < 1<<6; voters++ {
			if voters&1 == 0 {
				continue // the leader, n1, votes
			}
			w := newScene(t, 6)
			for i := range w.facts.servers {
				w.facts.servers[i].Voter = voters&(1<<i) != 0
			}
			for n := 2; n <= 6; n++ {
				if up&(1<<(n-2)) == 0 {
					w.silence(n)
					w.apply(&state.LoseStore{Owner: w.run(n)})
				}
			}
			w.look()
			w.pass(replaceTime)
			for range 10 {
				before := majority(w)
				actions, _ := w.plan()
				w.carry(actions)
				if before && !majority(w) {
					t.Fatalf("up %b voters %b: %s lost the majority", up, voters, kinds(actions))
				}
				if !before && len(actions) > 0 && actions[len(actions)-1].kind == doPromote && !majority(w) {
					t.Fatalf("up %b voters %b: a promotion that cannot commit", up, voters)
				}
			}
		}
	}
}

func majority(w *scene) bool {
	all, up := 0, 0
	for _, s := range w.facts.servers {
		if s.Voter {
			all++
			if w.facts.peers[s.Store].failures == 0 {
				up++
			}
		}
	}
	return up > all/2
}

// TestPlace spreads new partitions over active brokers that gossip calls alive, by load.
func TestPlace(t *testing.T) {
	w := newScene(t, 4)
	w.topic(1, 1, 1, 1)
	w.apply(&state.SetStore{Owner: w.run(4), Status: state.StoreDraining})
	members := []Member{{Store: storeN(1)}, {Store: storeN(2)}, {Store: storeN(3), State: Suspect}, {Store: storeN(4)}}
	place := func(members []Member, n int) map[state.StoreID]int {
		got := map[state.StoreID]int{}
		for _, o := range Place(w.state.Freeze(), members, n) {
			if o.Incarnation == 0 {
				t.Errorf("an owner without an incarnation: %v", o)
			}
			got[o.Store]++
		}
		return got
	}
	if got := place(members, 5); got[storeN(1)] != 1 || got[storeN(2)] != 4 || len(got) != 2 {
		t.Errorf("placed %v, want one on n1 and four on n2", got)
	}
	if got := place(nil, 9); got[storeN(3)] != 4 || got[storeN(4)] != 0 {
		t.Errorf("without gossip %v", got)
	}
	if got := place([]Member{{Store: storeN(1), State: Dead}}, 1); len(got) != 0 {
		t.Errorf("placed %v on the dead", got)
	}
	members[1].Load.BytesIn = 5
	w.topic(2, 2, 2, 2)
	if got := place(members, 1); got[storeN(1)] != 1 {
		t.Errorf("placed %v on the busier of two", got)
	}
}
