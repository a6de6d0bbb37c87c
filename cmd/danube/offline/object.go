package offline

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold/bundle"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/segment"
)

// AllPieces stands for every piece of a cut.
const AllPieces = -1

// Cut is a cut of a broker as it is printed: segment dump and verify -o json.
type Cut struct {
	File        string     `json:"file"`
	Size        int64      `json:"size"`
	Cluster     string     `json:"cluster"`
	Store       string     `json:"store"`
	Incarnation uint64     `json:"incarnation"`
	Number      uint64     `json:"number"`
	Created     string     `json:"created"`
	Pieces      []CutPiece `json:"pieces"`
	Problems    []Problem  `json:"problems"`
}

// CutPiece is a segment in a cut.
type CutPiece struct {
	Piece     int    `json:"piece"` // what --piece takes
	TopicID   string `json:"topic_id"`
	Partition uint32 `json:"partition"`
	Start     uint64 `json:"start"`
	End       uint64 `json:"end"`
	Epoch     uint64 `json:"epoch"`
	Position  int64  `json:"position"`
	Bytes     int64  `json:"bytes"`
	CRC       string `json:"crc"`
}

// Page is a page of a catalog as it is printed.
type Page struct {
	File      string        `json:"file"`
	Size      int64         `json:"size"`
	TopicID   string        `json:"topic_id"`
	Partition uint32        `json:"partition"`
	Segments  []PageSegment `json:"segments"`
}

// PageSegment is a segment that a page lists.
type PageSegment struct {
	Start     uint64 `json:"start"`
	End       uint64 `json:"end"`
	Key       string `json:"key"` // below the prefix of the store
	Position  int64  `json:"position"`
	Bytes     int64  `json:"bytes"`
	CRC       string `json:"crc"`
	FirstTime string `json:"first_time"`
	LastTime  string `json:"last_time"`
}

// contents are what a source was found to hold: a cut, a page, or, both nil, a segment.
type contents struct {
	cut  *bundle.Index
	page *catalog.Content
}

// look tells what a source holds by its end and its beginning. It reads no more than that, the whole of a page aside.
func (s *Source) look() (c contents, err error) {
	const closing = 8
	var head, tail [closing]byte
	if s.Size >= closing {
		_, err = s.at.ReadAt(tail[:], s.Size-closing)
		if err == nil || errors.Is(err, io.EOF) {
			_, err = s.at.ReadAt(head[:], 0)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return c, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	switch {
	case s.cut || bundle.IsCut(tail[:]):
		x, err := bundle.Read(s.at, s.Size)
		if err != nil {
			return c, fmt.Errorf("%s at %d: %w", s.Name, s.Size, err)
		}
		return contents{cut: &x}, nil
	case catalog.IsPage(head[:]):
		if s.Size > mostPage {
			return c, fmt.Errorf("%s: a page of %d bytes", s.Name, s.Size)
		}
		b := make([]byte, s.Size)
		if n, err := s.at.ReadAt(b, 0); n < len(b) {
			return c, fmt.Errorf("%s: %w", s.Name, err)
		}
		page, err := catalog.DecodePage(b)
		if err != nil {
			return c, fmt.Errorf("%s at 0: %w", s.Name, err)
		}
		return contents{page: &page}, nil
	}
	return c, nil
}

// mostPage bounds the length of a page that is read.
const mostPage = 16 << 20

// pick returns the piece of a cut that is asked for.
func (s *Source) pick(x *bundle.Index, n int) (bundle.Piece, error) {
	if n < 0 || n >= len(x.Pieces) {
		return bundle.Piece{}, fail.Usagef("%s has %s: there is no piece %d", s.Name, render.Plural(len(x.Pieces), "piece"), n)
	}
	return x.Pieces[n], nil
}

// noPieces refuses a choice among the pieces of what has none.
func (s *Source) noPieces(piece int) error {
	if piece == AllPieces {
		return nil
	}
	return fail.Usagef("%s is no cut: it has no pieces to choose from", s.Name)
}

func (s *Source) printedCut(x *bundle.Index) *Cut {
	c := &Cut{
		File: s.Name, Size: s.Size, Cluster: hex.EncodeToString(x.Cluster[:]), Store: hex.EncodeToString(x.Store[:]),
		Incarnation: x.Incarnation, Number: x.Number, Created: render.Time(x.Created),
	}
	for i, p := range x.Pieces {
		c.Pieces = append(c.Pieces, CutPiece{
			Piece: i, TopicID: hex.EncodeToString(p.Topic[:]), Partition: p.Partition, Start: p.Start, End: p.End, Epoch: p.Epoch,
			Position: p.Position, Bytes: p.Bytes, CRC: fmt.Sprintf("%08x", p.CRC),
		})
	}
	return c
}

// verifyCut reads the segments of a cut and holds them against its index.
func (s *Source) verifyCut(x *bundle.Index) (*Cut, error) {
	c := s.printedCut(x)
	for i, p := range x.Pieces {
		rep, err := s.part(p.Position, p.Bytes).verify(p.Position)
		if err != nil {
			return nil, fmt.Errorf("piece %d: %w", i, err)
		}
		problem := func(format string, args ...any) {
			c.Problems = append(c.Problems, Problem{File: s.Name, At: p.Position, From: p.Start, To: p.End, What: fmt.Sprintf("piece %d: ", i) + fmt.Sprintf(format, args...)})
		}
		for _, q := range rep.Problems {
			q.What = fmt.Sprintf("piece %d: %s", i, q.What)
			c.Problems = append(c.Problems, q)
		}
		var tail [16]byte
		if n, err := s.at.ReadAt(tail[:], p.Position+p.Bytes-int64(len(tail))); n < len(tail) {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
		switch {
		case !rep.Sealed || rep.Header == nil:
			if len(rep.Problems) == 0 {
				problem("not a whole segment")
			}
		case rep.Header.TopicID != c.Pieces[i].TopicID || rep.Header.Partition != p.Partition || rep.Header.Cluster != c.Cluster:
			problem("segment of %s:%d of cluster %s", rep.Header.TopicID, rep.Header.Partition, rep.Header.Cluster)
		case rep.Facts.First > p.Start || rep.Facts.End != p.End || segment.Sum(tail[:]) != p.CRC:
			problem("offsets %s with CRC %08x, the index says %s with %08x", render.Offsets(rep.Facts.First, rep.Facts.End), segment.Sum(tail[:]), render.Offsets(p.Start, p.End), p.CRC)
		}
	}
	return c, nil
}

// Found are the problems of the cut.
func (c *Cut) Found() []Problem { return c.Problems }

// Print prints the cut for a person.
func (c *Cut) Print(w io.Writer) error {
	if err := c.list(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	return printProblems(w, c.Problems)
}

func (c *Cut) list(w io.Writer) error {
	fmt.Fprintf(w, "file      %s, %s, cut %d of run %d\nstore     %s\ncluster   %s\ncreated   %s\n\n", c.File, render.Size(c.Size), c.Number, c.Incarnation, c.Store, c.Cluster, c.Created)
	t := render.Table{Header: []string{"piece", "topic", "partition", "offsets", "epoch", "at", "bytes", "crc"}}
	for _, p := range c.Pieces {
		t.Add(fmt.Sprint(p.Piece), p.TopicID, fmt.Sprint(p.Partition), render.Offsets(p.Start, p.End), fmt.Sprintf("%x", p.Epoch), fmt.Sprint(p.Position), fmt.Sprint(p.Bytes), p.CRC)
	}
	return t.Print(w)
}

func (s *Source) printedPage(c *catalog.Content) *Page {
	p := &Page{File: s.Name, Size: s.Size, TopicID: hex.EncodeToString(c.Topic[:]), Partition: c.Partition}
	for _, seg := range c.Segments {
		p.Segments = append(p.Segments, PageSegment{
			Start: seg.Start, End: seg.End, Key: keys.Of(catalog.NewName(c.Topic, c.Partition, seg.Object, seg.Start, seg.End)), Position: seg.Position, Bytes: seg.Bytes,
			CRC: fmt.Sprintf("%08x", seg.CRC), FirstTime: render.Time(seg.FirstTime), LastTime: render.Time(seg.LastTime),
		})
	}
	return p
}

// Found are the problems of the page: one that has any cannot be read.
func (p *Page) Found() []Problem { return nil }

// Print prints the page for a person.
func (p *Page) Print(w io.Writer) error {
	fmt.Fprintf(w, "file      %s, %s, page of a catalog\ntopic     %s:%d\n\n", p.File, render.Size(p.Size), p.TopicID, p.Partition)
	t := render.Table{Header: []string{"offsets", "bytes", "crc", "first", "last", "object"}}
	for _, s := range p.Segments {
		t.Add(render.Offsets(s.Start, s.End), fmt.Sprint(s.Bytes), s.CRC, s.FirstTime, s.LastTime, s.Key)
	}
	return t.Print(w)
}
