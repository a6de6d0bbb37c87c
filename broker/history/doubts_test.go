package history

import (
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
)

// takeOver has a broker open the partition after the one that serves it was lost.
func (r *rig) takeOver(by *rig) {
	r.t.Helper()
	r.leave()
	m := r.metadata()
	r.commit(&state.LoseStore{Owner: r.owner})
	r.commit(&state.GrantPartitions{Entries: []state.PartitionGrant{{Topic: topic, Epoch: m.Epoch, To: by.owner}}})
	r.commit(&state.OpenPartitions{Owner: by.owner, Entries: []state.PartitionOpen{{
		Topic: topic, Epoch: m.Epoch + 1, End: m.OpenRange().Start, Tail: state.TailOrphaned,
	}}})
}

// doubtful is a broker that has taken over from one that is lost, while the first
// has 20 messages; reached: it can be asked.
func doubtful(t *testing.T, reached bool) (n1, n3 *rig) {
	t.Helper()
	n1 = newRig(t)
	n1.serve(20)
	n2 := join(t, n1.cfg.Meta, "n2", n1)
	n1.moveTo(n2)
	n2.serve(0)
	if reached {
		n3 = join(t, n1.cfg.Meta, "n3", n1)
	} else {
		n3 = join(t, n1.cfg.Meta, "n3")
	}
	n2.takeOver(n3)
	n3.serve(0)
	return n1, n3
}

// send sends the message with a sequence again and returns what became of it.
func (r *rig) send(sequence uint64) storage.Pending {
	r.t.Helper()
	_, _, err := r.part.log.OpenSession(7, 1, sequence)
	wantNil(r.t, err)
	p, err := r.part.log.Append(batch.Batch(pageOf(r.t, 0, sequence, sequence+1)))
	wantNil(r.t, err)
	wantNil(r.t, p.Wait())
	return p
}

// round looks at what is due once.
func (r *rig) round() {
	l := looking{h: r.History}
	l.look(r.t.Context(), r.cfg.Meta.View(), nil)
	l.workers.Wait()
}

// What another store holds is learned, and a producer waits for that; then it is
// not asked for again.
func TestProducersWaitForWhatOthersKnow(t *testing.T) {
	_, n3 := doubtful(t, true)
	n3.cfg.CopyDelay = time.Hour
	n3.part.since = time.Now()
	asked := 0
	n3.cfg.At = func(step string) {
		if step == "doubt.ask" {
			asked++
		}
	}
	waited := make(chan struct{})
	go func() { // returns when it is known
		n3.part.AwaitProducers(nil)
		close(waited)
	}()
	select {
	case <-n3.wake: // it has asked for a look
	case <-waited:
		t.Fatal("a producer does not wait")
	}
	n3.round()
	<-waited
	if p := n3.send(18); !p.Duplicate || p.Base != 18 {
		t.Errorf("sent again: %+v", p)
	}
	if m := n3.metadata(); m.Ranges[0].Doubt != 0 || len(m.Superseded) > 0 {
		t.Errorf("told of: %+v, superseded %v", m.Ranges[0], m.Superseded)
	}
	n3.round()
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
}

// Where the one who could tell does not answer nobody waits longer, and what else
// is to be done is done first from then on.
func TestNobodyWaitsForWhoDoesNotAnswer(t *testing.T) {
	_, n3 := doubtful(t, false)
	n3.cfg.CopyDelay = 0
	if list, _ := n3.due(n3.cfg.Meta.View(), n3.part); list != toReturn {
		t.Errorf("a doubt for which nobody waits is in list %d", list)
	}
	n3.round()
	n3.part.AwaitProducers(nil)
	if p := n3.send(18); p.Duplicate {
		t.Errorf("sent again: %+v", p)
	}
	if m := n3.metadata(); m.Ranges[0].Doubt == 0 {
		t.Error("the doubt has ended")
	}
	if list, do := n3.due(n3.cfg.Meta.View(), n3.part); do == nil || list == toReturn || list == toTell {
		t.Errorf("what is due is in list %d", list)
	}
}

// What was stored again in doubt is superseded where it lay, and subscriptions hear of it.
func TestWhatWasStoredAgainInDoubtIsSuperseded(t *testing.T) {
	_, n3 := doubtful(t, true)
	p := n3.send(18)
	if p.Duplicate {
		t.Fatalf("sent again: %+v", p)
	}
	m := n3.metadata()
	wantNil(t, n3.settleDoubt(t.Context(), n3.part, &m.Ranges[0], mustTell(t, n3, &m.Ranges[0])))
	m = n3.metadata()
	if len(m.Superseded) != 1 || m.Superseded[0] != (state.OffsetRange{Start: 18, End: 19}) || m.Ranges[0].Doubt != 0 {
		t.Errorf("superseded %v of %+v", m.Superseded, m.Ranges[0])
	}
	if again := n3.send(18); !again.Duplicate || again.Base != p.Base {
		t.Errorf("sent once more: %+v", again)
	}
	if other := n3.send(17); !other.Duplicate || other.Base != 17 {
		t.Errorf("another sent again: %+v", other)
	}
	n3.part.notice(m)
	if n := len(n3.served.turned); n != 1 || len(n3.served.turned[0].None) != 1 || n3.served.turned[0].None[0] != m.Superseded[0] {
		t.Errorf("subscriptions hear %+v", n3.served.turned)
	}
}

func mustTell(t *testing.T, r *rig, rg *state.Range) state.Owner {
	t.Helper()
	by, found := r.teller(r.cfg.Meta.View(), r.metadata(), rg)
	if !found {
		t.Fatalf("nobody can tell of %+v", rg)
	}
	return by
}

// A store that was stopped is not waited for: it is known to be away.
func TestStoppedStoreIsNotAsked(t *testing.T) {
	n1, n3 := doubtful(t, true)
	n1.commit(&state.SetStore{Owner: n1.owner, Clean: true})
	if rg, _ := n3.doubted(n3.cfg.Meta.View(), n3.part, n3.metadata()); rg != nil {
		t.Errorf("asked for %+v", rg)
	}
	if told := n3.part.toBeTold(n3.cfg.Meta.View()); told != nil {
		t.Error("a producer waits for it")
	}
}
