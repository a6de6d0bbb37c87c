package history

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold/fetch"
)

// VerifyElsewhere reads from an offset on what only other stores hold of a
// partition as the metadata have it, and returns how many bytes that were. found
// is told of damage there, and of what is not verified because its stores are
// away. ErrStale: what the partition consists of has changed meanwhile.
func (p *Partition) VerifyElsewhere(ctx context.Context, m *state.Partition, from uint64, found func(d storage.Damage, what string)) (bytes int64, err error) {
	for i := range m.Ranges {
		rg := &m.Ranges[i]
		if !lacks(m, rg, p.h.cfg.Self().Store) {
			continue
		}
		for _, w := range uncovered(m, rg) {
			n, err := p.verifyAway(ctx, span{max(w.from, from), w.to}, found)
			bytes += n
			if err != nil {
				return bytes, err
			}
		}
	}
	return bytes, nil
}

// verifyAway reads a part of a range from the stores that hold it.
func (p *Partition) verifyAway(ctx context.Context, w span, found func(d storage.Damage, what string)) (bytes int64, err error) {
	for at := w.from; at < w.to; {
		got, err := p.h.fetchPage(ctx, p.id, at, w.to, false)
		damaged, is := errors.AsType[*storage.Damage](err)
		away, gone := errors.AsType[*AwayError](err)
		switch {
		case err == nil:
			bytes += int64(len(got.data))
			at = got.end
		case is:
			found(*damaged, damaged.Err.Error())
			p.SawDamage(*damaged)
			at = damaged.To
		case gone:
			found(storage.Damage{From: at, To: w.to, File: "broker " + strings.Join(away.Brokers, " and ")}, "not verified: "+away.Error())
			at = w.to
		default:
			return bytes, fmt.Errorf("verify %s: %w", p.name(), err)
		}
	}
	return bytes, nil
}

// VerifyCold reads from an offset on what the cold tier has of a partition as the
// metadata have it, every batch with its CRCs, epoch and place, and returns how many
// bytes that were. found is told of what is damaged or missing there. Where this store
// has the same offsets, the batches must be the same.
func (p *Partition) VerifyCold(ctx context.Context, m *state.Partition, from uint64, found func(d storage.Damage, what string)) (bytes int64, err error) {
	part := p.h.part(p.id)
	if part == nil {
		return 0, nil
	}
	here := p.log.Reader(from)
	defer here.Close()
	for _, w := range covered(m) {
		r := part.Reader(max(w.From, from, m.LogStart))
		for r.Offset() < w.To && err == nil {
			var n int64
			n, err = p.verifyNext(ctx, r, here, found)
			bytes += n
		}
		r.Close()
		if err != nil {
			return bytes, fmt.Errorf("verify what the cold tier has of %s: %w", p.name(), err)
		}
	}
	return bytes, nil
}

// verifyNext reads on in the cold tier, and passes what is wrong there or belongs to no range.
func (p *Partition) verifyNext(ctx context.Context, r *fetch.Reader, here *storage.Reader, found func(d storage.Damage, what string)) (int64, error) {
	at := r.Offset()
	v, err := r.Next(ctx, pageBytes)
	damaged, is := errors.AsType[*storage.Damage](err)
	missing, gone := errors.AsType[*fetch.Missing](err)
	trimmed, given := errors.AsType[*storage.Trimmed](err)
	switch {
	case err == nil:
		defer v.Release()
		if d := differs(here, v); d != nil {
			found(*d, d.Err.Error())
		}
		return int64(len(v.Data)), nil
	case is:
		found(*damaged, damaged.Err.Error())
		r.Seek(damaged.To)
	case given: // meanwhile
		r.Seek(trimmed.LogStart)
	case gone:
		to := p.pieceEnd(at)
		found(storage.Damage{From: at, To: to, File: missing.Key}, "the object is missing: "+missing.Err.Error())
		r.Seek(to)
	case errors.Is(err, fetch.ErrUncovered): // no range holds it
		r.Seek(p.pieceEnd(at))
	default:
		return 0, err
	}
	return 0, nil
}

// pieceEnd is where the piece of the catalog ends that holds an offset, or where the next one begins.
func (p *Partition) pieceEnd(at uint64) uint64 {
	m := p.h.cfg.Meta.View().Partition(p.id.Topic, p.id.Partition)
	if m == nil {
		return math.MaxUint64
	}
	if s, ok := m.Catalog.Find(at); ok {
		return s.End
	}
	if g, ok := m.Catalog.Page(at); ok {
		return g.End
	}
	return m.Catalog.Room(at)
}

// differs compares batches of the cold tier with those that the log has of the same
// offsets, as far as it has them: an offset has one value, in every tier (R19).
func differs(here *storage.Reader, cold storage.View) *storage.Damage {
	rest := batch.Batch(cold.Data)
	here.Seek(cold.Base)
	for len(rest) > 0 {
		v, err := here.Next(len(rest))
		if err != nil {
			return nil
		}
		n := min(len(v.Data), len(rest))
		same := v.Base == rest.Base() && bytes.Equal(v.Data[:n], rest[:n])
		v.Release()
		if !same {
			return &storage.Damage{From: cold.Base, To: cold.End, File: "cold tier", Err: errors.New("the tiers hold different batches of the same offsets")}
		}
		rest = rest[n:]
	}
	return nil
}
