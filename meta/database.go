package meta

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"runtime/debug"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/danubemq/danube/meta/state"
)

// logExtent is what the database says of itself.
type logExtent struct{ term, first, last uint64 }

// inspectDatabase reads every entry of the log and checks what it can. The database has no checksums and panics, or
// faults on its mapping, when pages are bad; here that is an error.
//
// Up to entry covered, which a snapshot holds, entries may be missing: a restored backup leaves a gap in the log.
func inspectDatabase(path string, covered uint64) (log logExtent, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &DamagedError{path, fmt.Errorf("the database cannot be read: %v", p)}
		}
	}()
	if err := inspectHeads(path); err != nil {
		return log, &DamagedError{path, err}
	}
	readOnly := &bbolt.Options{ReadOnly: true, Timeout: lockTimeout}
	err = inspectLength(path, readOnly)
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return log, fmt.Errorf("%w: %s", ErrInUse, path)
	}
	if err != nil {
		return log, &DamagedError{path, err}
	}
	db, err := raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: readOnly})
	if err != nil {
		return log, &DamagedError{path, err}
	}
	defer db.Close()
	if log, err = readLog(db, covered); errors.Is(err, state.ErrNewerCommand) {
		return log, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return log, &DamagedError{path, err}
	}
	return log, nil
}

// inspectHeads checks both heads of the database. It writes them in turn and opens with whichever is whole, so that a
// rotten newer head takes back the last transaction without a word. A head lies within one sector, so a power loss
// leaves it whole, new or old; one that is not whole is damage.
func inspectHeads(path string) error {
	const (
		pageHeader  = 16
		sizeAt      = pageHeader + 8  // page size, u32
		checksumAt  = pageHeader + 56 // FNV-64a of what lies between page header and checksum
		smallestSet = 2 * 64 << 10    // two of the largest pages
	)
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, smallestSet)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	b = b[:n]
	page := os.Getpagesize()
	if len(b) > sizeAt+4 {
		// A directory may come from a machine with other pages.
		if size := int(binary.LittleEndian.Uint32(b[sizeAt:])); size >= 1<<10 && size <= 64<<10 && size&(size-1) == 0 {
			page = size
		}
	}
	for i := range 2 {
		if len(b) < (i+1)*page {
			return fmt.Errorf("it has %d bytes and no head", n)
		}
		head := b[i*page:]
		h := fnv.New64a()
		h.Write(head[pageHeader:checksumAt])
		if h.Sum64() != binary.LittleEndian.Uint64(head[checksumAt:]) {
			return fmt.Errorf("head %d fails its checksum", i)
		}
	}
	return nil
}

// inspectLength says whether the file holds all the pages that its head counts.
func inspectLength(path string, readOnly *bbolt.Options) error {
	db, err := bbolt.Open(path, 0o600, readOnly)
	if err != nil {
		return err
	}
	defer db.Close()
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	return db.View(func(tx *bbolt.Tx) error {
		if tx.Size() > fi.Size() {
			return fmt.Errorf("it has %d bytes of %d", fi.Size(), tx.Size())
		}
		return nil
	})
}

func readLog(db *raftboltdb.BoltStore, covered uint64) (log logExtent, err error) {
	if log.term, err = db.GetUint64([]byte("CurrentTerm")); err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return log, err
	}
	if log.first, err = db.FirstIndex(); err != nil {
		return log, err
	}
	if log.last, err = db.LastIndex(); err != nil {
		return log, err
	}
	if log.term == 0 && log.last > 0 {
		return log, errors.New("the term is missing")
	}
	term := uint64(1)
	for i := log.first; i <= log.last && i > 0; i++ {
		var l raft.Log
		err := db.GetLog(i, &l)
		if errors.Is(err, raft.ErrLogNotFound) && i <= covered {
			continue
		}
		if err != nil {
			return log, fmt.Errorf("entry %d: %w", i, err)
		}
		if l.Index != i || l.Term < term || l.Term > log.term {
			return log, fmt.Errorf("entry %d: index %d and term %d do not fit", i, l.Index, l.Term)
		}
		term = l.Term
		if err := inspectEntry(&l); err != nil {
			return log, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	return log, nil
}

// inspectEntry checks the content of an entry. Raft would pass over a command whose type has rotted.
func inspectEntry(l *raft.Log) error {
	switch l.Type {
	case raft.LogCommand:
		return state.Verify(l.Data)
	case raft.LogNoop, raft.LogBarrier:
		if len(l.Data) > 0 {
			return fmt.Errorf("%s with %d bytes of data", l.Type, len(l.Data))
		}
		return nil
	case raft.LogConfiguration:
		if len(raft.DecodeConfiguration(l.Data).Servers) == 0 { // panics over what it cannot read
			return errors.New("configuration without servers")
		}
		return nil
	}
	return fmt.Errorf("unknown type %d", l.Type)
}
