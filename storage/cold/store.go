package cold

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// Store is a bucket, or a folder that is used as one. It is safe for concurrent
// use; no call waits for another.
type Store struct {
	cfg    Config
	bucket *Bucket
	prefix string
	name   string
	m      *metrics
	budget budget
	pieces sync.Pool // of *[pieceBytes]byte

	// What Check found. Without it nothing is trusted.
	digests       atomic.Bool // the MD5 of a listing is that of the bytes
	unconditional atomic.Bool // writes do not honour conditions

	closing sync.Once
	err     error
}

// Open opens a store. It makes no request to a cloud: [Store.Check] does, before
// anybody writes. ctx bounds opening alone.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p, err := parsePlace(cfg.URL)
	if err != nil {
		return nil, err
	}
	m, err := newMetrics(cfg.Metrics)
	if err != nil {
		return nil, fmt.Errorf("register metrics of the cold tier: %w", err)
	}
	b, err := cfg.openBucket(ctx, p, Hooks{Request: m.request, Silence: cfg.Attempt})
	if err != nil {
		m.all.Unregister(cfg.Metrics)
		return nil, fmt.Errorf("open cold tier %s: %w", p.name, scrub(err))
	}
	return &Store{cfg: cfg, bucket: b, prefix: p.prefix, name: p.name, m: m}, nil
}

// String names the store without its parameters, which may hold secrets.
func (s *Store) String() string { return s.name }

// Identity is the Config.Known of the next opening; empty: there is none to know.
func (s *Store) Identity() string { return s.bucket.Identity }

// Close gives up connections. Calls in flight may fail. It is idempotent.
func (s *Store) Close() error {
	s.closing.Do(func() {
		s.err = s.bucket.Blob.Close()
		if s.bucket.Close != nil {
			s.bucket.Close()
		}
		s.m.all.Unregister(s.cfg.Metrics)
	})
	return s.err
}

// Info is what the store says of an object.
type Info struct {
	Key  string // without the store's prefix
	Size int64  // bytes
	MD5  []byte // of the bytes; nil when the store does not say
}

// Stat tells whether an object is there, and its size.
func (s *Store) Stat(ctx context.Context, key string) (Info, error) {
	ctx, c := s.begin(ctx, "stat", key, 0)
	defer c.end()
	info, err := s.stat(ctx, c)
	return info, c.result(err)
}

func (s *Store) stat(ctx context.Context, c *call) (info Info, err error) {
	err = c.run(ctx, 0, func(ctx context.Context) error {
		a, err := s.bucket.Blob.Attributes(ctx, c.key)
		if err != nil {
			return err
		}
		info = Info{Key: c.key[len(s.prefix):], Size: a.Size, MD5: a.MD5}
		return nil
	})
	return info, err
}

// Delete removes an object. That it was not there is no error: it may have been
// removed by an earlier try. That the bucket is not there is one.
func (s *Store) Delete(ctx context.Context, key string) error {
	ctx, c := s.begin(ctx, "delete", key, 0)
	defer c.end()
	remove := s.bucket.Delete
	if remove == nil {
		remove = s.bucket.Blob.Delete
	}
	err := c.run(ctx, 0, func(ctx context.Context) error { return remove(ctx, c.key) })
	if errors.Is(err, NotFound) {
		err = nil
	}
	return c.result(err)
}

// Page is a part of a listing.
type Page struct {
	Objects []Info
	Next    []byte // asks for the page behind this one; empty: there is none
}

// List lists the objects whose keys begin with prefix, in the order of their
// keys. next is Page.Next of the page before, nil for the first. What is written
// or deleted while pages are read may be in them or not.
func (s *Store) List(ctx context.Context, prefix string, next []byte) (Page, error) {
	ctx, c := s.begin(ctx, "list", prefix, 0)
	defer c.end()
	if len(next) == 0 {
		next = firstPage()
	}
	var page Page
	err := c.run(ctx, 0, func(ctx context.Context) error {
		list, after, err := s.bucket.Blob.ListPage(ctx, next, listPage, listOptions(c.key))
		if err != nil {
			return s.noBucket(err)
		}
		page = Page{Objects: make([]Info, 0, len(list)), Next: after}
		for _, o := range list {
			page.Objects = append(page.Objects, Info{Key: o.Key[len(s.prefix):], Size: o.Size, MD5: o.MD5})
		}
		return nil
	})
	return page, c.result(err)
}

// noBucket judges an error of a request that names no object, or makes one: what is not found is the bucket, whatever
// the store's word for it is.
func (s *Store) noBucket(err error) error {
	if err != nil && s.bucket.causeOf(err, context.Background(), context.Background()) == NotFound {
		return fmt.Errorf("%w: %w", NoBucket, err)
	}
	return err
}
