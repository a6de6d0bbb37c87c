package history

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage"
)

// VerifyElsewhere reads from an offset on what only other stores hold of a
// partition as the metadata have it, and returns how many bytes that were. found
// is told of damage there, and of what is not verified because its stores are
// away. ErrStale: what the partition consists of has changed meanwhile.
func (p *Partition) VerifyElsewhere(ctx context.Context, m *state.Partition, from uint64, found func(d storage.Damage, what string)) (bytes int64, err error) {
	for i := range m.Ranges {
		rg := &m.Ranges[i]
		if !lacks(rg, p.h.cfg.Self().Store) {
			continue
		}
		for at := max(rg.Start, from); at < rg.End; {
			got, err := p.h.fetchPage(ctx, p.id, at, rg.End, false)
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
				found(storage.Damage{From: at, To: rg.End, File: "broker " + strings.Join(away.Brokers, " and ")}, "not verified: "+away.Error())
				at = rg.End
			default:
				return bytes, fmt.Errorf("verify %s: %w", p.name(), err)
			}
		}
	}
	return bytes, nil
}
