package admin

import (
	"strings"
	"testing"

	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Why a subscription is not served is always said: in the words of the owner
// that failed to open the log, of whoever could not ask it, or that nobody serves it.
func TestSubscriptionNotServedHasAReason(t *testing.T) {
	g := &gathered{
		parts: []*state.Partition{{Number: 0}, {Number: 1}, {Number: 2}},
		known: map[uint32]protocol.PartitionDescription{0: {Reason: "the log ends at 100"}, 2: {}},
		fails: map[uint32]string{1: "broker n2 does not say more"},
	}
	parts := g.subscription(&state.Subscription{Name: "s", Cursors: make([]state.Cursor, 3)})
	for i, want := range []string{"the log ends at 100", "broker n2 does not say more", words.ErrNotThere.Error()} {
		if got, ok := strings.CutPrefix(parts[i].State, "not served: "); !ok || got != want {
			t.Errorf("partition %d is %q, want the reason %q", i, parts[i].State, want)
		}
	}
}
