package wal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/danubemq/danube/protocol/batch"
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
		case errors.Is(err, errJournalSpace):
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
		err = r.journal.file.Datasync()
	case direct == 1 && len(r.parts) == 1:
		err = r.syncAhead()
	case direct == len(r.parts):
		err = r.syncDirect()
	default:
		var wg sync.WaitGroup
		var jerr error
		wg.Go(func() { jerr = r.journal.file.Datasync() })
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
	j, err := createJournal(t.config.FS, t.home().Journal(), t.config.Store, t.config.JournalBytes)
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
	j := r.journal
	r.tier.journalMu.Lock()
	defer r.tier.journalMu.Unlock()
	j.number++
	r.frame = beginFrame(r.frame[:0], j.nonce, j.number)
	r.vec = append(r.vec[:0], nil)
	data := int64(0)
	for i := range r.parts {
		p := &r.parts[i]
		if p.direct {
			continue
		}
		if p.head > 0 {
			r.vec = append(r.vec, p.file.header)
		}
		bufs := r.bufs[p.from:p.to]
		r.vec = append(r.vec, bufs...)
		r.frame = appendEntry(r.frame, entry{
			id: p.log.id, base: p.file.base, epoch: p.file.epoch, pos: p.pos,
			length: uint32(p.size), head: uint32(p.head), digest: digestOf(p.file.header[:p.head], bufs),
		})
		data += int64(p.size)
	}
	endFrame(r.frame, data)
	return r.putFrame(data)
}

func digestOf(header []byte, bufs [][]byte) uint32 {
	digest := batch.Checksum(header)
	for _, buf := range bufs {
		for b := batch.Batch(buf); len(b) > 0; b = b[b.Len():] {
			digest = updateDigest(digest, b)
		}
	}
	return digest
}

// putFrame writes r.frame and the data behind it in r.vec[1:].
func (r *round) putFrame(data int64) error {
	j := r.journal
	n := int64(len(r.frame)) + data
	pos, use, err := j.place(n)
	if err != nil {
		j.number--
		return err
	}
	if pad := n % journalBlock; pad > 0 {
		r.vec = append(r.vec, r.zeros[:journalBlock-pad])
	}
	r.vec[0] = r.frame
	t := r.tier
	t.mu.Lock()
	for i := range r.parts {
		if p := &r.parts[i]; !p.direct {
			t.checkpoint.add(p.file, use)
		}
	}
	t.mu.Unlock()
	err = j.file.WriteVec(r.vec, pos)
	clear(r.vec)
	if isNoSpace(err) { // a file system that writes every block anew
		return errJournalSpace
	}
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
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
