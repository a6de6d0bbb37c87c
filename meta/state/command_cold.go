package state

import "github.com/danubemq/danube/meta/catalog"

// Commands about the cold tier: what it holds of a partition, and which of its objects nobody needs any more.

// CommitSegments puts exported segments into the catalogs of their partitions (R11). All pieces of one cut go into one
// command; each is accepted or refused by itself. Owner made the objects. Batched.
type CommitSegments struct {
	Owner   Owner           `msgpack:"o"`
	Entries []SegmentCommit `msgpack:"p"`
}

// SegmentCommit is an entry of CommitSegments. Owner must be the partition's, which is not OPENING, or the exporter of
// the ORPHANED range that holds the segment. The segment begins at the lowest offset that the catalog lacks and ends in the
// same range, and it is the same epochs that the ranges give to its offsets. One that begins below the log's start is
// accepted if nothing above it is there yet: retention was faster. Exactly what is there already is a success.
type SegmentCommit struct {
	Topic     TopicID         `msgpack:"t"`
	Partition uint32          `msgpack:"n,omitempty"`
	Epoch     uint64          `msgpack:"e"` // of the partition now
	Epochs    []EpochStart    `msgpack:"h"` // of the segment's offsets from the log's start on, see Partition.Epochs
	Segment   catalog.Segment `msgpack:"s"`
}

// GrantExports lets stores that returned put what they hold of ORPHANED ranges into the catalog (R15); a grant takes the
// place of the one before. Batched.
type GrantExports struct {
	Entries []ExportGrant `msgpack:"p"`
}

// ExportGrant is an entry of GrantExports: every range that overlaps [From, To) must be ORPHANED, and To's store be one of
// those that may hold it.
type ExportGrant struct {
	Topic     TopicID `msgpack:"t"`
	Partition uint32  `msgpack:"n,omitempty"`
	Epoch     uint64  `msgpack:"e"` // of the partition now
	From      uint64  `msgpack:"f,omitempty"`
	To        uint64  `msgpack:"x"`
	Exporter  Owner   `msgpack:"o"` // the latest run of its store
}

// SwapSegments puts merged segments, or pieces of cuts copied out of them, in the place of those that they were made of
// (R12). Objects that no catalog names any more become garbage. Owner is the partitions' owner and made the new objects.
// Batched.
type SwapSegments struct {
	Owner   Owner         `msgpack:"o"`
	At      int64         `msgpack:"a"` // when, Unix milliseconds
	Entries []SegmentSwap `msgpack:"p"`
}

// SegmentSwap is an entry of SwapSegments. Inputs are neighbours in the catalog, exactly as they stand there; Outputs cover
// the same offsets and times, and each lies within one range or is as long as one input. ErrConflict if an input is not
// there any more: retention, a page or another swap was faster.
type SegmentSwap struct {
	Topic     TopicID           `msgpack:"t"`
	Partition uint32            `msgpack:"n,omitempty"`
	Epoch     uint64            `msgpack:"e"` // of the partition now
	Inputs    []catalog.Input   `msgpack:"i"`
	Outputs   []catalog.Segment `msgpack:"s"` // each with an object of its own
}

// PageCatalog moves the segments that begin in [Page.Start, Page.End) into a page, whose object lists exactly these:
// ErrConflict if a swap or retention was faster, a piece of a cut is among them, or an offset of a range that no segment
// covers.
type PageCatalog struct {
	Owner     Owner        `msgpack:"o"` // of the partition, who made the page's object
	Topic     TopicID      `msgpack:"t"`
	Partition uint32       `msgpack:"n,omitempty"`
	Epoch     uint64       `msgpack:"e"` // of the partition now
	Page      catalog.Page `msgpack:"p"`
}

// UnpageCatalog takes the segments of a page back, to merge them or to move them elsewhere. The page's object becomes
// garbage, and so do segments that the log's start has passed.
type UnpageCatalog struct {
	Owner     Owner          `msgpack:"o"` // of the partition
	Topic     TopicID        `msgpack:"t"`
	Partition uint32         `msgpack:"n,omitempty"`
	Epoch     uint64         `msgpack:"e"` // of the partition now
	Start     uint64         `msgpack:"s,omitempty"`
	Object    catalog.Object `msgpack:"p"` // of the page
	Content   []byte         `msgpack:"c"` // of that object
	At        int64          `msgpack:"a"` // when, Unix milliseconds
}

// CondemnTopic makes garbage of all that a deleted topic has in the cold tier, partition by partition. With the last one
// the tombstone may go. Batched.
type CondemnTopic struct {
	ID         TopicID  `msgpack:"i"`
	At         int64    `msgpack:"a"` // when, Unix milliseconds
	Partitions []uint32 `msgpack:"p"`
}

// CondemnPage makes garbage of what a page lists that is garbage itself. Content is what the page's object holds; what it
// lists has waited as long as the page.
type CondemnPage struct {
	Page    catalog.Name `msgpack:"p"`
	Content []byte       `msgpack:"c"`
}

// CondemnObjects makes garbage of objects that were uploaded and never committed (R12). ErrConflict of one that a catalog
// names, that a run made which may still commit it, or that an earlier history made whose audit has not ended (R22).
// Pages proves what pages do not list: it holds the contents of all those whose offsets overlap an object's. Batched.
type CondemnObjects struct {
	Owner Owner          `msgpack:"o"` // who gives up objects of its own; zero if only runs are named that are over
	At    int64          `msgpack:"a"` // when, Unix milliseconds
	Names []catalog.Name `msgpack:"n"`
	Pages [][]byte       `msgpack:"p,omitempty"`
}

// ForgetObjects says that garbage is deleted. ErrConflict for a page whose list was not condemned; what is unknown is a
// success. Batched.
type ForgetObjects struct {
	Names []catalog.Name `msgpack:"p"`
}

// EndAudit says that an operator has seen what earlier histories left: from now on it may be condemned (R22).
type EndAudit struct {
	History uint16 `msgpack:"h"` // the present one
}
