// Package segment is one segment file: the file of the write-ahead log and the
// object of the cold tier in one format. docs/format.md holds the bytes.
//
// A segment is a header ([Header]), batches one behind the other, and, once it
// is sealed, a footer ([Footer]): a sparse index by offset and append time, the
// producer table, counts, and the CRC of all that stands before it.
//
// Who writes feeds each batch to a [Summary], which makes the footer; the CRC of
// the file comes from the CRCs the batches carry, so no byte of a body is read
// for it. Who reads a sealed segment takes [ReadFooter], which reads the tail
// alone, and [Footer.Find]. Who reads one that is not sealed, or is damaged,
// takes a [Scanner], which names every stretch of the file: whole batches,
// damage with batches behind it, a torn end, zeros, a footer. Whether a stretch
// may be cut or must be kept is not judged here (R10).
//
// Only a segment that is known to be sealed, because it is not the last of its
// epoch or because the catalog says so, may be opened by its tail: the last
// bytes of an unsealed one are what a producer sent.
package segment

import (
	"errors"
	"fmt"
)

// version is the format version this package writes and the newest it reads, of
// header and footer alike.
const version = 1

// ErrCorrupt is wrapped by every error that says that bytes are not what was written.
var ErrCorrupt = errors.New("segment is corrupt")

// VersionError refuses a segment, or a batch in it, of a format this binary does
// not know. Nothing was touched.
type VersionError struct {
	What  string // segment header, segment footer, batch or the like
	Found int
	Known int // the newest this binary reads
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s has format version %d, this binary reads up to %d: use the newer binary that wrote it", e.What, e.Found, e.Known)
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}
