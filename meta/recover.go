package meta

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/danubemq/danube/meta/state"
)

// Recover makes a store the only voter of the metadata it has, after a majority of the voters was lost for good. The
// broker must be stopped. What was in its log and not known to be committed counts as committed from now on, what only
// the lost voters had is gone; so a new history begins (R22). The other brokers that are left must not start with the
// metadata they have: together they could be a majority of the old voters. They come back as new members.
//
// address is what others dial from now on. Errors: ErrInUse, ErrForeign, *DamagedError; nothing was changed then.
func Recover(dir string, store state.StoreID, address string) error {
	if err := recoverAlone(dir, store, address); err != nil {
		return fmt.Errorf("recover metadata: %w", err)
	}
	return nil
}

func recoverAlone(dir string, store state.StoreID, address string) error {
	cfg, err := Config{Dir: dir, Store: store}.withDefaults()
	if err != nil {
		return err
	}
	if err := checkMarker(cfg); err != nil {
		return err
	}
	if _, err := inspect(dir, true); err != nil {
		return err
	}
	st, err := openStore(filepath.Join(dir, raftDir), newMetrics(), time.Now)
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return fmt.Errorf("%w: %s", ErrInUse, dir)
	}
	if err != nil {
		return err
	}
	defer st.release()
	return errors.Join(recoverStore(cfg, st, address), st.Close())
}

func recoverStore(cfg Config, st *store, address string) error {
	if err := st.removeLeftovers(); err != nil {
		return err
	}
	rc := cfg.raft()
	rc.Logger = newLogger(slog.New(slog.DiscardHandler))
	snaps, err := openSnapshots(st.dir, rc)
	if err != nil {
		return err
	}
	_, nobody := raft.NewInmemTransport(raft.ServerAddress(address))
	f := &recovering{machine: newMachine(st.metrics, make(chan struct{}, 1))}
	alone := raft.Configuration{Servers: []raft.Server{{ID: rc.LocalID, Address: serverAddress(cfg.Store, address)}}}
	err = raft.RecoverCluster(rc, f, st, st, snaps, nobody, alone)
	if cause := f.err(); cause != nil {
		return cause
	}
	return errors.Join(err, nobody.Close())
}

// recovering is the state machine of a recovery: it begins the new history when all that is left has been applied, in
// the snapshot that makes the recovery effective.
type recovering struct{ *machine }

// Snapshot implements raft.FSM.
func (f *recovering) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	if err := beginHistory(f.state, f.state.Cluster().History); err != nil {
		return nil, err
	}
	f.publish()
	return f.machine.Snapshot()
}
