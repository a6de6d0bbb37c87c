package history

import "testing"

// A look goes by what was decided since the one before, and by what waits for a
// slot; at everything it looks only where that is not known.
func TestALookGoesByWhatWasDecided(t *testing.T) {
	n1 := newRig(t)
	n1.serve(20)
	n2 := join(t, n1.cfg.Meta, "n2", n1)
	n1.moveTo(n2)
	n2.serve(0)
	l := looking{h: n2.History}
	for range copiesAtOnce {
		n2.copies <- struct{}{}
	}
	look := func(all bool) (here bool) {
		before := n2.cfg.Meta.View()
		if all {
			l.look(t.Context(), before, nil)
		} else {
			l.look(t.Context(), before, before)
		}
		l.workers.Wait()
		return !lacks(n2.metadata(), n2.metadata().Range(0), n2.owner.Store)
	}
	if look(true) || look(false) {
		t.Fatal("history was copied without a slot")
	}
	<-n2.copies
	before := n2.cfg.Meta.View()
	if !look(false) {
		t.Fatal("what waited was not copied once there was a slot")
	}
	// The copy is a decision: subscriptions hear of it.
	heard := len(n2.served.turned)
	l.look(t.Context(), n2.cfg.Meta.View(), before)
	if len(n2.served.turned) == heard {
		t.Error("a partition was not looked at although something was decided about it")
	}
	for list, waiting := range l.waiting {
		if len(waiting) > 0 {
			t.Errorf("of list %d %d wait, and all is done", list, len(waiting))
		}
	}
	if n2.walks != 1 {
		t.Errorf("%d looks at everything, want 1", n2.walks)
	}
}
