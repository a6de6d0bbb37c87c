package gather

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/bundle"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/segment"
)

// Segment is a whole segment in the cold tier: an object, or a piece of a cut.
type Segment struct {
	Key     string // of the object
	Header  segment.Header
	Epochs  []segment.EpochStart
	Catalog catalog.Segment // what a catalog says of it
}

// Problem is an object, or a place in one, that is not what it should be.
type Problem struct {
	Key string
	At  int64 // position in the object
	Err error
}

func (p *Problem) Error() string { return fmt.Sprintf("%s at %d: %v", p.Key, p.At, p.Err) }

// Unwrap returns what is wrong.
func (p *Problem) Unwrap() error { return p.Err }

// headRead holds every header.
const headRead = 4096 + 256

// whole is the length up to which a cut is read in one request.
const whole = 16 << 20

// damage says whether an error of reading an object tells of its bytes, and not of the store or of this program.
func damage(err error) bool {
	return errors.Is(err, segment.ErrCorrupt) || errors.Is(err, bundle.ErrCorrupt) || errors.Is(err, cold.Corrupt)
}

// object is one that is being read.
type object struct {
	store *cold.Store
	info  cold.Info
	name  catalog.Name
}

// at is the object, for ranged reads.
func (o *object) at(ctx context.Context) io.ReaderAt { return o.store.At(ctx, o.info.Key, o.info.Size) }

// segments reads what is in the object. What is damaged is a problem; another error is one of the store.
func (o *object) segments(ctx context.Context) (list []Segment, problems []Problem, err error) {
	if o.name.Object.Kind == catalog.Cut {
		return o.pieces(ctx)
	}
	s, err := describe(o.at(ctx), o.info.Size)
	if err == nil {
		err = s.isNamed(o.name)
	}
	if err != nil {
		return nil, o.problem(0, err), o.fatal(err)
	}
	s.Key = o.info.Key
	s.Catalog.Object = o.name.Object
	s.Catalog.Start, s.Catalog.End = o.name.Start, o.name.End
	return []Segment{s}, nil, nil
}

// pieces reads the segments of a cut.
func (o *object) pieces(ctx context.Context) (list []Segment, problems []Problem, err error) {
	at := o.at(ctx)
	if o.info.Size <= whole {
		b := make([]byte, o.info.Size)
		if err := o.store.ReadAt(ctx, o.info.Key, b, 0); err != nil {
			return nil, o.problem(0, err), o.fatal(err)
		}
		at = bytes.NewReader(b)
	}
	x, err := bundle.Read(at, o.info.Size)
	if err == nil && (x.Store != o.name.Object.Store || x.Incarnation != o.name.Object.Incarnation || x.Number != o.name.Object.Number) {
		err = fmt.Errorf("%w: cut %d of run %d of store %x under another name", bundle.ErrCorrupt, x.Number, x.Incarnation, x.Store)
	}
	if err != nil {
		return nil, o.problem(0, err), o.fatal(err)
	}
	for _, p := range x.Pieces {
		s, err := describe(io.NewSectionReader(at, p.Position, p.Bytes), p.Bytes)
		if err == nil && s.Header.Cluster != x.Cluster {
			err = fmt.Errorf("%w: segment of cluster %x in a cut of %x", segment.ErrCorrupt, s.Header.Cluster, x.Cluster)
		}
		if err == nil && s.Catalog.CRC != p.CRC {
			err = fmt.Errorf("%w: CRC %08x, the index of the cut says %08x", segment.ErrCorrupt, s.Catalog.CRC, p.CRC)
		}
		if err == nil {
			err = s.isNamed(catalog.Name{Topic: p.Topic, Partition: p.Partition, Start: p.Start, End: p.End})
		}
		if err != nil {
			if err := o.fatal(err); err != nil {
				return nil, nil, err
			}
			problems = append(problems, o.problem(p.Position, err)...)
			continue
		}
		s.Key, s.Catalog.Position = o.info.Key, p.Position
		s.Catalog.Object = o.name.Object
		s.Catalog.Start, s.Catalog.End = p.Start, p.End
		list = append(list, s)
	}
	return list, problems, nil
}

// problem is an error as one of the object, none if the error is not of its bytes.
func (o *object) problem(at int64, err error) []Problem {
	if !damage(err) {
		return nil
	}
	return []Problem{{Key: o.info.Key, At: at, Err: err}}
}

// fatal is err, unless it is a problem of the object alone.
func (o *object) fatal(err error) error {
	if damage(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", o.info.Key, err)
}

// describe reads footer and header of a segment that fills r.
func describe(r io.ReaderAt, size int64) (Segment, error) {
	f, err := segment.ReadFooter(r, size)
	if err != nil {
		return Segment{}, err
	}
	head := make([]byte, min(size, headRead))
	if n, err := r.ReadAt(head, 0); n < len(head) {
		return Segment{}, fmt.Errorf("read segment header: %w", err)
	}
	h, n, err := segment.ParseHeader(head)
	if err != nil {
		return Segment{}, err
	}
	if crc := binary.LittleEndian.Uint32(head[n-4:]); crc != f.HeaderCRC {
		return Segment{}, fmt.Errorf("%w: footer of a segment with header CRC %08x, it is %08x", segment.ErrCorrupt, f.HeaderCRC, crc)
	}
	if f.End-f.First != f.Messages || f.Messages == 0 || len(f.Epochs) == 0 {
		return Segment{}, fmt.Errorf("%w: %d messages at offsets %d to %d", segment.ErrCorrupt, f.Messages, f.First, f.End)
	}
	return Segment{Header: h, Epochs: f.Epochs, Catalog: catalog.Segment{
		Start: f.First, End: f.End, Bytes: size, CRC: f.Sum(), FirstTime: f.FirstTime, LastTime: f.LastTime,
	}}, nil
}

// isNamed holds what a segment says of itself against its name: a copy under another name is none of that name.
func (s *Segment) isNamed(n catalog.Name) error {
	switch h := &s.Header; {
	case h.TopicID != n.Topic || h.Partition != n.Partition:
		return fmt.Errorf("%w: segment of %x:%d under the name of %x:%d", segment.ErrCorrupt, h.TopicID, h.Partition, n.Topic, n.Partition)
	case s.Catalog.Start > n.Start || s.Catalog.End != n.End || n.Start >= n.End:
		return fmt.Errorf("%w: offsets [%d, %d) under the name of [%d, %d)", segment.ErrCorrupt, s.Catalog.Start, s.Catalog.End, n.Start, n.End)
	case n.Object.Kind == catalog.Own && s.Header.Epoch != n.Object.Epoch:
		return fmt.Errorf("%w: epoch %x under the name of %x", segment.ErrCorrupt, s.Header.Epoch, n.Object.Epoch)
	}
	return nil
}

// Kind says what lies under a key.
type Kind uint8

// The kinds of objects.
const (
	Other    Kind = iota // none of ours by its name
	Whole                // a segment of one partition
	Cut                  // segments of many
	Page                 // a page of a catalog
	Metadata             // what a cluster writes beside its data
)

// KindOf tells by the key.
func KindOf(key string) Kind {
	if n, ok := keys.NameOf(key); ok {
		switch n.Object.Kind {
		case catalog.Own:
			return Whole
		case catalog.Cut:
			return Cut
		case catalog.PageObject:
			return Page
		}
	}
	if _, err := keys.ParseManifest(key); err == nil {
		return Metadata
	}
	if _, err := keys.ParseHistory(key); err == nil || key == keys.Cluster {
		return Metadata
	}
	return Other
}
