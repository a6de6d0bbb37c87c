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

// What a lost store may hold is ORPHANED. When the store is back it says what it
// has, the owner copies that, finds out what producers have sent again since,
// and the metadata take the range back (R15).

// returned finds an ORPHANED range of a partition and a store that may have come back with it.
func (h *History) returned(view *state.View, m *state.Partition) (*state.Range, state.Owner) {
	for i := range m.Ranges {
		rg := &m.Ranges[i]
		if rg.Status != state.RangeOrphaned {
			continue
		}
		for _, id := range rg.Stores {
			s := view.Store(id)
			if !there(s) {
				continue
			}
			run := state.Owner{Store: id, Incarnation: s.Incarnation}
			h.mu.Lock()
			known := h.judged[judgement{idOf(m), rg.Start, run}]
			h.mu.Unlock()
			if !known {
				return rg, run
			}
		}
	}
	return nil, state.Owner{}
}

// judge remembers that a run of a store has given all it has of a range that
// begins at start.
func (h *History) judge(p *Partition, start uint64, by state.Owner) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.judged[judgement{p.id, start, by}] = true
}

// takeBack takes back what a store has of an ORPHANED range.
func (h *History) takeBack(ctx context.Context, p *Partition, rg *state.Range, from state.Owner) error {
	switch {
	case !rg.Tail:
		return h.takeBackSealed(ctx, p, rg, from)
	case from.Store == h.cfg.Self().Store:
		return h.takeBackOwn(ctx, p, rg, from)
	}
	return h.takeBackTail(ctx, p, rg, from)
}

// reportTime bounds a report: the store may have to recover the log first.
const reportTime = 60 * time.Second

// report asks a store what it has of a range from an offset on.
func (h *History) report(ctx context.Context, p *Partition, start uint64, rg *state.Range, from state.Owner) (*reportAnswer, error) {
	view := h.cfg.Meta.View()
	m := view.Partition(p.id.Topic, p.id.Partition)
	if m == nil {
		return nil, errMovedOn
	}
	q := &fetchArg{Partition: calls.Of(m), From: start, To: rg.End, Index: view.Index(), Returned: rg.Status != state.RangeSealed}
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	out, err := calls.Ask[reportAnswer](ctx, h.cfg.Peers, from.Store, OpReport, q)
	if err != nil {
		return nil, fmt.Errorf("ask broker %s what it has of [%d, %d): %w", h.cfg.Peers.Name(from.Store), rg.Start, rg.End, err)
	}
	out.End = min(max(out.End, start), rg.End)
	return out, nil
}

// restore commits what came back.
func (h *History) restore(ctx context.Context, p *Partition, c *state.RestoreRange) error {
	c.Topic, c.Partition, c.Epoch = p.id.Topic, p.id.Partition, p.epoch
	if _, err := h.cfg.Meta.Decide(ctx, c); err != nil {
		return fmt.Errorf("take [%d, %d) of %s back: %w", c.From, c.End, p.name(), err)
	}
	return nil
}

// takeBackTail takes back the end of an epoch whose owner was lost.
func (h *History) takeBackTail(ctx context.Context, p *Partition, rg *state.Range, from state.Owner) error {
	h.cfg.At("return.report")
	ans, err := h.report(ctx, p, rg.Start, rg, from)
	if err != nil {
		return err
	}
	parts := ans.sound(rg.Start)
	sent := sentIndex{}
	if err := h.copyReturned(ctx, p, rg, parts, sent); err != nil {
		return err
	}
	h.cfg.At("return.copied")
	return h.settleTail(ctx, p, rg, tail{ans: ans, parts: parts, sent: sent, from: from, at: h.cfg.Self().Store})
}

// tail is what is known of a tail that came back, or of a range with an exact end.
type tail struct {
	ans   *reportAnswer
	parts []span // whole, in the store at
	sent  sentIndex
	from  state.Owner
	at    state.StoreID
}

// copyReturned copies parts of a range from the stores it lists, and notes their batches.
func (h *History) copyReturned(ctx context.Context, p *Partition, rg *state.Range, parts []span, sent sentIndex) error {
	if len(parts) == 0 {
		return nil
	}
	c, err := h.cfg.Store.Copy(ctx, p.id, p.topic)
	if err != nil {
		return err
	}
	for _, w := range parts {
		for at := w.from; at < w.to && err == nil; {
			var got page
			if got, err = h.fetchPage(ctx, p.id, at, w.to, true); err == nil {
				err = c.Append(got.data)
			}
			if err == nil && p.served.Over() {
				err = errMovedOn
			}
			if err == nil {
				sent.addAll(got.data)
				at = got.end
			}
		}
	}
	if err == nil {
		err = c.Commit()
	}
	if err == nil {
		have := c.Have()
		for _, w := range parts {
			if at, _ := missing(have, rg, w.from); at < w.to {
				err = fmt.Errorf("offset %d is not here after it was copied", at)
			}
		}
	}
	return errors.Join(err, c.Close())
}

// settleTail finds out what was sent again since, with the door shut for the end
// of it, and has the metadata take the range back. Then the owner knows the
// batches that came back, and what is sent again of them is answered with their
// old offsets.
func (h *History) settleTail(ctx context.Context, p *Partition, rg *state.Range, t tail) error {
	again := &repeats{sent: t.sent}
	upto, err := h.scan(ctx, p, max(rg.End, rg.Doubt), again)
	if err != nil {
		return err
	}
	release, err := p.served.Hold()
	if err != nil {
		return err
	}
	defer release()
	if _, err := h.scan(ctx, p, upto, again); err != nil {
		return err
	}
	h.cfg.At("return.scanned")
	if err := h.stage(p, rg, t); err != nil {
		return err
	}
	if err := h.restoreTail(ctx, p, rg, t, again.offsets()); err != nil {
		return err
	}
	h.cfg.At("return.restored")
	if len(t.ans.Sessions) > 0 {
		if err := p.log.MergeSessions(t.ans.Sessions); err != nil {
			return fmt.Errorf("take over the producers of the range that came back: %w", err)
		}
	}
	h.cfg.Log.Info("messages came back with their broker", "partition", p.name(), "from", rg.Start, "to", t.ans.End,
		"broker", h.cfg.Peers.Name(t.from.Store), "sent_again", count(again.offsets()))
	return nil
}

// stage has the producers of a tail durable before the metadata take it back: a
// broker that dies in between would otherwise know the range and not who has
// stored it, and store what is sent again twice (R17). While the range is not
// taken back, or if it is lost, nothing of it is known.
func (h *History) stage(p *Partition, rg *state.Range, t tail) error {
	// What lies here already has files that tell.
	if len(t.ans.Sessions) == 0 || len(t.parts) == 0 || t.from.Store == h.cfg.Self().Store {
		return nil
	}
	epoch, to := rg.Epochs[len(rg.Epochs)-1].Epoch, t.parts[len(t.parts)-1].to
	if !rg.Tail && (to < rg.End || h.goesOn(p, rg)) {
		return nil // messages of the epoch that are brought here will need the place; who opens the log anew doubts again
	}
	err := p.log.StageSessions(t.ans.Sessions, epoch, to)
	if err != nil {
		return fmt.Errorf("keep the producers of the range that comes back: %w", err)
	}
	return nil
}

// goesOn reports whether the last epoch of a range has offsets behind it.
func (h *History) goesOn(p *Partition, rg *state.Range) bool {
	m := h.cfg.Meta.View().Partition(p.id.Topic, p.id.Partition)
	if m == nil {
		return true
	}
	next := m.Range(rg.End)
	return next != nil && next.Epochs[0].Epoch == rg.Epochs[len(rg.Epochs)-1].Epoch
}

func count(o state.Offsets) (n uint64) {
	for _, r := range o {
		n += r.End - r.Start
	}
	return n
}

// restoreTail commits the parts that are here. Behind the last of them nothing
// was ever written, if the end is proven; what may have been there and is gone is LOST.
func (h *History) restoreTail(ctx context.Context, p *Partition, rg *state.Range, t tail, again state.Offsets) error {
	at := []state.StoreID{t.at}
	whole := len(t.ans.Damaged) == 0 || t.ans.Damaged[len(t.ans.Damaged)-1].To < t.ans.End
	parts := t.parts
	if len(parts) == 0 && whole {
		parts = []span{{rg.Start, rg.Start}}
	}
	for i, w := range parts {
		c := &state.RestoreRange{From: w.from, End: w.to, To: w.to, Superseded: within(again, w)}
		if w.from < w.to {
			c.Stores = at
		}
		if i == len(parts)-1 && whole && t.ans.Proven {
			c.To = rg.End
		}
		if c.From == c.To {
			continue // nothing came back and nothing is known of the rest
		}
		if err := h.restore(ctx, p, c); err != nil {
			return err
		}
	}
	if whole && !t.ans.Proven && t.ans.End < rg.End {
		errs, err := h.cfg.Meta.DecideEach(ctx, &state.MarkRanges{Entries: []state.RangeMark{{
			Topic: p.id.Topic, Partition: p.id.Partition, Epoch: p.epoch, From: t.ans.End, To: rg.End, Status: state.RangeLost,
		}}}, 1)
		if err = errors.Join(append(errs, err)...); err != nil {
			return fmt.Errorf("give up [%d, %d) of %s, of which nothing came back: %w", t.ans.End, rg.End, p.name(), err)
		}
	}
	for _, d := range t.ans.Damaged {
		h.judge(p, d.From, t.from)
	}
	return nil
}

// within returns the offsets of o in a span.
func within(o state.Offsets, w span) (out state.Offsets) {
	for _, r := range o {
		if from, to := max(r.Start, w.from), min(r.End, w.to); from < to {
			out = append(out, state.OffsetRange{Start: from, End: to})
		}
	}
	return out
}

// scan looks through all that was stored from an offset on, and returns up to where.
func (h *History) scan(ctx context.Context, p *Partition, from uint64, again *repeats) (upto uint64, err error) {
	r := p.Reader(ctx, from)
	defer r.Close()
	for at := from; ; {
		if err := ctx.Err(); err != nil {
			return at, err
		}
		view, err := r.Next(pageBytes)
		var (
			gap     *storage.Gap
			damaged *storage.Damage
			trimmed *storage.Trimmed
		)
		switch {
		case err == nil:
			again.addAll(view.Data)
			at = view.End
			view.Release()
		case errors.Is(err, storage.ErrEnd):
			return at, nil
		case errors.As(err, &gap):
			at = gap.To
			r.Seek(at)
		case errors.As(err, &damaged):
			at = damaged.To
			r.Seek(at)
		case errors.As(err, &trimmed):
			at = trimmed.LogStart
			r.Seek(at)
		default:
			return at, fmt.Errorf("look for what was sent again: %w", err)
		}
	}
}

// takeBackOwn takes back the end of an epoch that this store wrote itself before
// it was lost: its files are here, and nothing is copied.
func (h *History) takeBackOwn(ctx context.Context, p *Partition, rg *state.Range, from state.Owner) error {
	c, err := h.cfg.Store.Copy(ctx, p.id, p.topic)
	if err != nil {
		return err
	}
	end, _ := missing(c.Have(), rg, rg.Start)
	if err := c.Close(); err != nil {
		return err
	}
	sent, producers := sentIndex{}, storage.Sessions{}
	if err := h.whileSealed(p, span{rg.Start, rg.End}, end, func() error { return readOwn(ctx, p.stream(rg.Start), span{rg.Start, end}, sent, &producers) }); err != nil {
		return err
	}
	ans := &reportAnswer{End: end, Proven: true, Sessions: producers.Encode(end)}
	return h.settleTail(ctx, p, rg, tail{ans: ans, parts: ans.sound(rg.Start), sent: sent, from: from, at: from.Store})
}

// whileSealed has the log read ORPHANED offsets of this store's own as if their
// range were sealed at end already, for read alone.
func (h *History) whileSealed(p *Partition, w span, end uint64, read func() error) error {
	view, self := h.cfg.Meta.View(), h.cfg.Self().Store
	t, m := view.TopicByID(p.id.Topic), view.Partition(p.id.Topic, p.id.Partition)
	if t == nil || m == nil || m.Epoch != p.epoch {
		return errMovedOn
	}
	p.hidden.Store(&w)
	defer p.hidden.Store(nil)
	p.log.SetRanges(asSealed(Facts(t, m, self).Ranges, w.from, end))
	err := read()
	p.log.SetRanges(Facts(t, m, self).Ranges)
	if err != nil {
		return fmt.Errorf("read this store's own [%d, %d): %w", w.from, end, err)
	}
	return nil
}

// asSealed are ranges in which the one that has the offset at is sealed at end.
func asSealed(ranges []storage.Range, at, end uint64) []storage.Range {
	out := slices.Clone(ranges)
	for i := range out {
		if out[i].Start <= at && at < out[i].End {
			out[i].Status, out[i].End, out[i].Away = storage.RangeSealed, end, false
		}
	}
	return out
}

// readOwn notes the batches of w, and what their producers have stored by them. It closes r.
func readOwn(ctx context.Context, r *storage.Stream, w span, sent sentIndex, producers *storage.Sessions) error {
	defer r.Close()
	for at := w.from; at < w.to; {
		view, err := r.Next(ctx, pageBytes)
		if err != nil {
			return err
		}
		sent.note(view.Data, producers)
		at = view.End
		view.Release()
	}
	return nil
}

// Adopt makes what returned stores hold of LOST ranges within [from, to)
// fetchable again; no subscription gets it (R15). to zero: to the end.
func (h *History) Adopt(ctx context.Context, p *Partition, from, to uint64) error {
	m := h.cfg.Meta.View().Partition(p.id.Topic, p.id.Partition)
	if m == nil {
		return errMovedOn
	}
	var last error
	adopted := 0
	for i := range m.Ranges {
		rg := &m.Ranges[i]
		if rg.Status != state.RangeLost || rg.Start < from || to != 0 && rg.End > to {
			continue
		}
		for _, id := range rg.Stores {
			s := h.cfg.Meta.View().Store(id)
			if s == nil || s.Status == state.StoreLost || s.Status == state.StoreRemoved || s.Clean || id == h.cfg.Self().Store {
				continue
			}
			n, err := h.adoptRange(ctx, p, rg, state.Owner{Store: id, Incarnation: s.Incarnation})
			adopted, last = adopted+n, err
			if n > 0 {
				break
			}
		}
	}
	if adopted > 0 {
		return nil
	}
	if last != nil {
		return last
	}
	return protocol.Errorf(protocol.CodeBadRequest, "nothing to adopt: no store has returned with messages of a lost range of %s", p.name())
}

// adoptRange takes what a store has of a LOST range, and returns how many parts that were.
func (h *History) adoptRange(ctx context.Context, p *Partition, rg *state.Range, from state.Owner) (int, error) {
	release, free := h.Keep(p.id)
	if !free {
		return 0, protocol.Errorf(protocol.CodeNotReady, "history of %s is being copied just now", p.name())
	}
	defer release()
	ans, err := h.report(ctx, p, rg.Start, rg, from)
	if err != nil {
		return 0, err
	}
	parts := ans.sound(rg.Start)
	if err := h.copyReturned(ctx, p, rg, parts, sentIndex{}); err != nil {
		return 0, err
	}
	for i, w := range parts {
		c := &state.RestoreRange{From: w.from, End: w.to, To: w.to, Stores: []state.StoreID{h.cfg.Self().Store}, Adopt: true}
		if err := h.restore(ctx, p, c); err != nil {
			return i, err
		}
	}
	return len(parts), nil
}
