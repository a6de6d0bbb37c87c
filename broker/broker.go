package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/broker/web"
	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// Broker is one node: it serves the partitions it owns to clients. Open makes
// one that is ready, Run serves until its context ends.
type Broker struct {
	cfg      Config
	log      *slog.Logger
	ctx      context.Context // ends when the broker shuts down
	cancel   context.CancelFunc
	store    *storage.Store
	meta     *meta.Node
	clients  net.Listener
	http     *web.Server
	metrics  *metrics
	frames   *protocol.Budget
	wg       sync.WaitGroup // everything that runs beside Run
	lastConn atomic.Uint64
	ready    atomic.Bool

	beside
	registry
	membership
	owning
}

// registry is what the broker serves at the moment, and whom.
type registry struct {
	mu       sync.RWMutex // guards what follows
	parts    map[served.Key]*served.Partition
	opening  map[served.Key]*opening // being opened or closed
	conns    map[*conn]struct{}
	stopping bool
}

var errShuttingDown = protocol.Errorf(protocol.CodeShuttingDown, "the broker is shutting down")

// Open recovers everything the data directory holds and opens the ports. The
// broker it returns serves once Run is called. ctx bounds opening only.
func Open(ctx context.Context, cfg Config) (*Broker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	b := &Broker{
		cfg: cfg, log: cfg.Log,
		registry: registry{
			parts: map[served.Key]*served.Partition{}, opening: map[served.Key]*opening{}, conns: map[*conn]struct{}{},
		},
		owning: newOwning(),
	}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.frames = protocol.NewBudget(max(cfg.frameBytes(), int64(2*b.maxFrame())))
	if err := b.open(ctx); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// open is the order of a start. What it opened, Close closes.
func (b *Broker) open(ctx context.Context) error {
	var err error
	if b.metrics, err = newMetrics(b); err != nil {
		return err
	}
	// The ports first: a busy one is the likeliest reason not to start, and
	// health is to be seen while a long recovery runs.
	if b.clients, err = b.cfg.Listen.Open("tcp", b.cfg.Listen.Client); err != nil {
		return &ListenError{Port: "client", Address: b.cfg.Listen.Client, Err: err}
	}
	peers, err := b.openPeers()
	if err != nil {
		return err
	}
	if err := b.openData(ctx); err != nil {
		return errors.Join(err, closeListener(peers))
	}
	if err := b.openCluster(ctx, peers); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		b.openMeta, b.openDepot, b.openHistory, b.openDelivery, b.openServing, b.control, b.openAdmin, b.register,
		b.attach, // before the logs are recovered: that may take longer than the leader waits
		b.openPartitions,
	} {
		if err := whileMember(ctx, b.cluster, step); err != nil {
			return err
		}
	}
	b.ready.Store(true)
	return nil
}

// control lets this broker do the leader's duties whenever it leads, and answer the
// leader's probes: before it registers, after which it is asked.
func (b *Broker) control(context.Context) (err error) {
	b.controller, err = b.cluster.Control(b.meta, cluster.Duties{
		Voters: b.cfg.Peers.Voters, DrainParallel: b.cfg.Peers.DrainParallel, Registerer: b.cfg.Metrics,
	})
	return err
}

// openData opens what the data directory holds of messages.
func (b *Broker) openData(ctx context.Context) error {
	if err := b.openHTTP(); err != nil {
		return err
	}
	if err := makeDir(b.cfg.DataDir); err != nil {
		return err
	}
	if err := b.inspectMeta(); err != nil {
		return err
	}
	if err := b.openStore(ctx); err != nil {
		return err
	}
	return b.openCold(ctx)
}

// ListenError says that a port could not be opened.
type ListenError struct {
	Port    string // client, peer or HTTP
	Address string
	Err     error
}

func (e *ListenError) Error() string {
	return fmt.Sprintf("open the %s port on %s: %v", e.Port, e.Address, e.Err)
}

// Unwrap returns the system's error.
func (e *ListenError) Unwrap() error { return e.Err }

func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make data directory: %w", err)
	}
	return nil
}

func (b *Broker) openStore(ctx context.Context) error {
	var err error
	b.store, err = storage.Open(ctx, storage.Config{
		FS: b.cfg.FS, Dir: b.cfg.DataDir,
		SegmentBytes: b.cfg.Storage.SegmentBytes, SegmentAge: b.cfg.Storage.SegmentAge,
		Sync: b.cfg.Storage.Sync, SyncInterval: b.cfg.Storage.SyncInterval,
		MemoryBytes: b.cfg.tailBytes(), Files: b.cfg.Storage.Files, BootID: bootID(),
		Now: b.cfg.Now, At: b.cfg.At, Log: b.log, Metrics: b.cfg.Metrics,
	})
	return err
}

// bootID names this run of the machine, "" where the system does not tell.
func bootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(id)
}

func (b *Broker) metaDir() string { return filepath.Join(b.cfg.DataDir, "meta") }

// inspectMeta finds damaged metadata before recovery changes anything of the
// log: the data directory is left for `cluster rebuild` as it was found.
func (b *Broker) inspectMeta() error {
	data, err := storage.HasData(b.cfg.FS, b.cfg.DataDir)
	if err != nil {
		return fmt.Errorf("look for segments: %w", err)
	}
	emptied, err := b.emptied()
	if err != nil {
		return err
	}
	if err := meta.Inspect(b.metaDir(), data && !emptied); err != nil && !errors.Is(err, meta.ErrInUse) { // the lock of the store names who uses it
		return fmt.Errorf("open metadata: %w", err)
	}
	return nil
}

// propose commits one command; a refusal is its error.
func (b *Broker) propose(ctx context.Context, c state.Command) (state.Result, error) {
	return b.meta.Decide(ctx, c)
}

// proposeEach commits a batched command of n entries and returns the answer to each.
func (b *Broker) proposeEach(ctx context.Context, c state.Command, n int) ([]error, error) {
	return b.meta.DecideEach(ctx, c, n)
}

// ClientAddr is the address clients are told.
func (b *Broker) ClientAddr() string {
	if b.cfg.Advertise != "" {
		return b.cfg.Advertise
	}
	return b.clients.Addr().String()
}

// HTTPAddr is the address of the HTTP port, "" when there is none.
func (b *Broker) HTTPAddr() string {
	if b.http == nil {
		return ""
	}
	return b.http.Addr()
}

// Topics is the number of topics.
func (b *Broker) Topics() int { return b.meta.View().TopicCount() }

// Run serves until ctx ends or the store fails. It returns nil after a stop
// that ctx asked for, else why the broker cannot go on.
func (b *Broker) Run(ctx context.Context) error {
	b.wg.Go(func() { b.host.Run(b.ctx) })
	b.wg.Go(func() { b.carrier.Run(b.ctx) })
	b.wg.Go(func() { b.history.Run(b.ctx) })
	if b.depot != nil {
		b.wg.Go(func() { b.depot.Run(b.ctx) })
	}
	b.wg.Go(func() { b.retain(b.ctx) })
	b.wg.Go(func() { b.reconcile(b.ctx) })
	b.wg.Go(func() { b.accept(b.ctx) })
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.store.Failed():
			return fmt.Errorf("the store failed and nothing more may be acknowledged (R20): %w", b.store.Err())
		case <-b.cluster.Failed():
			return b.cluster.Err()
		case <-b.expelled:
			return b.whyExpelled()
		case <-tick.C:
			if err := b.meta.Err(); err != nil {
				return fmt.Errorf("the metadata stopped: %w", err)
			}
		}
	}
}

// accept takes connections until the listener is closed.
func (b *Broker) accept(ctx context.Context) {
	for {
		nc, err := b.clients.Accept()
		switch {
		case err == nil:
			b.admit(nc)
		case errors.Is(err, net.ErrClosed):
			return
		default: // too many open files and the like: they pass
			b.log.Warn("connection not accepted", "err", err)
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return
			}
		}
	}
}

func (b *Broker) admit(nc net.Conn) {
	c := newConn(b, nc, b.lastConn.Add(1))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping {
		_ = nc.Close() // nothing was read or written
		return
	}
	b.conns[c] = struct{}{}
	b.wg.Go(func() {
		c.serve()
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.conns, c)
	})
}

// maxFrame is the largest frame a client may send.
func (b *Broker) maxFrame() int { return b.cfg.Limits.Batch + 64<<10 }

// Close stops in order: what the broker owns is handed over as far as others can
// take it in the time there is (R16); no new connection or request; what lies here
// alone goes into the cold tier as far as there is time; what was acknowledged is
// on disk already; cursors are committed, partitions sealed, files closed. It goes
// on after an error and returns them all.
func (b *Broker) Close() error {
	end := time.Now().Add(b.cfg.Peers.Shutdown)
	var leaving func()
	if b.ready.Load() {
		b.handOverAll()
		leaving = func() { b.exportRest(time.Until(end) - closeTime - min(lastWords, b.cfg.Peers.Shutdown/4)) }
	}
	return b.shut(leaving, func(parts map[served.Key]*served.Partition) error { return b.seal(parts, time.Until(end)-closeTime) })
}

// shut closes everything. leaving, if there is one, is called when nobody is
// served any more and all else still goes on, parting for what was served when
// nothing does.
func (b *Broker) shut(leaving func(), parting func(map[served.Key]*served.Partition) error) error {
	b.mu.Lock()
	b.stopping = true
	conns := b.conns
	b.conns = map[*conn]struct{}{}
	b.mu.Unlock()
	b.ready.Store(false)
	var errs []error
	if b.clients != nil {
		errs = append(errs, ignoreClosed(b.clients.Close()))
	}
	for _, p := range b.everything() {
		p.Close(errShuttingDown)
	}
	for c := range conns {
		c.out.Frame(protocol.TypeGoAway, 0, errShuttingDown)
		c.hangUp(errShuttingDown)
	}
	if leaving != nil {
		leaving()
	}
	b.mu.Lock()
	parts := b.parts
	b.parts = map[served.Key]*served.Partition{}
	b.mu.Unlock()
	b.cancel()
	b.wg.Wait()
	if parting != nil {
		errs = append(errs, parting(parts))
	}
	b.dropPrepared(func(served.Key, *prepared) bool { return true })
	if b.history != nil {
		errs = append(errs, b.history.Close())
	}
	if b.store != nil {
		errs = append(errs, b.store.Close())
	}
	errs = append(errs, b.closeCold())
	if b.meta != nil {
		errs = append(errs, b.meta.Close())
	}
	if b.cluster != nil {
		errs = append(errs, b.cluster.Close())
	}
	if b.http != nil {
		errs = append(errs, b.http.Close())
	}
	return errors.Join(errs...)
}

// notify wakes whoever waits at a channel of capacity one.
func notify(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
