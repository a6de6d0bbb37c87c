package recovery

import (
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/segment"
)

// Found is what a walk over all bytes of a segment file found.
type Found struct {
	Footer  *segment.Footer    // index and bounds of what may be read
	Sealed  bool               // the file ends with a whole footer
	Table   *segment.Producers // of a file that is sealed
	Size    int64              // position behind the last good batch
	End     uint64             // offset behind it
	Time    int64              // largest append time
	Total   int64              // bytes of the file
	Damaged []Damage
	Torn    error  // what is wrong behind Size, nil when nothing is there
	Header  bool   // the header is whole
	Synced  uint64 // the log was synced up to here when the last of it was written
}

// Scan walks over a file, whole or not, and calls visit with each good batch in
// order; visit may be nil. What stands behind a bad place counts only when it,
// or something behind it, says that the log was synced beyond that place: then a
// synced batch has gone bad, and it is damage. Else the bad place is a write that
// was never finished, and what follows was in it too; found by a search, it may
// even be a piece of a message (R10).
func (p Place) Scan(h io.ReaderAt, total int64, visit func(batch.Batch)) (*Found, error) {
	out := &Found{Total: total, End: p.Base}
	header, at, err := p.Header(h)
	origin := segment.Origin{Base: p.Base, FirstEpoch: p.Epoch, Epoch: p.Epoch}
	var summary *segment.Summary
	switch {
	case err == nil:
		out.Header = true
		origin = header.Origin(at)
		raw := make([]byte, at)
		if _, err := h.ReadAt(raw, 0); err != nil {
			return nil, fmt.Errorf("read %s: %w", p.Name, err)
		}
		summary = segment.NewSummary(raw, p.Base)
	case !errors.Is(err, segment.ErrCorrupt):
		return nil, err
	}
	out.Size = origin.At
	s := scanState{name: p.Name, out: out, summary: summary, visit: visit, index: &segment.Footer{}}
	scan := segment.NewScanner(h, total, origin)
	for {
		x, err := scan.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("scan %s: %w", p.Name, err)
		}
		s.take(x)
	}
	s.finish()
	return out, nil
}

// scanState is a scan under way.
type scanState struct {
	name    string // of the file
	out     *Found
	summary *segment.Summary // nil once the file has damage
	index   *segment.Footer
	visit   func(batch.Batch)
	held    []heldBatch // not believed yet
	open    *Damage     // the damage in front of them
}

// heldBatch is a batch that counts only when something proves it.
type heldBatch struct {
	at    int64
	bytes batch.Batch
}

func (s *scanState) take(x segment.Stretch) {
	switch x.Kind {
	case segment.Whole:
		if s.open == nil {
			s.add(x.At, x.Batch)
			return
		}
		s.held = append(s.held, heldBatch{x.At, append(batch.Batch(nil), x.Batch[:batch.HeaderSize]...)})
		if x.Batch.Synced() > s.open.From {
			s.believe()
		}
	case segment.Damaged:
		d := Damage{From: x.From, To: x.To, File: s.name, At: x.At, Err: x.Err}
		if s.open != nil {
			s.open.To = max(s.open.To, d.To)
			return
		}
		s.open = &d
		if x.Len == 0 { // a whole batch follows that leaves offsets out: nothing was searched
			s.believe()
		}
	case segment.Torn, segment.Zeros:
		if s.open == nil {
			s.out.Torn = x.Err
		}
	case segment.Sealed:
		if s.open != nil && x.Footer != nil {
			s.believe()
		}
		if x.Footer != nil {
			s.seal(x.Footer)
		}
	}
}

// believe turns what was in doubt into damage with good batches behind it.
func (s *scanState) believe() {
	s.summary = nil
	if s.open.To > s.open.From {
		s.out.Damaged = append(s.out.Damaged, *s.open)
	}
	s.out.End = max(s.out.End, s.open.To)
	s.open = nil
	for _, h := range s.held {
		s.add(h.at, h.bytes)
	}
	s.held = nil
}

// add takes a good batch, of which the header alone may be there.
func (s *scanState) add(at int64, b batch.Batch) {
	if s.summary != nil {
		s.summary.Add(b)
	}
	f := s.index
	if n := len(f.Index); n == 0 || at-f.Index[n-1].At >= 64<<10 {
		f.Index = append(f.Index, segment.Entry{Offset: b.Base(), At: at, Time: b.AppendTime()})
	}
	last := &f.Index[len(f.Index)-1]
	last.Time = max(last.Time, b.AppendTime())
	out := s.out
	out.Time = max(out.Time, b.AppendTime())
	out.Size = at + int64(b.Len())
	out.End = max(out.End, b.End())
	out.Synced = max(out.Synced, b.Synced())
	if b.Control() {
		return
	}
	if f.Batches == 0 {
		f.First, f.FirstTime = b.Base(), b.AppendTime()
	}
	f.Batches++
	f.Messages += uint64(b.Count())
	if s.visit != nil {
		s.visit(b)
	}
}

func (s *scanState) seal(f *segment.Footer) {
	table, err := f.Producers()
	if err != nil {
		return // a footer that lies counts for nothing: the batches were all seen
	}
	s.out.Sealed, s.out.Table = true, table
}

func (s *scanState) finish() {
	out := s.out
	if s.open != nil {
		out.Torn = s.open.Err
	}
	if s.summary != nil {
		out.Footer = s.summary.Footer()
		return
	}
	f := s.index
	f.DataEnd, f.End, f.LastTime = out.Size, out.End, out.Time
	out.Footer = f
}
