package export

import (
	"context"
	"errors"
	"time"

	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/cold/plan"
	"github.com/danubemq/danube/storage/excerpt"
	"github.com/danubemq/danube/storage/segment"
)

// ID names a partition.
type ID = plan.ID

// Source is a partition whose log this broker exports. It is safe for concurrent
// use, and none of its methods takes long but Cut.
type Source interface {
	ID() ID
	// Facts says how far the catalog is, as this broker has applied it, and what
	// the log holds behind that.
	Facts() (Facts, error)
	// Cut is a whole segment of the messages from offset from on: it ends at to,
	// or behind most bytes, or before, and has one batch at least. Its bytes can
	// be read as long as an attempt lasts, or fail.
	Cut(ctx context.Context, from, to uint64, most int64) (*excerpt.Segment, error)
}

// Facts are what is known of a partition now.
type Facts struct {
	// Epoch is that of the partition: the catalog takes segments under it (R11).
	Epoch uint64
	// Next is where the next segment begins: the end of the last that was
	// committed, or what follows it when no message has those offsets.
	Next uint64
	// End is the committed end of the log, Bytes what lies between, about, and
	// Oldest when the batch at Next was appended.
	End    uint64
	Bytes  int64
	Oldest time.Time
	// Sealed is the end of the closed file that holds Next, SealedBytes what lies
	// in front of it; Next when that file is written to.
	Sealed      uint64
	SealedBytes int64
	// Object: acknowledgements wait for the catalog.
	Object bool
}

// Entry is one segment for one catalog.
type Entry struct {
	ID      ID
	Epoch   uint64 // the partition's
	Segment Segment
}

// Segment is what a catalog keeps of a segment.
type Segment struct {
	Start, End uint64 // offsets
	Epochs     []segment.EpochStart
	Object     Object
	Position   int64 // in the object
	Bytes      int64
	CRC        uint32 // by which the segment is known: the one at its end, see segment.Sum
	FirstTime  int64  // append times, ms since 1970
	LastTime   int64
	Batches    uint64
	Messages   uint64
}

// Object names the object that holds a segment: one of its own, or a cut.
type Object struct {
	Own   keys.Segment // zero: it is a cut
	Cut   keys.Cut
	IsCut bool
}

// Key is its name in the store.
func (o Object) Key() string {
	if o.IsCut {
		return o.Cut.String()
	}
	return o.Own.String()
}

var (
	// ErrRefused is wrapped by what Config.Commit says of an entry that no catalog has or will have.
	ErrRefused = errors.New("the catalog does not take the segment")
	// ErrRemoved says that the partition is not exported by this broker, or no longer.
	ErrRemoved = errors.New("the partition is not exported here")
	// ErrStopped says that the exporter has ended.
	ErrStopped = errors.New("the exporter has ended")
)
