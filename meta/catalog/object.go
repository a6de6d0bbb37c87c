package catalog

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
)

// Bounds that every broker must agree on; they are part of the format.
const (
	// MaxPage bounds the segments that one page lists, so that a page fits into a command.
	MaxPage = 2048
	// maxNumber keeps sums of offsets and lengths far from overflow.
	maxNumber = 1 << 62
)

// ErrDamaged says that bytes are not what an encoder of this package wrote.
var ErrDamaged = errors.New("catalog is damaged")

// Kind says what an object holds.
type Kind uint8

// The kinds; zero is none.
const (
	Own        Kind = iota + 1 // one segment of one partition
	Cut                        // small segments of many partitions of one broker
	PageObject                 // a page of a partition's catalog
)

// String returns the kind as output spells it.
func (k Kind) String() string {
	switch k {
	case Own:
		return "segment"
	case Cut:
		return "cut"
	case PageObject:
		return "page"
	}
	return fmt.Sprintf("unknown(%d)", uint8(k))
}

// Object is what of an object's name is not told by the catalog that names it. Whoever makes an object draws Unique at
// random, so no two tries share a name (R11).
type Object struct {
	Kind        Kind     `msgpack:"k"`
	Store       [16]byte `msgpack:"s"`           // Cut: of the broker that made it; zero otherwise
	Epoch       uint64   `msgpack:"e,omitempty"` // Own: under which it was exported, or the last of what was merged
	Incarnation uint64   `msgpack:"i,omitempty"` // the run of a process that made it
	Number      uint64   `msgpack:"n,omitempty"` // Cut: counts the cuts of that run
	Unique      uint64   `msgpack:"u,omitempty"`
}

// Run is what is known of the run of a process that made objects.
type Run uint8

// The states of a run.
const (
	Alive   Run = iota + 1 // it may still commit what it made
	Over                   // it commits nothing any more
	Unheard                // the cluster has never given out its number
)

// Name is all of an object's name. The topic, the partition and the offsets of a Cut are zero.
type Name struct {
	Object    Object   `msgpack:"o"`
	Topic     [16]byte `msgpack:"t"`
	Partition uint32   `msgpack:"p,omitempty"`
	Start     uint64   `msgpack:"s,omitempty"`
	End       uint64   `msgpack:"x,omitempty"` // exclusive
}

// NewName names an object that a catalog of the partition lists for [start, end).
func NewName(topic [16]byte, partition uint32, o Object, start, end uint64) Name {
	if o.Kind == Cut {
		return Name{Object: o}
	}
	return Name{Object: o, Topic: topic, Partition: partition, Start: start, End: end}
}

// Valid says whether an object can have this name: every part that belongs to its kind is there, and no other.
func (n Name) Valid() bool {
	cut, own := n.Object.Kind == Cut, n.Object.Kind == Own
	if cut {
		return n.Object.valid() && n == Name{Object: n.Object}
	}
	return (own || n.Object.Kind == PageObject) && n.Object.valid() && n.Topic != [16]byte{} && n.Start < n.End && n.End <= maxNumber
}

func (o Object) valid() bool {
	if o.Incarnation == 0 {
		return false
	}
	switch o.Kind {
	case Own:
		return o.Store == [16]byte{} && o.Epoch != 0 && o.Number == 0
	case Cut:
		return o.Store != [16]byte{} && o.Epoch == 0
	case PageObject:
		return o.Store == [16]byte{} && o.Epoch == 0 && o.Number == 0
	}
	return false
}

// Compare orders names: those of a partition side by side, ascending by their offsets.
func (n Name) Compare(m Name) int {
	return cmp.Or(
		bytes.Compare(n.Topic[:], m.Topic[:]), cmp.Compare(n.Partition, m.Partition),
		cmp.Compare(n.Start, m.Start), cmp.Compare(n.End, m.End), n.Object.Compare(m.Object),
	)
}

// Compare orders objects; those of one run lie together.
func (o Object) Compare(p Object) int {
	return cmp.Or(
		cmp.Compare(o.Kind, p.Kind), bytes.Compare(o.Store[:], p.Store[:]), cmp.Compare(o.Incarnation, p.Incarnation),
		cmp.Compare(o.Number, p.Number), cmp.Compare(o.Epoch, p.Epoch), cmp.Compare(o.Unique, p.Unique),
	)
}

// String says what the object is, for refusals and logs; it is not its key in the store.
func (n Name) String() string {
	if n.Object.Kind == Cut {
		return fmt.Sprintf("cut %d of run %d (%016x)", n.Object.Number, n.Object.Incarnation, n.Object.Unique)
	}
	return fmt.Sprintf("%s [%d, %d) of %s:%d by run %d (%016x)",
		n.Object.Kind, n.Start, n.End, hex.EncodeToString(n.Topic[:]), n.Partition, n.Object.Incarnation, n.Object.Unique)
}

// Segment is a run of offsets that lies in an object: bytes [Position, Position+Bytes) of it are a whole segment.
// Times are those at which the broker appended, Unix milliseconds.
type Segment struct {
	Start, End          uint64 // End exclusive
	Object              Object
	Position, Bytes     int64
	CRC                 uint32 // the one at the end of those bytes: over all of them it would be the same for every segment
	FirstTime, LastTime int64
}

// Valid says whether s can be a segment at all. One that has an object of its own fills it.
func (s Segment) Valid() bool {
	o := s.Object
	if s.Start >= s.End || s.End > maxNumber || !o.valid() || o.Kind != Own && o.Kind != Cut {
		return false
	}
	if o.Kind == Own && s.Position != 0 || s.Position < 0 || s.Position > maxNumber || s.Bytes <= 0 || s.Bytes > maxNumber {
		return false
	}
	return s.FirstTime >= 0 && s.FirstTime <= s.LastTime
}

// Page stands for the segments that an object of its own lists: of all offsets in [Start, End) that were ever given
// out, each lies in one of them.
type Page struct {
	Start, End          uint64 // of the first segment and of the last
	Object              Object
	Count               uint32 // segments
	Size                int64  // of the page's object, in bytes
	CRC                 uint32 // Sum of that object
	Bytes               int64  // of the segments
	FirstTime, LastTime int64
}

// NewPage describes a page of segments, which are ascending, disjoint and at least one, whose object is o. Content is
// what that object holds.
func NewPage(topic [16]byte, partition uint32, segments []Segment, o Object) (p Page, content []byte) {
	content = EncodePage(topic, partition, segments)
	last := segments[len(segments)-1]
	p = Page{
		Start: segments[0].Start, End: last.End, Object: o, Count: uint32(len(segments)), Size: int64(len(content)), CRC: Sum(content),
		FirstTime: segments[0].FirstTime, LastTime: last.LastTime,
	}
	for _, s := range segments {
		p.Bytes += s.Bytes
	}
	return p, content
}

// Valid says whether p can be a page at all.
func (p Page) Valid() bool {
	if p.Start >= p.End || p.End > maxNumber || !p.Object.valid() || p.Object.Kind != PageObject {
		return false
	}
	if p.Count == 0 || p.Count > MaxPage || p.Size <= 0 || p.Size > maxNumber || p.Bytes <= 0 || p.Bytes > maxNumber {
		return false
	}
	return p.FirstTime >= 0 && p.FirstTime <= p.LastTime
}

// Holds says whether content is what the page's object was made of.
func (p Page) Holds(content []byte) bool {
	return int64(len(content)) == p.Size && Sum(content) == p.CRC
}
