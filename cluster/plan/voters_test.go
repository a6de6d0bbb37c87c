package plan

import (
	"slices"
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
			for i := range w.facts.Servers {
				w.facts.Servers[i].Voter = false
				for _, v := range voters {
					if w.facts.Servers[i].Store == storeN(v) {
						w.facts.Servers[i].Voter = true
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
		"five wanted":               {6, []func(w *scene){func(w *scene) { w.facts.Voters = 5 }}, []string{"promote n4", "promote n5", ""}},
		"five wanted, four there":   {4, []func(w *scene){func(w *scene) { w.facts.Voters = 5 }}, []string{""}},
		"a lone voter and a second": {2, []func(w *scene){votes(1)}, []string{""}},
		"a lone voter and two more": {3, []func(w *scene){votes(1)}, []string{"promote n2", "promote n3", ""}},
		"two voters and a third":    {3, []func(w *scene){votes(1, 2)}, []string{"promote n3", ""}},
		"a voter lost, nobody else": {3, []func(w *scene){lose(3)}, []string{""}},
		"a voter lost, a spare":     {4, []func(w *scene){lose(3)}, []string{"promote n4", "demote n3", ""}},
		"a voter lost just now":     {4, []func(w *scene){lose(3), func(w *scene) { w.facts.Memory = NewMemory() }}, []string{""}},
		"a voter silent, not lost": {4, []func(w *scene){func(w *scene) {
			w.silence(3)
			w.pass(time.Hour / 2)
			w.peer(3, func(p *Peer) { p.Failing = w.now })
		}}, []string{""}},
		"the spare is behind":         {4, []func(w *scene){lose(3), func(w *scene) { w.index += 1000; w.pass(0); w.index += 1000; w.apply(&state.Tick{}) }}, []string{""}},
		"the spare has no lease":      {4, []func(w *scene){lose(3), func(w *scene) { w.peer(4, func(p *Peer) { p.Lease = w.now }) }}, []string{""}},
		"the spare drains":            {4, []func(w *scene){lose(3), func(w *scene) { w.facts.DrainParallel = 0 }, status(4, state.StoreDraining), status(4, state.StoreDrained)}, []string{""}},
		"two voters lost":             {5, []func(w *scene){lose(3), lose(2)}, []string{""}},
		"a voter removed":             {3, []func(w *scene){remove(3)}, []string{"remove_server n3", ""}},
		"a voter removed, a spare":    {4, []func(w *scene){remove(3)}, []string{"promote n4", "remove_server n3", ""}},
		"a non-voter removed":         {4, []func(w *scene){remove(4)}, []string{"remove_server n4", ""}},
		"removed while one is silent": {3, []func(w *scene){remove(3), func(w *scene) { w.silence(2) }}, []string{""}},
		"two voters, one removed":     {2, []func(w *scene){remove(2)}, []string{"remove_server n2", ""}},
		"the leader drains":           {3, []func(w *scene){func(w *scene) { w.topic(1, 1); w.facts.DrainParallel = 0 }, status(1, state.StoreDraining)}, []string{"transfer_leadership n2"}},
		"the leader is removed":       {3, []func(w *scene){remove(1)}, []string{"transfer_leadership n2"}},
		"all drain":                   {2, []func(w *scene){func(w *scene) { w.topic(1, 1, 2); w.facts.DrainParallel = 0 }, status(1, state.StoreDraining), status(2, state.StoreDraining)}, []string{""}},
		"the leader cannot renew":     {3, []func(w *scene){func(w *scene) { w.peer(1, func(p *Peer) { p.Lease = w.now }) }}, []string{"transfer_leadership n2"}},
		"nobody could lead":           {3, []func(w *scene){remove(1), func(w *scene) { w.silence(2); w.silence(3) }}, []string{""}},
		"a store Raft does not know":  {4, []func(w *scene){func(w *scene) { w.facts.Servers = w.facts.Servers[:3] }}, []string{"add_server n4", ""}},
		"an emptied disk came back": {4, []func(w *scene){func(w *scene) { // n4 is at n3's address, and n3's lease runs on
			w.facts.Servers = slices.Delete(w.facts.Servers, 2, 3)
			w.facts.Servers[2].Address = address(3)
			w.apply(&state.RegisterStore{Store: storeN(4), Broker: "n3", Nonce: [16]byte{7}, Boot: "b", Addresses: state.Addresses{Peer: address(3)}})
			w.pass(0)
		}}, []string{"promote n4", ""}},
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
			for i := range w.facts.Servers {
				w.facts.Servers[i].Voter = voters&(1<<i) != 0
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
				if !before && len(actions) > 0 && actions[len(actions)-1].Kind == Promote && !majority(w) {
					t.Fatalf("up %b voters %b: a promotion that cannot commit", up, voters)
				}
			}
		}
	}
}

func majority(w *scene) bool {
	all, up := 0, 0
	for _, s := range w.facts.Servers {
		if s.Voter {
			all++
			if w.facts.Peers[s.Store].Failures == 0 {
				up++
			}
		}
	}
	return up > all/2
}
