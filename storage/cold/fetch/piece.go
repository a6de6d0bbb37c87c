package fetch

import (
	"errors"
	"fmt"
	"math"
	"sort"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/segment"
)

// Piece is what a catalog says of a run of offsets: the segment that holds them,
// or, with Page, the page of the catalog that names it.
type Piece struct {
	Start, End uint64 // offsets [Start, End)
	Key        string // of the object
	// Position and Bytes say where in the object the segment lies; a page is the
	// whole object.
	Position, Bytes int64
	// Epochs says which epoch gives which offsets their value (R19), ascending; what
	// lies below the first entry, as the front of a batch that reaches across the
	// start of the log, is its epoch's too. A page does not say it of its segments:
	// what the piece that stands for it says holds for all of [Start, End).
	Epochs    []segment.EpochStart
	CRC       uint32 // segment.Sum of a segment: its footer is held against it, its batches have their own; catalog.Sum of a page
	FirstTime int64  // append times of the first and last message, ms since 1970
	LastTime  int64
	Page      bool
}

// Catalog is the list of a partition's segments. Every call resolves against the
// newest version of the metadata that this broker has applied, and says which
// that is (R19). It answers from memory.
type Catalog interface {
	// At returns the piece that holds an offset. ErrUncovered: none does. Any other
	// error, that the catalog is not loaded yet or that the log starts behind the
	// offset, goes to whoever reads as it is.
	At(offset uint64) (p Piece, version uint64, err error)
	// AtTime returns the first piece with a message appended at or after ms (ms
	// since 1970). ErrUncovered: there is none.
	AtTime(ms int64) (p Piece, version uint64, err error)
}

// ErrUncovered says that the catalog has no piece for an offset or time. Where the
// messages are, if there are any, another tier knows.
var ErrUncovered = errors.New("the cold tier does not cover it")

// ErrClosed says that the tier was closed.
var ErrClosed = errors.New("the cold tier was closed")

// Missing says that an object is not there although the newest version of the
// metadata that this broker knows names it. Either it has not heard yet what
// became of the object, and then a later try succeeds, or the object is lost.
type Missing struct {
	Offset  uint64 // that was to be read
	Key     string
	Version uint64 // of the metadata that names it
	Err     error  // what the store said
}

func (e *Missing) Error() string {
	return fmt.Sprintf("offset %d lies in %s, says version %d of the metadata, and the object is not there: %v", e.Offset, e.Key, e.Version, e.Err)
}

func (e *Missing) Unwrap() error { return e.Err }

// listed is a segment as a page of the catalog has it, for which p stands.
func (p *Piece) listed(page *catalog.Content, s *catalog.Segment) Piece {
	name := catalog.NewName(page.Topic, page.Partition, s.Object, s.Start, s.End)
	return Piece{
		Start: s.Start, End: s.End, Key: keys.Of(name), Position: s.Position, Bytes: s.Bytes,
		Epochs: within(p.Epochs, s.Start, s.End), CRC: s.CRC, FirstTime: s.FirstTime, LastTime: s.LastTime,
	}
}

// within are the epochs of [start, end), of a list that says it of more.
func within(list []segment.EpochStart, start, end uint64) []segment.EpochStart {
	n := sort.Search(len(list), func(i int) bool { return list[i].Start >= end })
	i := sort.Search(n, func(i int) bool { return list[i].Start > start })
	return list[max(i-1, 0):n:n]
}

// epoch is the one that gives an offset its value, and where it ends.
func (p *Piece) epoch(offset uint64) (epoch, end uint64, ok bool) {
	end = math.MaxUint64
	for i := len(p.Epochs) - 1; i >= 0; i-- {
		if p.Epochs[i].Start <= offset || i == 0 {
			return p.Epochs[i].Epoch, end, true
		}
		end = p.Epochs[i].Start
	}
	return 0, 0, false
}
