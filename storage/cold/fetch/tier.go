package fetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/hotdir"
	"github.com/danubemq/danube/storage/memory"
)

// Config of a tier. Zero values mean the defaults.
type Config struct {
	Store *cold.Store // required; the caller closes it, after the tier
	// Bytes of memory for what is read ahead and kept: default 64 MiB. What readers
	// hold at the least comes on top when it is used up: 256 KiB each, or a batch.
	Bytes int64
	// NoteBytes of memory for footers and catalog pages. Default 8 MiB.
	NoteBytes int64
	// Parallel is how many requests at most are kept ahead of one reader. Default 4.
	Parallel int
	// Disk is the file of the disk cache, which is made anew at each start, on FS,
	// and DiskBytes how long it may become. Empty or 0, the default: none.
	Disk      string
	DiskBytes int64
	FS        disk.FS // default: the operating system's
	Now       func() time.Time
	Log       *slog.Logger          // default: discard
	Metrics   prometheus.Registerer // takes the danube_cold_read_ series; default: none
}

func (c Config) withDefaults() (Config, error) {
	if c.Store == nil {
		return c, errors.New("fetch: Store is required")
	}
	if c.Bytes < 0 || c.NoteBytes < 0 || c.Parallel < 0 || c.DiskBytes < 0 {
		return c, errors.New("fetch: a size or count is negative")
	}
	if c.Bytes == 0 {
		c.Bytes = 64 << 20
	}
	if c.NoteBytes == 0 {
		c.NoteBytes = 8 << 20
	}
	if c.Parallel == 0 {
		c.Parallel = 4
	}
	if c.FS == nil {
		c.FS = disk.OS()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Tier reads the cold tier for all partitions of a broker. Safe for concurrent use.
type Tier struct {
	cfg   Config
	cache cache
	notes notes
	m     *metrics
}

// Open prepares reading. It makes no request. A disk cache that cannot be made is
// logged and done without.
func Open(cfg Config) (*Tier, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register metrics of cold reads: %w", err)
	}
	t := &Tier{cfg: cfg, m: m}
	t.cache.pool, t.cache.limit, t.cache.fill, t.cache.m = memory.NewPool(cfg.Bytes), cfg.Bytes, cfg.Store.ReadInto, m
	t.cache.objects, t.cache.running = map[place]*object{}, map[*load]struct{}{}
	t.notes.limit, t.notes.known = cfg.NoteBytes, map[place]*note{}
	if cfg.Disk != "" && cfg.DiskBytes > 0 {
		t.cache.disk = openSpill(&cfg, m)
	}
	return t, nil
}

// Close gives up what is on its way and waits for it. Readers get ErrClosed from
// now on; their views stay readable until they are released. It is idempotent.
func (t *Tier) Close() error {
	t.cache.close()
	t.notes.close()
	t.m.all.Unregister(t.cfg.Metrics)
	if t.cache.disk == nil {
		return nil
	}
	return t.cache.disk.close()
}

// Used is how many bytes of memory blocks and views take.
func (t *Tier) Used() int64 { return t.cache.pool.Used() }

// ID names a partition.
type ID = hotdir.ID

// Partition is the cold tier of one partition. It holds nothing and need not be
// closed. Safe for concurrent use.
type Partition struct {
	tier    *Tier
	id      ID
	catalog Catalog
}

// Partition returns the cold tier of a partition, whose segments the catalog lists.
func (t *Tier) Partition(id ID, c Catalog) *Partition {
	return &Partition{tier: t, id: id, catalog: c}
}

// gone says that an object was not there.
type gone struct {
	key string
	err error
}

func (e *gone) Error() string { return e.err.Error() }
func (e *gone) Unwrap() error { return e.err }

// missed marks the error of a read of an object that is not there.
func missed(key string, err error) error {
	if errors.Is(err, cold.NotFound) {
		return &gone{key, err}
	}
	return err
}

// resolve finds the segment that holds an offset, through a page of the catalog
// where it lies in one.
func (p *Partition) resolve(ctx context.Context, offset uint64) (Piece, uint64, error) {
	x, version, err := p.catalog.At(offset)
	if err != nil || !x.Page {
		return x, version, err
	}
	page, err := p.page(ctx, &x)
	if err != nil {
		return Piece{}, version, missed(x.Key, err)
	}
	if s := page.At(offset); s != nil {
		return x.listed(page, s), version, nil
	}
	return Piece{}, version, ErrUncovered
}

// follow is the segment that begins at an offset, if that is known without a
// request.
func (p *Partition) follow(offset uint64) (Piece, bool) {
	x, _, err := p.catalog.At(offset)
	if err != nil {
		return Piece{}, false
	}
	if x.Page {
		page, ok := p.known(&x)
		if !ok {
			return Piece{}, false
		}
		s := page.At(offset)
		if s == nil {
			return Piece{}, false
		}
		x = x.listed(page, s)
	}
	return x, x.Start == offset
}
