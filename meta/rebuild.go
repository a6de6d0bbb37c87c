package meta

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/danubemq/danube/meta/state"
)

// rebuiltTerm is the first term of rebuilt metadata.
const rebuiltTerm = 1

// Rebuild makes metadata in dir, of which a store is the only voter, from a state that was rebuilt from evidence (R22).
// What was in dir is kept beside it, in the folder that is returned; "" if there was nothing. The broker must be stopped.
//
// address is what others dial from now on. Errors: ErrInUse.
func Rebuild(dir string, store state.StoreID, address string, s *state.State) (kept string, err error) {
	if err := checkUnused(dir); err != nil {
		return "", fmt.Errorf("rebuild metadata: %w", err)
	}
	made := filepath.Clean(dir) + ".rebuilt"
	if err := os.RemoveAll(made); err != nil {
		return "", fmt.Errorf("rebuild metadata: %w", err)
	}
	if err := writeRebuilt(made, store, address, s); err != nil {
		return "", errors.Join(fmt.Errorf("rebuild metadata: %w", err), os.RemoveAll(made))
	}
	if kept, err = setAside(dir); err != nil {
		return "", fmt.Errorf("keep the metadata there were: %w", err)
	}
	if err := os.Rename(made, dir); err != nil {
		return kept, fmt.Errorf("rebuild metadata: %w", err)
	}
	return kept, syncDir(filepath.Dir(filepath.Clean(dir)))
}

// checkUnused refuses a directory whose database another process has open. A database that is missing or no database is
// used by nobody.
func checkUnused(dir string) error {
	path := filepath.Join(dir, raftDir, databaseFile)
	if fi, err := os.Stat(path); err != nil || fi.Size() == 0 {
		return nil
	}
	if _, err := inspectDatabase(path, 0); errors.Is(err, ErrInUse) {
		return err
	}
	return nil
}

// writeRebuilt writes a database without entries behind a snapshot that holds everything.
func writeRebuilt(dir string, store state.StoreID, address string, s *state.State) error {
	cfg, err := Config{Dir: dir, Store: store}.withDefaults()
	if err != nil {
		return err
	}
	raftFolder := filepath.Join(dir, raftDir)
	if err := os.MkdirAll(raftFolder, 0o700); err != nil {
		return err
	}
	rc := cfg.raft()
	rc.Logger = newLogger(slog.New(slog.DiscardHandler))
	snaps, err := openSnapshots(raftFolder, rc)
	if err != nil {
		return err
	}
	_, nobody := raft.NewInmemTransport(raft.ServerAddress(address))
	alone := raft.Configuration{Servers: []raft.Server{{ID: rc.LocalID, Address: serverAddress(store, address)}}}
	view := s.Freeze()
	sink, err := snaps.Create(raft.SnapshotVersionMax, view.Index(), rebuiltTerm, alone, view.Index(), nobody)
	if err != nil {
		return errors.Join(err, nobody.Close())
	}
	if _, err := view.WriteTo(sink); err != nil {
		return errors.Join(err, sink.Cancel(), nobody.Close())
	}
	if err := errors.Join(sink.Close(), nobody.Close()); err != nil {
		return err
	}
	st, err := openStore(raftFolder, newMetrics(), time.Now)
	if err != nil {
		return err
	}
	defer st.release()
	if err := errors.Join(st.SetUint64([]byte("CurrentTerm"), rebuiltTerm), st.Close()); err != nil {
		return err
	}
	return writeMarker(dir, store)
}

// setAside renames dir, if it is there, to a name that is free.
func setAside(dir string) (string, error) {
	if _, err := os.Lstat(dir); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	for i := 1; ; i++ {
		kept := fmt.Sprintf("%s.lost-%d", filepath.Clean(dir), i)
		if _, err := os.Lstat(kept); errors.Is(err, os.ErrNotExist) {
			return kept, os.Rename(dir, kept)
		} else if err != nil {
			return "", err
		}
	}
}
