package wal

import (
	"context"
	"errors"
	"fmt"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/excerpt"
	"github.com/danubemq/danube/storage/segment"
	"github.com/danubemq/danube/storage/sessions"
	"github.com/danubemq/danube/storage/volume"
)

// place is where a batch lies in the files.
type place struct {
	offset uint64
	file   *file
	at     int64
	time   int64 // its append time, ms; 0: not known yet
}

// Cut is a whole segment of the messages from offset from on, for the cold tier
// (R11): of one epoch, and only of what is committed. It ends at to, behind most
// bytes of batches, or where the epoch ends or a hole begins, but it has one batch at least.
// A sealed file that is just what is asked for comes as it is; else header and
// footer are made anew, and the batches stay where they are: the segment can be
// read, again and again the same bytes, until the log gives them up or is closed.
// Errors: ErrEnd, ErrClosed, *Gap, *Trimmed, *InCold, *Elsewhere, *Damage.
func (l *Log) Cut(ctx context.Context, from, to uint64, most int64) (*excerpt.Segment, error) {
	s, at, err := l.locate(from)
	if err != nil {
		return nil, err
	}
	to = min(to, s.Stop)
	if s.file.Base == from {
		if whole := s.file.whole(to, most+at.at); whole != nil {
			return whole, nil
		}
	}
	var table sessions.Table
	header := l.header(0, s.file.Epoch)
	header.Created = l.tier.config.Now().UnixMilli()
	m := excerpt.New(excerpt.Config{Header: header, From: from, To: to, Most: most, Visit: table.Record})
	last, held := s.file, s.file // looked at last; that the last batch is in
	for more := true; more && m.Next() < to; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if m.Next() > from {
			if s, at, err = l.locate(m.Next()); err != nil || s.file.Epoch != last.Epoch {
				break // what was gathered is a segment
			}
			last = s.file
		}
		more, err = m.Add(excerpt.File{At: last, From: at.at, Size: s.Size, Base: last.Base, Epoch: last.Epoch})
		switch {
		case err != nil && last.Gone.Load():
			return nil, volume.ErrReleased
		case err != nil:
			return nil, &Damage{From: from, To: s.After, File: last.Handle.Name, At: at.at, Err: err}
		case m.Next() == at.offset:
			more = false // nothing of it was in there, or wanted
		default:
			held = last
		}
	}
	stored, err := l.producersAt(m.Next(), held, &table)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	l.files.place = place{offset: m.Next(), file: held, at: m.Behind()} // where the next one begins, unless in another file
	l.mu.Unlock()
	return m.Finish(stored)
}

// header is that of a segment of the log.
func (l *Log) header(base, epoch uint64) segment.Header {
	cluster, _ := l.tier.config.Header()
	return segment.Header{
		Cluster: cluster, Store: l.tier.config.Store, TopicID: l.id.Topic, Topic: l.topic, History: uint16(epoch >> 48),
		Partition: l.id.Partition, Epoch: epoch, FirstEpoch: epoch, Base: base,
	}
}

// whole is the file as it stands, nil unless it is sealed, without a hole, and its
// batches end by to and within most bytes.
func (f *file) whole(to uint64, most int64) *excerpt.Segment {
	f.log.mu.Lock()
	fits := f.sealed && f.end <= to && f.size <= most
	f.log.mu.Unlock()
	if !fits {
		return nil
	}
	total, err := f.Size()
	if err != nil {
		return nil
	}
	s, err := excerpt.Whole(f, total)
	if err != nil || s.First != f.Base || s.Epochs[0].Epoch != f.Epoch || s.End > to {
		return nil // it is looked at batch by batch
	}
	return s
}

// producersAt is the producer table of the log as it stood at end, which lies in
// file last or behind it; cut has what the segment that ends there holds. A file
// that ends there has it in its footer. Else it is the log's own without what
// came later: of a session that has stored many batches since, that is less than
// was remembered then, but all that a client can send again.
func (l *Log) producersAt(end uint64, last *file, cut *sessions.Table) (*segment.Producers, error) {
	l.mu.Lock()
	sealed := last.sealed && last.end == end
	if !sealed {
		now := l.producers.Stored(end)
		l.mu.Unlock()
		cut.Merge(now)
		return cut.Stored(end), nil
	}
	l.mu.Unlock()
	size, err := last.Size()
	if err != nil {
		return nil, fmt.Errorf("read segment: %w", err)
	}
	footer, err := segment.ReadFooter(last, size)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", last.Handle.Name, err)
	}
	return footer.Producers()
}

// Backlog is what a log holds from an offset on that the cold tier is to get.
type Backlog struct {
	End    uint64 // committed end
	Bytes  int64  // of what lies below it, about
	Oldest int64  // append time of the batch that holds the offset, ms since 1970; 0: there is none
	// Sealed is the end of the file that holds the offset, SealedBytes what lies
	// in front of it, rather too much than too little: one segment. Sealed is the
	// offset itself while that file is written to.
	Sealed      uint64
	SealedBytes int64
}

// Backlog tells what there is from an offset on, from what is known; once for
// each offset it may read a block of a file to learn when the batch there was
// appended. Errors: as of [Log.Cut], but for ErrEnd.
func (l *Log) Backlog(from uint64) (Backlog, error) {
	none := Backlog{End: from, Sealed: from}
	for looked := false; ; looked = true {
		b, known, err := l.backlog(from)
		if errors.Is(err, ErrEnd) {
			return none, nil
		}
		if err != nil || known || looked {
			return b, err
		}
		if _, _, err := l.locate(from); err != nil {
			return none, err
		}
	}
}

// backlog is Backlog of what is known. False: the file or the batch has to be read first.
func (l *Log) backlog(from uint64) (b Backlog, known bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s, err := l.inFiles(from)
	if err != nil {
		return b, false, err
	}
	f := s.file
	b = Backlog{End: l.ends.committed, Sealed: from}
	p := &l.files.place
	if p.file != f || p.offset != from {
		*p = place{offset: from, file: f, at: f.Position(from)}
	}
	if c := l.tail.Find(from); p.time == 0 && c != nil && len(c.Committed()) > 0 {
		p.time = batch.Batch(c.Committed()[locate(c.Committed(), from):]).AppendTime()
	}
	b.Oldest = p.time
	if f != l.files.current {
		b.Sealed, b.SealedBytes = min(f.end, s.Stop), f.size-p.at
	}
	b.Bytes = f.size - p.at
	for i := len(l.files.list) - 1; i >= 0 && l.files.list[i] != f; i-- {
		b.Bytes += l.files.list[i].size
	}
	return b, f.known && b.Oldest != 0 && b.Sealed >= from, nil
}

// locate finds the batch that holds an offset in the files, and remembers it.
func (l *Log) locate(offset uint64) (source, place, error) {
	l.mu.Lock()
	s, err := l.inFiles(offset)
	p := l.files.place
	l.mu.Unlock()
	if err != nil {
		return s, p, err
	}
	if s.Size < 0 {
		if s.Size, err = s.file.load(s.After); err != nil {
			return s, p, err
		}
	}
	if p.file != s.file || p.offset != offset {
		p = place{offset: offset, file: s.file, at: s.file.Position(offset)}
	}
	if p.at, p.time, err = s.file.Find(offset, p.at, s.Bounds); err != nil {
		return s, p, err
	}
	l.mu.Lock()
	l.files.place = p
	l.mu.Unlock()
	return s, p, nil
}
