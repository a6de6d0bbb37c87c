package offline

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/storage/segment"
)

// Segment is what a check of one file found: segment verify -o json.
type Segment struct {
	File     string    `json:"file"`
	Size     int64     `json:"size"`
	Sealed   bool      `json:"sealed"`
	Header   *Header   `json:"header"`
	Facts    Facts     `json:"facts"`
	Problems []Problem `json:"problems"`
}

// Problem is something that is wrong with a file.
type Problem struct {
	File string `json:"file"`
	At   int64  `json:"at"`
	From uint64 `json:"from"`
	To   uint64 `json:"to"`
	What string `json:"what"`
}

// Header is the header of a segment as it is printed.
type Header struct {
	Topic      string `json:"topic"`
	TopicID    string `json:"topic_id"`
	Partition  uint32 `json:"partition"`
	Base       uint64 `json:"base"`
	FirstEpoch uint64 `json:"first_epoch"`
	Epoch      uint64 `json:"epoch"`
	History    uint16 `json:"history"`
	Cluster    string `json:"cluster"`
	Store      string `json:"store"`
	Created    string `json:"created"`
}

// Facts is what the footer says, or what was counted where there is none.
type Facts struct {
	First     uint64 `json:"first"`
	End       uint64 `json:"end"` // behind the last message
	FirstTime string `json:"first_time,omitempty"`
	LastTime  string `json:"last_time,omitempty"`
	Batches   uint64 `json:"batches"`
	Messages  uint64 `json:"messages"`
	Marks     uint64 `json:"marks"`
	DataEnd   int64  `json:"data_end"`
	CRC       string `json:"crc"`
}

// printedHeader is nil where the header is lost.
func printedHeader(c segment.Contents) *Header {
	if c.HeaderErr != nil {
		return nil
	}
	h := c.Header
	return &Header{
		Topic: h.Topic, TopicID: hex.EncodeToString(h.TopicID[:]), Partition: h.Partition, Base: h.Base, FirstEpoch: h.FirstEpoch,
		Epoch: h.Epoch, History: h.History, Cluster: hex.EncodeToString(h.Cluster[:]), Store: hex.EncodeToString(h.Store[:]),
		Created: render.Time(h.Created),
	}
}

func printedFacts(f segment.Facts) Facts {
	p := Facts{First: f.First, End: f.End, Batches: f.Batches, Messages: f.Messages, Marks: f.Marks, DataEnd: f.DataEnd,
		CRC: fmt.Sprintf("%08x", f.DataCRC)}
	if f.Messages > 0 {
		p.FirstTime, p.LastTime = render.Time(f.FirstTime), render.Time(f.LastTime)
	}
	return p
}

// Report is what a check found.
type Report interface {
	Print(w io.Writer) error
	Found() []Problem
}

// Verify reads the source to its end: a segment, a page of a catalog, a cut with all its pieces or one of them.
func (s *Source) Verify(piece int) (Report, error) {
	c, err := s.look()
	if err != nil {
		return nil, err
	}
	switch {
	case c.cut != nil && piece == AllPieces:
		return s.verifyCut(c.cut)
	case c.cut != nil:
		p, err := s.pick(c.cut, piece)
		if err != nil {
			return nil, err
		}
		return s.part(p.Position, p.Bytes).verify(p.Position)
	}
	if err := s.noPieces(piece); err != nil {
		return nil, err
	}
	if c.page != nil {
		return s.printedPage(c.page), nil
	}
	return s.verify(0)
}

// verify reads a segment, which stands at a position of its object.
func (s *Source) verify(at int64) (*Segment, error) {
	rep, err := segment.Verify(s.at, s.Size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.Name, err)
	}
	out := &Segment{File: s.Name, Size: s.Size, Sealed: rep.Footer != nil, Header: printedHeader(rep.Contents), Facts: printedFacts(rep.Facts)}
	for _, p := range rep.Problems {
		out.Problems = append(out.Problems, Problem{File: s.Name, At: at + p.At, From: p.From, To: p.To, What: p.Err.Error()})
	}
	return out, nil
}

// verifyFile reads the segment file name to its end.
func verifyFile(name string) (*Segment, error) {
	s, err := openFile(name)
	if err != nil {
		return nil, err
	}
	rep, err := s.verify(0)
	return rep, errors.Join(err, s.Close())
}

// Found are the problems of the segment.
func (r *Segment) Found() []Problem { return r.Problems }

// Print prints the report for a person.
func (r *Segment) Print(w io.Writer) error {
	if r.Header != nil {
		printHeader(w, r.Header)
	}
	state := "not sealed"
	if r.Sealed {
		state = "sealed"
	}
	fmt.Fprintf(w, "file      %s, %s, %s\ncontent   %s, offsets %s\n", r.File, render.Size(r.Size), state,
		render.Plural(r.Facts.Messages, "message"), render.Offsets(r.Facts.First, r.Facts.End))
	return printProblems(w, r.Problems)
}

func printProblems(w io.Writer, problems []Problem) error {
	if len(problems) == 0 {
		_, err := fmt.Fprintln(w, "no problems")
		return err
	}
	t := render.Table{Header: []string{"file", "at", "offsets", "problem"}}
	for _, p := range problems {
		span := ""
		if p.From < p.To {
			span = render.Offsets(p.From, p.To)
		}
		t.Add(p.File, fmt.Sprint(p.At), span, p.What)
	}
	return t.Print(w)
}

func printHeader(w io.Writer, h *Header) {
	fmt.Fprintf(w, "topic     %s:%d (%s)\nbase      %d\nepoch     %x\nstore     %s\ncluster   %s\ncreated   %s\n",
		h.Topic, h.Partition, h.TopicID, h.Base, h.Epoch, h.Store, h.Cluster, h.Created)
}
