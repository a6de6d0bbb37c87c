package herald

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/meta/manifest"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
)

// Config says of what a herald tells, and where.
type Config struct {
	Store *cold.Store
	// View returns the newest version of the metadata that this broker has applied.
	View func() *state.View
	// Leading says whether this broker leads the cluster: then it writes.
	Leading func() bool
	// Self is the store of this broker.
	Self state.StoreID
	// Seen is told after each look what keeps the cluster from its bucket, nil when nothing does. It must not block. Default: nobody.
	Seen func(problem error)
	// Every is the pause between two looks. Default a minute. A rebuild refuses a cluster that was heard of within five.
	Every time.Duration
	// Now and Wait are the clock; Wait returns early with the error of a context that ends. Default: the system's.
	Now  func() time.Time
	Wait func(ctx context.Context, d time.Duration) error
	// Log gets what failed. Default: nothing.
	Log *slog.Logger
	// Metrics takes danube_cold_manifest_timestamp_seconds. Default: none.
	Metrics prometheus.Registerer
}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil || c.View == nil || c.Leading == nil || c.Every < 0 {
		return c, errors.New("a herald needs a store, the metadata and who leads")
	}
	if c.Every == 0 {
		c.Every = time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Wait == nil {
		c.Wait = wait
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Seen == nil {
		c.Seen = func(error) {}
	}
	return c, nil
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// TakenError says that the bucket belongs to another cluster, or to a newer history of this one.
type TakenError struct {
	Store   string // the cold tier
	Found   manifest.Beat
	Cluster [16]byte // this one
	History uint16
}

func (e *TakenError) Error() string {
	if e.Found.Cluster != e.Cluster {
		return fmt.Sprintf("%s belongs to cluster %x (%q), this is cluster %x", e.Store, e.Found.Cluster, e.Found.Name, e.Cluster)
	}
	return fmt.Sprintf("%s belongs to history %d of this cluster, which is in history %d here: it was rebuilt elsewhere", e.Store, e.Found.History, e.History)
}

// Herald tells of a cluster in its bucket. It is safe for concurrent use.
type Herald struct {
	cfg     Config
	written prometheus.Gauge
	turn    chan struct{} // holds one token: a round is under way without it

	// Of the round under way.
	last  [sha256.Size]byte // of the newest manifest, its time and index aside
	names []keys.Manifest   // manifests in the bucket, once listed
	known bool              // they were listed

	mu      sync.Mutex
	problem error
	mine    time.Time // when the cluster's object was last seen to be ours
}

// New returns a herald that has not looked yet.
func New(cfg Config) (*Herald, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Herald{cfg: cfg, turn: make(chan struct{}, 1), written: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "danube_cold_manifest_timestamp_seconds", Help: "When this broker last wrote, or saw no need to write, what a rebuild from the bucket needs; 0 before it led.",
	})}
	h.turn <- struct{}{}
	if cfg.Metrics != nil {
		if err := cfg.Metrics.Register(h.written); err != nil {
			return nil, fmt.Errorf("register metrics of the herald: %w", err)
		}
	}
	return h, nil
}

// Run looks and tells until ctx ends.
func (h *Herald) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := h.Beat(ctx); err != nil && ctx.Err() == nil {
			h.cfg.Log.Warn("the bucket does not have what a rebuild needs, trying again", "err", err)
		}
		if h.cfg.Wait(ctx, h.cfg.Every) != nil {
			break
		}
	}
	if h.cfg.Metrics != nil {
		h.cfg.Metrics.Unregister(h.written)
	}
}

// Mine says whether the bucket was seen to belong to this cluster in its present history, within three looks. Unless it
// is, nothing in it may be deleted.
func (h *Herald) Mine() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.problem == nil && !h.mine.IsZero() && h.cfg.Now().Sub(h.mine) <= 3*h.cfg.Every
}

// Problem returns the *TakenError, or what a newer release has written, that keeps this cluster from its bucket. Nil: none
// is known.
func (h *Herald) Problem() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.problem
}

func (h *Herald) saw(mine bool, problem error) {
	h.mu.Lock()
	h.problem = problem
	if mine {
		h.mine = h.cfg.Now()
	}
	h.mu.Unlock()
	h.cfg.Seen(problem)
}

// Beat looks whose the bucket is and, on the leader, writes what has changed. It returns what failed.
func (h *Herald) Beat(ctx context.Context) error {
	select {
	case <-h.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { h.turn <- struct{}{} }()
	v := h.cfg.View()
	if v.Cluster().ID == [16]byte{} {
		return nil // there is no cluster yet
	}
	there, err := h.look(ctx, v.Cluster())
	if err != nil || !h.cfg.Leading() {
		return err
	}
	if err := h.manifest(ctx, v); err != nil {
		return err
	}
	return h.beat(ctx, v, there)
}

// look reads the cluster's object and judges it. There says whether there is one.
func (h *Herald) look(ctx context.Context, self state.Cluster) (there bool, err error) {
	data, err := read(ctx, h.cfg.Store, keys.Cluster)
	if errors.Is(err, cold.NotFound) {
		h.saw(false, nil)
		return false, nil
	}
	if err != nil {
		return false, err // what was seen before stands until it is too old
	}
	b, err := manifest.DecodeBeat(data)
	if _, newer := errors.AsType[*manifest.VersionError](err); newer {
		h.saw(false, err)
		return true, err
	}
	if err != nil {
		// Whatever it was, the leader writes it anew; who else writes it finds ours then.
		h.cfg.Log.Warn("the cluster's object in the bucket cannot be read", "err", err)
		h.saw(false, nil)
		return true, nil
	}
	if b.Cluster != self.ID || b.History > self.History {
		err := &TakenError{Store: h.cfg.Store.String(), Found: b, Cluster: self.ID, History: self.History}
		h.saw(false, err)
		return true, err
	}
	h.saw(b.History == self.History, nil)
	return true, nil
}

// maxSmall bounds what is read whole: no object that a herald writes for its own reading is longer.
const maxSmall = 64 << 10

func read(ctx context.Context, store *cold.Store, key string) ([]byte, error) {
	info, err := store.Stat(ctx, key)
	if err != nil {
		return nil, err
	}
	if info.Size > maxSmall {
		return nil, fmt.Errorf("read %s: %d bytes are none of ours", key, info.Size)
	}
	b := make([]byte, info.Size)
	return b, store.ReadAt(ctx, key, b, 0)
}

// manifest writes one of v, unless the last one says the same.
func (h *Herald) manifest(ctx context.Context, v *state.View) error {
	m := manifest.Of(v, 0)
	m.Index = 0
	same, err := m.Encode()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(same)
	if sum != h.last {
		m.Index, m.Time = v.Index(), h.cfg.Now().UnixMilli()
		data, err := m.Encode()
		if err != nil {
			return err
		}
		name := keys.Manifest{History: m.Cluster.History, Index: m.Index}
		// One that is there with other bytes is of the same version, written at another time by a leader before.
		if _, err := h.cfg.Store.Put(ctx, name.String(), cold.Bytes(data)); err != nil && !errors.Is(err, cold.Exists) {
			return fmt.Errorf("write manifest: %w", err)
		}
		h.last = sum
		h.names = append(h.names, name)
	}
	h.written.Set(float64(h.cfg.Now().Unix()))
	return h.tidy(ctx, v.Cluster().History)
}

// beat writes that the cluster lives.
func (h *Herald) beat(ctx context.Context, v *state.View, there bool) error {
	c := v.Cluster()
	data := manifest.Beat{Cluster: c.ID, Name: c.Name, History: c.History, Index: v.Index(), Time: h.cfg.Now(), Store: h.cfg.Self}.Encode()
	var err error
	if there {
		err = h.cfg.Store.Replace(ctx, keys.Cluster, data)
	} else {
		// Another cluster may come to the same bucket at the same time: one of the two is the first.
		_, err = h.cfg.Store.Put(ctx, keys.Cluster, cold.Bytes(data))
	}
	if err != nil {
		return fmt.Errorf("write that the cluster lives: %w", err)
	}
	h.saw(true, nil)
	return nil
}

// keep is how many manifests of a history stay: whoever reads one while the next is written still finds it.
const keep = 3

// tidy deletes manifests that newer ones of the history have taken the place of.
func (h *Herald) tidy(ctx context.Context, history uint16) error {
	if !h.known {
		if err := h.list(ctx); err != nil {
			return err
		}
	}
	own := slices.DeleteFunc(slices.Clone(h.names), func(n keys.Manifest) bool { return n.History != history })
	slices.SortFunc(own, func(a, b keys.Manifest) int { return int(min(1, max(-1, int64(a.Index-b.Index)))) })
	for _, n := range own[:max(0, len(own)-keep)] {
		if err := h.cfg.Store.Delete(ctx, n.String()); err != nil {
			return fmt.Errorf("delete a manifest that was replaced: %w", err)
		}
		h.names = slices.DeleteFunc(h.names, func(m keys.Manifest) bool { return m == n })
	}
	return nil
}

// list finds the manifests that were there before this broker led.
func (h *Herald) list(ctx context.Context) error {
	h.names = nil
	for next := []byte(nil); ; {
		page, err := h.cfg.Store.List(ctx, keys.Manifests, next)
		if err != nil {
			return err
		}
		for _, o := range page.Objects {
			if m, err := keys.ParseManifest(o.Key); err == nil {
				h.names = append(h.names, m)
			}
		}
		if next = page.Next; len(next) == 0 {
			h.known = true
			return nil
		}
	}
}
