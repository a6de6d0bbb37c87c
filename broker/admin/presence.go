package admin

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Who is there is asked of the brokers themselves, at the moment of the question: gossip takes seconds to notice a death, and
// the decision that one is lost comes before it or after. What the cluster has decided is another matter, and stands beside.

// PresenceArg asks a broker whether it is there.
type PresenceArg struct {
	Which bool `msgpack:"w,omitempty"` // also which partitions it has nothing of yet
}

// PresenceAnswer says it with what only that broker knows: others hear of offsets a block at a time.
type PresenceAnswer struct {
	Applied uint64            `msgpack:"a"` // index of the metadata it has applied
	Empty   int               `msgpack:"e"` // partitions whose open range it alone holds, and nothing was ever written to
	Which   []calls.Partition `msgpack:"w,omitempty"`
}

// presenceTime bounds how long an answer is waited for.
const presenceTime = time.Second

// present is what became of asking a broker.
type present struct {
	seen   string // answers, starting, silent
	answer PresenceAnswer
}

// presence asks brokers side by side whether they are there. Of one that was stopped in order nothing is asked.
func (b *Board) presence(ctx context.Context, stores []*state.Store, q *PresenceArg) map[state.StoreID]present {
	e := calls.Errand[PresenceArg, PresenceAnswer]{Op: opPresence, Limit: presenceTime, Here: b.cfg.Here.Present}
	out := map[state.StoreID]present{}
	var mu sync.Mutex // guards out
	var asked sync.WaitGroup
	for _, s := range stores {
		if words.Status(s) == "stopped" {
			continue
		}
		asked.Go(func() { // returns with the answer, or when its time is over
			a, err := e.On(ctx, b.cfg.Peers, s.ID, q)
			p := present{seen: "answers"}
			switch coded, is := errors.AsType[*protocol.Error](err); {
			case err == nil:
				p.answer = *a
			case errors.Is(err, cluster.ErrUnreachable), errors.Is(err, cluster.ErrUnanswered), errors.Is(err, context.DeadlineExceeded):
				p.seen = "silent"
			case is && coded.Code == protocol.CodeNotReady:
				p.seen = "starting"
			}
			mu.Lock()
			defer mu.Unlock()
			out[s.ID] = p
		})
	}
	asked.Wait()
	return out
}

// empty reports whether the broker that answered has nothing of a range that it alone holds.
func (p present) empty(m *state.Partition, r *state.Range) bool {
	return r.Status == state.RangeOpen && slices.ContainsFunc(p.answer.Which, func(a calls.Partition) bool {
		topic, n, err := a.Key()
		return err == nil && topic == m.Topic && n == m.Number && a.Epoch == m.Epoch
	})
}
