package meta

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/danubemq/danube/meta/state"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// ErrInUse: another process has the metadata open.
var ErrInUse = errors.New("metadata is in use by another process")

// DamagedError says which file of the metadata is not what was written. Nothing in the directory was changed.
type DamagedError struct {
	Path string
	Err  error
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s: %v; the directory was left as it is; "+
		"`danube cluster rebuild` makes the metadata anew from the segments", e.Path, e.Err)
}

func (e *DamagedError) Unwrap() error { return e.Err }

// inspect looks at a metadata directory before anything opens it for writing, because the database would make a new
// one of an emptied file, Raft would pass over a bad snapshot to an older one, and both panic over bad pages. It
// changes nothing. first says that the directory never had a cluster.
func inspect(dir string, bootstrapped bool) (first bool, err error) {
	had := bootstrapped
	if _, err := os.Lstat(filepath.Join(dir, markerFile)); err == nil {
		had = true
	} else if !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	path := filepath.Join(dir, raftDir, databaseFile)
	newest, err := newestSnapshot(filepath.Join(dir, raftDir))
	if err != nil {
		return false, err
	}
	fi, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		if had || newest != nil {
			return false, &DamagedError{path, errors.New("the file is missing, but this broker has had a cluster")}
		}
		return true, nil
	case err != nil:
		return false, err
	case fi.Size() == 0 && (had || newest != nil):
		return false, &DamagedError{path, errors.New("the file is empty, but this broker has had a cluster")}
	case fi.Size() == 0:
		return true, nil // a crash in the very first moment
	}
	log, err := inspectDatabase(path)
	if err != nil {
		return false, err
	}
	if log.term == 0 && log.last == 0 {
		if had || newest != nil {
			return false, &DamagedError{path, errors.New("it holds nothing, but this broker has had a cluster")}
		}
		return true, nil
	}
	return false, inspectSnapshot(path, log, newest)
}

// logExtent is what the database says of itself.
type logExtent struct{ term, first, last uint64 }

// inspectDatabase reads every entry of the log and checks what it can. The database has no checksums and panics, or
// faults on its mapping, when pages are bad; here that is an error.
func inspectDatabase(path string) (log logExtent, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = &DamagedError{path, fmt.Errorf("the database cannot be read: %v", p)}
		}
	}()
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
	if log, err = readLog(db); errors.Is(err, state.ErrNewerCommand) {
		return log, fmt.Errorf("%s: %w", path, err)
	}
	if err != nil {
		return log, &DamagedError{path, err}
	}
	return log, nil
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

func readLog(db *raftboltdb.BoltStore) (log logExtent, err error) {
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
	for i := log.first; i <= log.last && i > 0; i++ {
		var l raft.Log
		if err := db.GetLog(i, &l); err != nil {
			return log, fmt.Errorf("entry %d: %w", i, err)
		}
		if l.Index != i || l.Term == 0 || l.Term > log.term {
			return log, fmt.Errorf("entry %d: index %d and term %d do not fit", i, l.Index, l.Term)
		}
		if l.Type == raft.LogCommand {
			if err := state.Verify(l.Data); err != nil {
				return log, fmt.Errorf("entry %d: %w", i, err)
			}
		}
	}
	return log, nil
}

// snapshotRef names a snapshot by what its folder's name says.
type snapshotRef struct {
	dir         string
	term, index uint64
}

// newestSnapshot returns the finished snapshot with the highest index, nil if there is none.
func newestSnapshot(dir string) (*snapshotRef, error) {
	base := filepath.Join(dir, snapshotDir)
	entries, err := os.ReadDir(base)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var newest *snapshotRef
	for _, e := range entries {
		part := strings.Split(e.Name(), "-")
		if !e.IsDir() || len(part) != 3 {
			continue
		}
		term, err1 := strconv.ParseUint(part[0], 10, 64)
		index, err2 := strconv.ParseUint(part[1], 10, 64)
		_, err3 := strconv.ParseUint(part[2], 10, 64) // not of an unfinished one, which ends in .tmp
		if errors.Join(err1, err2, err3) != nil {
			continue
		}
		if newest == nil || index > newest.index || index == newest.index && e.Name() > filepath.Base(newest.dir) {
			newest = &snapshotRef{filepath.Join(base, e.Name()), term, index}
		}
	}
	return newest, nil
}

// inspectSnapshot checks that the newest snapshot is whole and that the log goes on from it.
func inspectSnapshot(database string, log logExtent, newest *snapshotRef) error {
	if newest == nil {
		if log.first > 1 {
			return &DamagedError{filepath.Join(filepath.Dir(database), snapshotDir),
				fmt.Errorf("the snapshot before entry %d is missing", log.first)}
		}
		return nil
	}
	if log.last > 0 && log.first > newest.index+1 || log.last < newest.index && log.last > 0 {
		return &DamagedError{newest.dir,
			fmt.Errorf("the snapshot ends at entry %d, the log holds %d to %d", newest.index, log.first, log.last)}
	}
	metaPath := filepath.Join(newest.dir, "meta.json")
	b, err := os.ReadFile(metaPath)
	if err != nil {
		return &DamagedError{metaPath, err}
	}
	var m struct {
		Index, Term uint64
		CRC         []byte
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return &DamagedError{metaPath, err}
	}
	if m.Index != newest.index || m.Term != newest.term {
		return &DamagedError{metaPath, fmt.Errorf("it names entry %d of term %d", m.Index, m.Term)}
	}
	statePath := filepath.Join(newest.dir, "state.bin")
	f, err := os.Open(statePath)
	if err != nil {
		return &DamagedError{statePath, err}
	}
	defer f.Close()
	sum := crc64.New(crc64.MakeTable(crc64.ECMA))
	if _, err := io.Copy(sum, f); err != nil {
		return &DamagedError{statePath, err}
	}
	if !bytes.Equal(sum.Sum(nil), m.CRC) {
		return &DamagedError{statePath, errors.New("the snapshot fails its checksum")}
	}
	return nil
}
