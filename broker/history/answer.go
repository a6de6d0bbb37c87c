package history

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// The requests of other brokers that a history answers.
const (
	OpFetch  = "log.fetch"    // batches of a range that the other holds: [History.Fetch]
	OpReport = "range.report" // what the other has of a range after it was away: [History.Report]
)

// fetchArg asks a store for batches that it holds.
type fetchArg struct {
	calls.Partition
	From     uint64 `msgpack:"f"`
	To       uint64 `msgpack:"to"`
	Max      int    `msgpack:"m"` // bytes; at least one batch comes
	Index    uint64 `msgpack:"i"` // of the metadata that say so
	Returned bool   `msgpack:"r,omitempty"`
}

// damagedCode marks the answer that what is asked for is damaged here.
const damagedCode = "damaged"

// damagedError tells another broker of damage.
type damagedError struct{ *storage.Damage }

func (e damagedError) Code() string  { return damagedCode }
func (e damagedError) Error() string { return fmt.Sprintf("%d %d %q", e.From, e.To, e.Damage.Error()) }

// catchUp is how long a request waits until this broker has applied what the
// caller knows, and until a partition is closed that it serves no more.
const catchUp = time.Second

// Fetch answers another broker what lies here, and nothing that the metadata do
// not list for this store (R19): a store may hold batches that were never
// acknowledged. Damage of it goes to the caller in its own words.
func (h *History) Fetch(ctx context.Context, body []byte) ([]byte, error) {
	q := new(fetchArg)
	if err := protocol.DecodeBody(body, q); err != nil {
		return nil, err
	}
	data, err := h.readHeld(ctx, q)
	if d, is := errors.AsType[*storage.Damage](err); is {
		return nil, damagedError{d}
	}
	return data, err
}

// held returns the range of an offset as this broker knows it, once it knows
// what the caller does. It must list this store, and be sealed, unless returned.
func (h *History) held(ctx context.Context, q *fetchArg) (*state.Topic, *state.Partition, *state.Range, error) {
	topic, n, err := q.Key()
	if err != nil {
		return nil, nil, nil, err
	}
	wait, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	if err := h.cfg.Meta.WaitIndex(wait, q.Index); err != nil {
		return nil, nil, nil, protocol.Errorf(protocol.CodeNotReady, "this broker has not applied index %d of the metadata", q.Index)
	}
	view := h.cfg.Meta.View()
	t, m := view.TopicByID(topic), view.Partition(topic, n)
	if t == nil || m == nil || t.Deleted() {
		return nil, nil, nil, protocol.Errorf(protocol.CodeNoSuchTopic, "topic %s was deleted", topic)
	}
	rg := m.Range(q.From)
	switch {
	case rg == nil || rg.Status == state.RangeOpen, (rg.Status == state.RangeSealed) == q.Returned:
		return nil, nil, nil, ErrStale
	case !slices.Contains(rg.Stores, h.cfg.Self().Store):
		return nil, nil, nil, protocol.Errorf(protocol.CodePending, "offset %d of %s:%d is not listed for this store", q.From, t.Name, m.Number)
	}
	return t, m, rg, nil
}

// readHeld reads a page of a range that lists this store.
func (h *History) readHeld(ctx context.Context, q *fetchArg) ([]byte, error) {
	t, m, rg, err := h.held(ctx, q)
	if err != nil {
		return nil, err
	}
	to := min(q.To, rg.End)
	limit := min(max(q.Max, 1), pageBytes)
	var data []byte
	err = h.withHeld(ctx, t, m, rg, func(log *storage.Log, found *storage.Recovery) error {
		if found != nil {
			to = min(to, found.End)
		}
		var err error
		data, err = h.readPage(ctx, log, q, to, limit)
		return err
	})
	return data, err
}

// withHeld calls do with a log that has the range: the one that is served, else
// the archive's, with what its recovery found. One that is about to be closed is
// waited for.
func (h *History) withHeld(ctx context.Context, t *state.Topic, m *state.Partition, rg *state.Range, do func(*storage.Log, *storage.Recovery) error) error {
	ctx, cancel := context.WithTimeout(ctx, catchUp)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	f, want := archiveFacts(t, m, rg, h.cfg.Self().Store)
	for {
		var err error
		if p := h.cfg.Served(idOf(m)); p != nil && rg.Status == state.RangeSealed {
			err = do(p.log, nil)
		} else if p != nil {
			err = p.notWhileServed(rg)
		} else {
			err = h.archive.use(ctx, f, want, func(x *archived) error {
				return do(x.log, &x.found)
			})
		}
		if err == nil || !errors.Is(err, storage.ErrClosed) && !errors.Is(err, storage.ErrOpen) && !errors.Is(err, errServed) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return protocol.Errorf(protocol.CodeNotReady, "%s:%d is being opened or closed here: %v", t.Name, m.Number, err)
		}
	}
}

// errServed: nobody is told where an epoch ended that is still being served (R15).
var errServed = errors.New("its epoch is still served here")

func (p *Partition) notWhileServed(rg *state.Range) error {
	return fmt.Errorf("%s, offset %d: %w", p.name(), rg.Start, errServed)
}

// readPage reads whole batches from the one that holds from on, none beyond to.
func (h *History) readPage(ctx context.Context, log *storage.Log, q *fetchArg, to uint64, limit int) ([]byte, error) {
	topic, n, err := q.Key()
	if err != nil {
		return nil, err
	}
	r := log.Stream(q.From, h.part(storage.PartitionID{Topic: topic, Partition: n}))
	defer r.Close()
	var data []byte
	for at := q.From; at < to && len(data) < limit; {
		view, err := r.Next(ctx, limit-len(data))
		if err != nil {
			if len(data) > 0 {
				break
			}
			return nil, err
		}
		if len(data) > 0 && len(data)+len(view.Data) > limit || view.End > to {
			view.Release()
			break
		}
		data = append(data, view.Data...)
		at = view.End
		view.Release()
	}
	if len(data) == 0 {
		return nil, protocol.Errorf(protocol.CodePending, "no whole batch lies in offsets %d to %d", q.From, to)
	}
	return data, nil
}
