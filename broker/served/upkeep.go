package served

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/history"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// Truncate moves the start of the log, unless it is only asked what that would do.
func (p *Partition) Truncate(ctx context.Context, q *protocol.Truncate) (*protocol.Truncated, error) {
	if end := p.Log.Committed(); q.Before > end {
		return nil, &protocol.Error{Code: protocol.CodeAboveEnd, Want: end, Text: fmt.Sprintf("%s ends at offset %d; nothing lies before %d that could go", p.Name(), end, q.Before)}
	}
	out := &protocol.Truncated{Was: p.Log.Start(), LogStart: max(q.Before, p.Log.Start()), Unacked: p.UnackedBelow(q.Before)}
	if q.DryRun || q.Before <= out.Was {
		return out, nil
	}
	return out, p.moveLogStart(ctx, q.Before)
}

// moveLogStart commits a new start of the log, then lets the files below it go.
func (p *Partition) moveLogStart(ctx context.Context, to uint64) error {
	if !p.h.cfg.Leased() {
		return delivery.ErrNoLease
	}
	errs, err := p.h.cfg.Peers.RequestEach(ctx, &state.UpdatePartitions{Entries: []state.PartitionUpdate{{
		Topic: p.Key.Topic, Partition: p.Key.N, Epoch: p.Epoch, Floor: p.Floor(), LogStart: to, At: p.h.cfg.Now().UnixMilli(),
	}}}, 1)
	if err == nil {
		err = errs[0]
	}
	if err != nil {
		return fmt.Errorf("move the start of %s to %d: %w", p.Name(), to, err)
	}
	return p.Log.Trim(to)
}

// SettleRanges settles ORPHANED or LOST ranges as an operator decided.
func (p *Partition) SettleRanges(ctx context.Context, q *protocol.Resolve) (*protocol.Done, error) {
	m := p.h.cfg.Meta.View().Partition(p.Key.Topic, p.Key.N)
	if m == nil {
		return nil, words.NoSuchTopic(p.Topic)
	}
	settles, err := words.Settles(q.How)
	if err != nil {
		return nil, err
	}
	mark := state.RangeMark{Topic: p.Key.Topic, Partition: p.Key.N, Epoch: p.Epoch, Status: state.RangeOrphaned, Accepted: true}
	switch q.How {
	case "lost":
		mark.Status = state.RangeLost
	case "adopt":
		return &protocol.Done{}, p.h.cfg.History.Adopt(ctx, p.Past, q.From, q.To)
	}
	var marks []state.RangeMark
	for i := range m.Ranges {
		if r := &m.Ranges[i]; settles(r) && r.Start >= q.From && (q.To == 0 || r.End <= q.To) {
			mark.From, mark.To = r.Start, r.End
			marks = append(marks, mark)
		}
	}
	if len(marks) == 0 {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "%s has no orphaned range there", p.Name())
	}
	errs, err := p.h.cfg.Peers.RequestEach(ctx, &state.MarkRanges{Entries: marks}, len(marks))
	if err != nil {
		return nil, err
	}
	for _, s := range p.Subscriptions() {
		s.Look()
	}
	return &protocol.Done{}, errors.Join(errs...)
}

// Verify reads the partition through, what other stores hold of it included.
func (p *Partition) Verify(ctx context.Context, q *protocol.TopicArgs) (*protocol.VerifyPartition, error) {
	v := &protocol.VerifyPartition{Partition: q.Partition, Findings: []protocol.VerifyFinding{}}
	v.From, v.To = p.Log.Start(), p.Log.Committed()
	m := p.h.cfg.Meta.View().Partition(p.Key.Topic, p.Key.N) // one view: damage found now becomes ORPHANED in a later one
	v.Messages = words.Messages(m, v.From, v.To)
	in := func(tier string) func(storage.Damage, string) {
		return func(d storage.Damage, what string) {
			v.Findings = append(v.Findings, protocol.VerifyFinding{From: d.From, To: d.To, Tier: tier, File: d.File, At: d.At, What: what})
			v.Messages -= words.Messages(m, d.From, d.To)
		}
	}
	found := in("hot")
	err := p.Log.Verify(func(d storage.Damage) {
		found(d, d.Err.Error())
		p.Past.SawDamage(d)
	})
	if err != nil {
		return nil, fmt.Errorf("verify %s: %w", p.Name(), err)
	}
	unless := func(d storage.Damage, what string) { // it was found already
		again := slices.ContainsFunc(v.Findings, func(x protocol.VerifyFinding) bool { return x.From < d.To && d.From < x.To })
		if !again && d.To > v.From {
			found(d, what)
		}
	}
	for _, d := range p.Past.KnownDamage() {
		unless(d, d.Err.Error())
	}
	_, v.Bytes = p.Log.Bytes()
	if m == nil {
		return v, nil
	}
	for i := range m.Ranges {
		r := &m.Ranges[i]
		from := max(r.Start, v.From)
		switch {
		case from >= r.End: // open, or given up by retention
		case r.Status == state.RangeOrphaned:
			unless(storage.Damage{From: from, To: r.End}, p.whyOrphaned(r))
		case r.Status == state.RangeLost && r.Accepted:
			v.Notes = append(v.Notes, protocol.VerifyNote{From: from, To: r.End, What: "lost, and given up"})
		case r.Status == state.RangeLost:
			unless(storage.Damage{From: from, To: r.End}, "lost, and nobody has given it up: danube topic resolve "+p.Name()+" --lost")
		}
	}
	elsewhere, err := p.Past.VerifyElsewhere(ctx, m, v.From, found)
	if errors.Is(err, history.ErrStale) {
		return nil, protocol.Errorf(protocol.CodeNotReady, "what %s consists of has changed meanwhile: verify it again", p.Name())
	}
	v.Bytes += elsewhere
	if err != nil {
		return v, err
	}
	cold, err := p.Past.VerifyCold(ctx, m, v.From, in("cold"))
	v.Bytes += cold
	return v, err
}

// whyOrphaned says what a range that is ORPHANED waits for.
func (p *Partition) whyOrphaned(r *state.Range) string {
	if names := p.Past.MayReturn(r.Start); len(names) > 0 {
		return "not verified: orphaned, what was written there comes back with broker " + strings.Join(names, " or ")
	}
	if len(r.Stores) == 0 {
		return "orphaned, no broker is known to have it; to give it up: danube topic resolve " + p.Name() + " --lost"
	}
	return "not verified: orphaned, what was written there is not back yet"
}
