package history

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// reportAnswer is what a store that returned has of a range.
type reportAnswer struct {
	End      uint64   `msgpack:"x"` // up to where it holds messages, or has looked
	Proven   bool     `msgpack:"p"` // nothing above End was acknowledged (R6)
	Damaged  []spanOf `msgpack:"d"`
	Sessions []byte   `msgpack:"s,omitempty"` // its producer table at End
}

type spanOf struct {
	From uint64 `msgpack:"f"`
	To   uint64 `msgpack:"t"`
}

// reportBytes is how much of a sealed range one report reads through.
const reportBytes = 64 << 20

// Report answers another broker what this store has of a range that is ORPHANED
// or LOST and lists it: after its recovery (R10), and never while it still serves
// that epoch. Of a sealed range it says who has stored what.
func (h *History) Report(ctx context.Context, body []byte) ([]byte, error) {
	q := new(fetchArg)
	if err := protocol.DecodeBody(body, q); err != nil {
		return nil, err
	}
	out, err := h.reportHeld(ctx, q)
	if err != nil {
		return nil, err
	}
	return protocol.EncodeBody(out)
}

// reportHeld says what this store has of a range.
func (h *History) reportHeld(ctx context.Context, q *fetchArg) (*reportAnswer, error) {
	t, m, rg, err := h.held(ctx, q)
	if err != nil {
		return nil, err
	}
	out := &reportAnswer{}
	err = h.withHeld(ctx, t, m, rg, func(log *storage.Log, found *storage.Recovery) error {
		var err error
		switch {
		case rg.Status == state.RangeSealed:
			out.End, out.Proven = rg.End, true
		case !rg.Tail && rg.Status == state.RangeOrphaned:
			if err = out.lookThrough(ctx, log.Stream(q.From, h.part(idOf(m))), q.From, min(q.To, rg.End)); err != nil || out.End < rg.End {
				return err
			}
		default:
			out.End, out.Proven = found.End, found.Proven
			for _, d := range found.Damaged {
				out.Damaged = append(out.Damaged, spanOf{max(d.From, rg.Start), min(d.To, rg.End)})
			}
		}
		out.Sessions, err = log.Sessions()
		return err
	})
	return out, err
}

// lookThrough reads a part of a range that was sealed, whose end is known: it
// may be ORPHANED for its damage. It closes r.
func (a *reportAnswer) lookThrough(ctx context.Context, r *storage.Stream, from, to uint64) error {
	a.Proven, a.End = true, from
	defer r.Close()
	for n := 0; a.End < to && n < reportBytes; {
		view, err := r.Next(ctx, pageBytes)
		if d, is := errors.AsType[*storage.Damage](err); is {
			a.Damaged = append(a.Damaged, spanOf{max(d.From, from), min(d.To, to)})
			a.End = min(d.To, to)
			r.Seek(d.To)
			continue
		}
		if err != nil {
			return err
		}
		n += len(view.Data)
		a.End = min(view.End, to)
		view.Release()
	}
	return nil
}

// sound returns the parts of [from, a.End) that are not damaged.
func (a *reportAnswer) sound(from uint64) []span {
	slices.SortFunc(a.Damaged, func(x, y spanOf) int { return cmp.Compare(x.From, y.From) })
	var out []span
	for _, d := range a.Damaged {
		if from < min(d.From, a.End) {
			out = append(out, span{from, min(d.From, a.End)})
		}
		from = max(from, d.To)
	}
	if from < a.End {
		out = append(out, span{from, a.End})
	}
	return out
}
