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
	"strconv"
	"strings"
)

// ErrInUse: another process has the metadata open.
var ErrInUse = errors.New("metadata is in use by another process")

// ErrForeign: the metadata belongs to another store.
var ErrForeign = errors.New("metadata of another store")

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

// halfMade bounds a database that a crash within the first start left unreadable. The marker is written before anything
// can be committed, so without one there is nothing to lose; a larger file is refused all the same.
const halfMade = 1 << 20

// Inspect judges the metadata in dir as Open will, and changes nothing: so that a broker finds damage before it touches
// anything else of its data directory. bootstrapped is [Config].Bootstrapped. Errors: *DamagedError, ErrInUse.
func Inspect(dir string, bootstrapped bool) error {
	_, err := inspect(dir, bootstrapped)
	return err
}

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
	newest, half, err := newestSnapshots(filepath.Join(dir, raftDir))
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
		return true, nil
	}
	covered := uint64(0)
	if newest != nil {
		covered = newest.index
	}
	log, err := inspectDatabase(path, covered)
	if damaged := (*DamagedError)(nil); errors.As(err, &damaged) && !had && newest == nil && fi.Size() <= halfMade {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	if log.term == 0 && log.last == 0 {
		if had || newest != nil {
			return false, &DamagedError{path, errors.New("it holds nothing, but this broker has had a cluster")}
		}
		return true, nil
	}
	err = inspectSnapshot(path, log, newest)
	if err != nil && half != nil && (newest == nil || half.index > newest.index) {
		err = &DamagedError{half.lacks, errors.New("the file is missing, and the log does not hold what it was of")}
	}
	return false, err
}

// snapshotRef names a snapshot by what its folder's name says.
type snapshotRef struct {
	dir         string
	term, index uint64
	lacks       string // a file; empty: it is whole
}

// newestSnapshot returns the finished snapshot with the highest index, nil if there is none.
func newestSnapshot(dir string) (*snapshotRef, error) {
	newest, _, err := newestSnapshots(dir)
	return newest, err
}

// newestSnapshots returns the snapshot with the highest index of those that are whole, and of those that lack a file.
func newestSnapshots(dir string) (whole, half *snapshotRef, err error) {
	base := filepath.Join(dir, snapshotDir)
	entries, err := os.ReadDir(base)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, e := range entries {
		term, index, ok := snapshotName(e)
		if !ok {
			continue
		}
		ref := &snapshotRef{dir: filepath.Join(base, e.Name()), term: term, index: index}
		if ref.lacks, err = missing(ref.dir); err != nil {
			return nil, nil, err
		}
		if ref.lacks == "" {
			whole = newer(whole, ref)
		} else {
			half = newer(half, ref)
		}
	}
	return whole, half, nil
}

// snapshotName reads the name of a finished snapshot's folder: term, index and time. Raft leaves other names beside them.
func snapshotName(e os.DirEntry) (term, index uint64, ok bool) {
	part := strings.Split(e.Name(), "-")
	if !e.IsDir() || len(part) != 3 {
		return 0, 0, false
	}
	term, err1 := strconv.ParseUint(part[0], 10, 64)
	index, err2 := strconv.ParseUint(part[1], 10, 64)
	_, err3 := strconv.ParseUint(part[2], 10, 64) // not of an unfinished one, which ends in .tmp
	return term, index, errors.Join(err1, err2, err3) == nil
}

func newer(x, y *snapshotRef) *snapshotRef {
	if x == nil || y.index > x.index || y.index == x.index && y.dir > x.dir {
		return y
	}
	return x
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
	metaPath := filepath.Join(newest.dir, snapshotMeta)
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
	statePath := filepath.Join(newest.dir, snapshotState)
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
