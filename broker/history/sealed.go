package history

import (
	"context"
	"fmt"

	"github.com/danubemq/danube/meta/state"
)

// What comes back of a range that was sealed: its end is known, and it stays where it lies (R15).

// takeBackSealed takes back a range whose end is known: its store was away, and
// still has it. It stays there until it is copied as other history is. What is
// damaged there stays ORPHANED. Where a later owner may not have known what the
// range holds, what producers have sent again is looked for as in a tail.
func (h *History) takeBackSealed(ctx context.Context, p *Partition, rg *state.Range, from state.Owner) error {
	h.cfg.At("return.report")
	ask := func(at uint64) (*reportAnswer, error) { return h.report(ctx, p, at, rg, from) }
	if from.Store == h.cfg.Self().Store {
		ask = func(at uint64) (*reportAnswer, error) { return h.examine(ctx, p, at, rg.End) }
	}
	doubt := rg.Doubt > 0
	whole := tail{ans: &reportAnswer{End: rg.End, Proven: true}, from: from, at: from.Store}
	back := uint64(0)
	for at := rg.Start; at < rg.End; {
		ans, err := ask(at)
		if err != nil {
			return err
		}
		if ans.End <= at {
			return fmt.Errorf("broker %s has nothing at offset %d of %s", h.cfg.Peers.Name(from.Store), at, p.name())
		}
		parts := ans.sound(at)
		at = ans.End
		whole.ans.Damaged, whole.ans.Sessions = append(whole.ans.Damaged, ans.Damaged...), ans.Sessions
		if whole.parts = append(whole.parts, parts...); doubt {
			continue
		}
		for _, w := range parts {
			if err := h.restore(ctx, p, &state.RestoreRange{From: w.from, End: w.to, To: w.to, Stores: []state.StoreID{from.Store}}); err != nil {
				return err
			}
			back += w.to - w.from
		}
	}
	if doubt && len(whole.parts) > 0 {
		if err := h.index(ctx, p, rg, &whole); err != nil {
			return err
		}
		return h.settleTail(ctx, p, rg, whole)
	}
	for _, d := range whole.ans.Damaged {
		h.judge(p, d.From, from)
	}
	if back > 0 {
		h.cfg.Log.Info("messages came back with their broker", "partition", p.name(), "from", rg.Start, "to", rg.End, "offsets", back,
			"broker", h.cfg.Peers.Name(from.Store))
	}
	return nil
}

// examine says what this store has of the end of a range that was sealed, from an
// offset on. Damage that it knows is not looked for again.
func (h *History) examine(ctx context.Context, p *Partition, at, to uint64) (*reportAnswer, error) {
	out := &reportAnswer{}
	if err := h.whileSealed(p, span{at, to}, to, func() error { return out.lookThrough(ctx, p.stream(at), at, to) }); err != nil {
		return nil, err
	}
	for _, d := range p.damaged.all() {
		if from, to := max(d.From, at), min(d.To, out.End); from < to {
			out.Damaged = append(out.Damaged, spanOf{from, to})
		}
	}
	return out, nil
}
