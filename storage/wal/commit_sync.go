package wal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/danubemq/danube/storage/journal"
)

// sync makes the round durable: the journal takes the small parts, the files of
// large ones are synced themselves, side by side.
func (r *round) sync() error {
	if len(r.parts) == 0 {
		return nil
	}
	if err := r.chooseJournal(); err != nil {
		return err
	}
	direct := 0
	for i := range r.parts {
		p := &r.parts[i]
		if p.direct = r.journal == nil || p.size >= r.direct; p.direct {
			direct++
		}
	}
	if direct < len(r.parts) {
		switch err := r.writeJournal(); {
		case errors.Is(err, journal.ErrSpace):
			direct = len(r.parts)
			for i := range r.parts {
				r.parts[i].direct = true
			}
		case err != nil:
			return err
		}
	}
	began := time.Now()
	var err error
	switch {
	case direct == 0:
		err = r.journal.Sync()
	case direct == 1 && len(r.parts) == 1:
		err = r.syncAhead()
	case direct == len(r.parts):
		err = r.syncDirect()
	default:
		var wg sync.WaitGroup
		var jerr error
		wg.Go(func() { jerr = r.journal.Sync() })
		err = r.syncDirect()
		wg.Wait()
		err = errors.Join(err, jerr)
	}
	if err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	r.tier.metrics.sync.Observe(time.Since(began).Seconds())
	return nil
}

// chooseJournal makes the journal when a round has its first use for it.
func (r *round) chooseJournal() error {
	t := r.tier
	now := t.config.Now()
	if r.journal != nil || now.Before(r.retry) {
		return nil
	}
	if !slices.ContainsFunc(r.parts, func(p part) bool { return p.size < r.direct }) {
		return nil
	}
	j, err := journal.Create(t.config.FS, t.home().Journal(), t.config.Store, t.config.JournalBytes)
	if isNoSpace(err) {
		r.retry = now.Add(journalRetry) // until then rounds sync their files
		return nil
	}
	if err != nil {
		return err
	}
	r.journal = j
	t.mu.Lock()
	t.checkpoint.journal = j
	t.mu.Unlock()
	return nil
}

// writeJournal writes the small parts as one frame. The files are noted as
// covered by it before a byte is written.
func (r *round) writeJournal() error {
	r.frame.Reset()
	for i := range r.parts {
		if p := &r.parts[i]; !p.direct {
			r.frame.Add(journal.Piece{
				ID: p.log.id, Base: p.file.Base, Epoch: p.file.Epoch, Pos: p.pos,
				Header: p.file.header[:p.head], Bufs: r.bufs[p.from:p.to],
			})
		}
	}
	return r.journal.Put(&r.frame, r.covered)
}

// noteCovered notes that the journal covers the small parts from a span on.
func (r *round) noteCovered(use uint64) {
	t := r.tier
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range r.parts {
		if p := &r.parts[i]; !p.direct {
			t.checkpoint.add(p.file, use)
		}
	}
}

// syncDirect syncs the files of the large parts, and anchors them.
func (r *round) syncDirect() error {
	var one [1]*file
	list := one[:0]
	for i := range r.parts {
		if p := &r.parts[i]; p.direct {
			list = append(list, p.file)
		}
	}
	return r.tier.settle(list)
}
