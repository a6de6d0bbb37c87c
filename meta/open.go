package meta

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/raft"
	bbolterrors "go.etcd.io/bbolt/errors"

	"github.com/danubemq/danube/meta/state"
)

// The files of a metadata directory.
const (
	markerFile   = "cluster" // this directory has had a cluster
	raftDir      = "raft"
	databaseFile = "raft.db"   // in raftDir: log, term and vote
	snapshotDir  = "snapshots" // in raftDir
)

const (
	// lockTimeout bounds the wait for the database's lock; another process holds it as long as it lives.
	lockTimeout = time.Second
	// retainSnapshots is how many snapshots stay; the older one is for a person to look at.
	retainSnapshots = 2
)

// Open opens the metadata in cfg.Dir and takes part in Raft. In a directory that never had a cluster it forms one: of
// the voters in cfg.Form, or of this store alone, unless cfg.Join. It does not wait for a leader; see WaitReady. ctx bounds opening only.
//
// ErrInUse if another process has it open, *DamagedError if what is there is not what was written: then nothing was
// changed, and nothing will be until the metadata is made anew. ErrForeign if it is another store's, state.ErrNewerCommand if a later release wrote it.
func Open(ctx context.Context, cfg Config) (*Node, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n, err := openDir(cfg)
	if err != nil {
		err = fmt.Errorf("open metadata: %w", err)
		if cfg.Listener != nil {
			// Raft's transport may have closed it already.
			_ = cfg.Listener.Close()
		}
		return nil, err
	}
	return n, nil
}

func openDir(cfg Config) (*Node, error) {
	if err := checkMarker(cfg); err != nil {
		return nil, err
	}
	first, err := inspect(cfg.Dir, cfg.Bootstrapped)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(cfg.Dir, raftDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if first {
		// What a crash within an earlier first start left.
		if err := os.Remove(filepath.Join(dir, databaseFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	m := newMetrics()
	st, err := openStore(dir, m, cfg.Now)
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, fmt.Errorf("%w: %s", ErrInUse, filepath.Join(dir, databaseFile))
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", filepath.Join(dir, databaseFile), err)
	}
	n := &Node{cfg: cfg, store: st, metrics: m, stop: make(chan struct{}), membership: make(chan struct{}, 1), started: time.Now()}
	if cfg.Listener == nil {
		_, n.transport = raft.NewInmemTransport(raft.ServerAddress(cfg.Address))
	} else {
		n.peers = newTransport(cfg, st.hung)
		n.transport = n.peers
	}
	if err := n.start(first); err != nil {
		return nil, errors.Join(err, closeTransport(n.transport), st.Close())
	}
	return n, nil
}

// start brings Raft up over the open store.
func (n *Node) start(first bool) error {
	if err := n.store.removeLeftovers(); err != nil {
		return fmt.Errorf("remove unfinished snapshots: %w", err)
	}
	rc := n.cfg.raft()
	snaps, err := openSnapshots(n.store.dir, rc)
	if err != nil {
		return fmt.Errorf("open snapshots: %w", err)
	}
	logs, err := raft.NewLogCache(4096, n.store)
	if err != nil {
		return err
	}
	if first && !n.cfg.Join {
		// The marker comes after the bootstrap is on disk and before anything can be committed: a crash between the two
		// leaves a database that has state, and that start goes on from here.
		if err := n.bootstrap(rc, logs, snaps); err != nil {
			return err
		}
	}
	if err := writeMarker(n.cfg.Dir, n.cfg.Store); err != nil {
		return fmt.Errorf("write marker: %w", err)
	}
	large := make(chan struct{}, 1)
	n.machine = newMachine(n.metrics, large)
	if n.peers != nil {
		n.machine.after = n.peers.committed
	}
	n.raft, err = raft.NewRaft(rc, n.machine, logs, n.store, snaps, n.transport)
	if cause := n.machine.err(); cause != nil {
		err = cause
	}
	if err != nil {
		return fmt.Errorf("start raft: %w", err)
	}
	if err := n.metrics.register(n.cfg.Registerer, n); err != nil {
		return errors.Join(fmt.Errorf("register metrics: %w", err), n.raft.Shutdown().Error())
	}
	if n.peers != nil {
		n.peers.raft.Store(n.raft)
	}
	n.workers.Go(func() { n.snapshotOnSize(large) })
	n.watchLeadership()
	return nil
}

func (n *Node) bootstrap(rc *raft.Config, logs raft.LogStore, snaps raft.SnapshotStore) error {
	voters, err := n.cfg.voters()
	if err != nil {
		return fmt.Errorf("form a cluster: %w", err)
	}
	if err := raft.BootstrapCluster(rc, logs, n.store, snaps, n.transport, voters); err != nil {
		return fmt.Errorf("form a cluster: %w", err)
	}
	return nil
}

const markerHead = "danube metadata 1\nstore "

// checkMarker refuses metadata of another store: Raft would wait for ever for a leader that this server id cannot be
// (R9). A marker that cannot be read still says that there was a cluster, and is written anew.
func checkMarker(cfg Config) error {
	path := filepath.Join(cfg.Dir, markerFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	rest, _ := strings.CutPrefix(string(b), markerHead)
	store, err := state.ParseStoreID(strings.TrimSuffix(rest, "\n"))
	if err != nil {
		cfg.Logger.Warn("marker of the metadata is damaged and is written anew", "path", path)
		return nil
	}
	if store != cfg.Store {
		return fmt.Errorf("%w: %s names store %s, this is store %s", ErrForeign, path, store, cfg.Store)
	}
	return nil
}

// writeMarker says for good that this directory has had a cluster: temporary file, sync, rename, directory sync. Before
// that it makes the names of everything else durable, which neither the database nor Raft does; a marker without a
// database would be damage.
func writeMarker(dir string, store state.StoreID) error {
	path := filepath.Join(dir, markerFile)
	text := markerHead + store.String() + "\n"
	if b, err := os.ReadFile(path); err == nil && string(b) == text {
		return nil
	}
	for _, d := range []string{filepath.Join(dir, raftDir), dir, filepath.Dir(filepath.Clean(dir))} {
		if err := syncDir(d); err != nil {
			return err
		}
	}
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func closeTransport(t raft.Transport) error {
	if c, ok := t.(raft.WithClose); ok {
		return c.Close()
	}
	return nil
}
