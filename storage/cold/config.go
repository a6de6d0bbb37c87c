package cold

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gocloud.dev/blob/memblob"

	"github.com/danubemq/danube/storage/cold/folder"
	"github.com/danubemq/danube/storage/disk"
)

// Config says where the store is and how patient calls are. Zero values mean the
// default.
type Config struct {
	// URL is file:///folder, s3://bucket, gs://bucket or azblob://bucket, with
	// what the driver takes as parameters, and ?prefix=danube/ for all of them.
	// mem:// is a bucket of this process alone, for tests.
	URL string
	// Drivers opens what is neither file:// nor mem://. Default: none.
	Drivers Opener
	// FS is where file:// lies. Default: the operating system's.
	FS disk.FS
	// Existing refuses a folder that was never a store: nothing is made in it.
	Existing bool
	// Known is what Identity returned when the folder was used before: one that
	// is not there, or is another, opens all the same and is away until it is back.
	Known string
	// Attempt is how long one request may take beside what its bytes take at
	// Rate, and how long its connection may be silent. Default 15 s.
	Attempt time.Duration
	// Call is how long a call may take, with all its attempts, beside what its
	// bytes take. The context's own deadline counts if it is earlier. Default 90 s.
	Call time.Duration
	// Rate is the speed in bytes a second below which a transfer is given up.
	// Default 256 KiB.
	Rate int64
	// Attempts is how often a call tries at most. Default 8.
	Attempts int
	// Log gets what fails and is tried again, at debug. Default: nothing.
	Log *slog.Logger
	// Metrics takes the danube_cold_ series. Default: none.
	Metrics prometheus.Registerer
	// Now and Wait are the clock; Wait returns early with the error of a context
	// that ends. Default: the system's.
	Now  func() time.Time
	Wait func(ctx context.Context, d time.Duration) error
	// Jitter returns a number in [0, 1) that spreads pauses. Default: random.
	Jitter func() float64
}

func (c Config) withDefaults() (Config, error) {
	if c.Attempt < 0 || c.Call < 0 || c.Rate < 0 || c.Attempts < 0 {
		return c, errors.New("times, rates and counts of the cold tier are not negative")
	}
	if c.FS == nil {
		c.FS = disk.OS()
	}
	if c.Attempt == 0 {
		c.Attempt = 15 * time.Second
	}
	if c.Call == 0 {
		c.Call = 90 * time.Second
	}
	if c.Rate == 0 {
		c.Rate = 256 << 10
	}
	if c.Attempts == 0 {
		c.Attempts = 8
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Wait == nil {
		c.Wait = wait
	}
	if c.Jitter == nil {
		c.Jitter = rand.Float64
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

// place is a URL taken apart: what the store is called, and what is opened.
type place struct {
	url    *url.URL // without prefix
	prefix string   // empty, or ends with a slash
	name   string   // for messages, without anything that may be a secret
}

// Name is what [Store.String] of the store at a URL returns.
func Name(url string) (string, error) {
	p, err := parsePlace(url)
	return p.name, err
}

func parsePlace(text string) (place, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" {
		return place{}, errors.New("read the URL of the cold tier: it is not of the form scheme://place?parameters") // the parser's error quotes it
	}
	if u.User != nil {
		return place{}, fmt.Errorf("read the URL of the cold tier: %s://…@%s holds credentials: they belong into the environment or files", u.Scheme, u.Host)
	}
	q := u.Query()
	prefix := q.Get("prefix")
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		prefix += "/"
	}
	if err := checkPrefix(prefix); err != nil {
		return place{}, fmt.Errorf("read the URL of the cold tier: %w", err)
	}
	q.Del("prefix")
	u.RawQuery = q.Encode()
	return place{url: u, prefix: prefix, name: u.Scheme + "://" + u.Host + u.Path + showPrefix(prefix)}, nil
}

func showPrefix(prefix string) string {
	if prefix == "" {
		return ""
	}
	return "?prefix=" + prefix
}

// checkPrefix keeps to characters that every store takes as they are.
func checkPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	for element := range strings.SplitSeq(strings.TrimSuffix(prefix, "/"), "/") {
		if element == "" || element[0] == '.' || strings.Trim(element, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
			return fmt.Errorf("prefix %q: its elements are letters, digits, '.', '_' and '-', and begin with no dot", prefix)
		}
	}
	return nil
}

// openBucket opens what a place names.
func (c *Config) openBucket(ctx context.Context, p place, hooks Hooks) (*Bucket, error) {
	switch p.url.Scheme {
	case "mem":
		return &Bucket{Blob: memblob.OpenBucket(nil)}, nil
	case "file":
		if p.url.Host != "" || p.url.Path == "" || p.url.RawQuery != "" {
			return nil, errors.New("a folder is given as file:///path, with no parameter but prefix")
		}
		if c.Existing {
			if err := folder.Used(c.FS, p.url.Path); err != nil {
				return nil, err
			}
		}
		b, err := folder.Open(ctx, c.FS, p.url.Path, c.Known, c.Now)
		if err != nil {
			return nil, err
		}
		mark := c.Known
		if mark == "" {
			if mark, err = folder.Mark(c.FS, p.url.Path); err != nil {
				return nil, errors.Join(err, b.Close())
			}
		}
		return &Bucket{Blob: b, Identity: mark}, nil
	}
	if c.Drivers == nil {
		return nil, fmt.Errorf("this program has no driver for %s://", p.url.Scheme)
	}
	return c.Drivers(ctx, p.url, hooks)
}
