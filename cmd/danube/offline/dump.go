package offline

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/storage/segment"
)

// stretch is one stretch of a segment as it is printed: a batch, or what is none.
type stretch struct {
	Kind     string `json:"kind"`
	At       int64  `json:"at"`
	Bytes    int64  `json:"bytes"`
	From     uint64 `json:"from"`
	To       uint64 `json:"to"`
	Epoch    uint64 `json:"epoch,omitempty"`
	Appended string `json:"append_time,omitempty"`
	Producer string `json:"producer,omitempty"`
	Session  uint32 `json:"session,omitempty"`
	Sequence uint64 `json:"sequence,omitempty"`
	Codec    string `json:"codec,omitempty"`
	Synced   uint64 `json:"synced,omitempty"`
	Error    string `json:"error,omitempty"`
}

func printedStretch(st segment.Stretch) stretch {
	kinds := map[segment.Kind]string{segment.Whole: "batch", segment.Damaged: "damaged", segment.Torn: "torn", segment.Zeros: "zeros", segment.Sealed: "footer"}
	p := stretch{Kind: kinds[st.Kind], At: st.At, Bytes: st.Len, From: st.From, To: st.To}
	if st.Err != nil {
		p.Error = st.Err.Error()
	}
	if b := st.Batch; b != nil {
		if b.Control() {
			p.Kind = "mark"
		}
		p.Epoch, p.Appended, p.Producer = b.Epoch(), render.Time(b.AppendTime()), fmt.Sprintf("%016x", b.Producer())
		p.Session, p.Sequence, p.Codec, p.Synced = b.Session(), b.Sequence(), b.Codec().String(), b.Synced()
	}
	return p
}

// Dump prints every batch of a segment, whole or not, the pieces of a cut or every batch of one of them, or what a page of a
// catalog lists: as one JSON document, or for a person. A source in which there is nothing of a segment is an error, after
// what was found in it.
func (s *Source) Dump(out io.Writer, piece int, asJSON bool) error {
	c, err := s.look()
	if err != nil {
		return fmt.Errorf("dump segment: %w", err)
	}
	switch {
	case c.cut != nil && piece == AllPieces:
		cut := s.printedCut(c.cut)
		if asJSON {
			return render.JSON(out, cut)
		}
		return cut.list(out)
	case c.cut != nil:
		p, err := s.pick(c.cut, piece)
		if err != nil {
			return err
		}
		return s.part(p.Position, p.Bytes).dump(out, p.Position, asJSON)
	}
	if err := s.noPieces(piece); err != nil {
		return err
	}
	if c.page != nil {
		page := s.printedPage(c.page)
		if asJSON {
			return render.JSON(out, page)
		}
		return page.Print(out)
	}
	return s.dump(out, 0, asJSON)
}

// dump prints a segment, which stands at a position of its object.
func (s *Source) dump(out io.Writer, at int64, asJSON bool) (err error) {
	w := bufio.NewWriterSize(out, 64<<10)
	if asJSON {
		err = s.dumpJSON(w, at)
	} else {
		err = s.dumpText(w, at)
	}
	if err = errors.Join(err, w.Flush()); err != nil {
		return fmt.Errorf("dump segment %s: %w", s.Name, err)
	}
	return nil
}

// dumpJSON writes one document, stretch by stretch: a segment may hold millions.
func (s *Source) dumpJSON(w io.Writer, at int64) error {
	file, err := json.Marshal(s.Name)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "{\"file\": %s, \"size\": %d, \"stretches\": [", file, s.Size)
	sep := "\n  "
	batches := 0
	c, err := segment.Dump(s.at, s.Size, func(st segment.Stretch) error {
		if st.Batch != nil {
			batches++
		}
		st.At += at
		b, err := json.Marshal(printedStretch(st))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(w, "%s%s", sep, b)
		sep = ",\n  "
		return err
	})
	if err != nil {
		return err
	}
	header, err := json.Marshal(printedHeader(c))
	if err != nil {
		return err
	}
	footer := []byte("null")
	if c.Footer != nil {
		if footer, err = json.Marshal(printedFacts(c.Footer.Facts)); err != nil {
			return err
		}
	}
	if _, err := fmt.Fprintf(w, "\n], \"header\": %s, \"footer\": %s}\n", header, footer); err != nil {
		return err
	}
	return isSegment(c, batches)
}

// isSegment is an error of a file in which nothing of a segment was found.
func isSegment(c segment.Contents, batches int) error {
	if c.HeaderErr != nil && c.Footer == nil && batches == 0 {
		return errors.New("not a segment: no header, no batch and no footer in it")
	}
	return nil
}

func (s *Source) dumpText(w io.Writer, at int64) error {
	if h, n, err := segment.ReadHeader(s.at); err == nil {
		c := segment.Contents{Header: h, HeaderSize: n}
		printHeader(w, printedHeader(c))
	} else {
		fmt.Fprintf(w, "header    %v\n", err)
	}
	fmt.Fprintf(w, "file      %s, %s\n\n", s.Name, render.Size(s.Size))
	const columns = "%-8s %12v %9v  %-25s %-18s %-24s %-5s %s\n"
	fmt.Fprintf(w, columns, "KIND", "AT", "BYTES", "OFFSETS", "EPOCH", "APPENDED", "CODEC", "PRODUCER/SESSION/SEQUENCE")
	batches := 0
	c, err := segment.Dump(s.at, s.Size, func(st segment.Stretch) error {
		st.At += at
		p := printedStretch(st)
		detail, epoch := p.Error, ""
		if st.Batch != nil {
			batches++
			epoch = fmt.Sprintf("%x", p.Epoch)
			detail = fmt.Sprintf("%s/%08x/%d", p.Producer, p.Session, p.Sequence)
		}
		span := ""
		if p.From < p.To {
			span = render.Offsets(p.From, p.To)
		}
		_, err := fmt.Fprintf(w, columns, p.Kind, p.At, p.Bytes, span, epoch, p.Appended, p.Codec, detail)
		return err
	})
	if err == nil {
		err = isSegment(c, batches)
	}
	if err != nil || c.Footer == nil {
		return err
	}
	f := c.Footer.Facts
	_, err = fmt.Fprintf(w, "\nsealed: %s in %s, offsets %s\n", render.Plural(f.Messages, "message"), batchCount(f.Batches), render.Offsets(f.First, f.End))
	return err
}

func batchCount(n uint64) string {
	if n == 1 {
		return "1 batch"
	}
	return render.Grouped(n) + " batches"
}
