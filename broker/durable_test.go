package broker_test

import (
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/storage/cold"
)

// bucket is one in memory that can be away, or writes whatever condition it is given.
type bucket struct {
	away, careless atomic.Bool
}

func (b *bucket) open(context.Context, *url.URL, cold.Hooks) (*cold.Bucket, error) {
	mem := memblob.OpenBucket(nil)
	return &cold.Bucket{
		Blob: mem,
		Upload: func(ctx context.Context, key string, body io.ReadSeeker, absent bool) ([]byte, error) {
			if b.away.Load() {
				return nil, syscall.ECONNREFUSED
			}
			return nil, mem.Upload(ctx, key, body, &blob.WriterOptions{ContentType: "application/octet-stream", IfNotExist: absent && !b.careless.Load()})
		},
	}, nil
}

func (b *bucket) config(c *broker.Config) {
	c.Storage.SegmentAge = 1
	c.Storage.Durable = broker.Durable{URL: "test://bucket", Drivers: b.open}
}

// A store that is away does not stop the start: health says so, messages are taken,
// and once it is back they are exported.
func TestColdTierThatIsAwayAtTheStart(t *testing.T) {
	t.Parallel()
	b := &bucket{}
	b.away.Store(true)
	n := start(t, t.TempDir(), b.config)
	c := dial(t, n)
	publishLarge(t, c, "early", 0, 3)
	s, err := c.Admin().Status(t.Context())
	if err != nil || !strings.Contains(strings.Join(s.Degraded, "\n"), "cold tier: nothing is exported") {
		t.Errorf("status: %v, %v", s.Degraded, err)
	}
	b.away.Store(false)
	coveredTo(t, n, "early", 3)
	eventually(t, "health is well", func() bool {
		s, err := c.Admin().Status(t.Context())
		return err == nil && !strings.Contains(strings.Join(s.Degraded, "\n"), "cold tier")
	})
}

// A folder that is not mounted, or an empty mount point, does not stop a start, and
// is not taken for an empty store: nothing is written into its place. Once it is
// back, what waited is exported. A damaged note of which folder it was costs a
// warning.
func TestFolderThatIsNotMountedAtTheStart(t *testing.T) {
	t.Parallel()
	dir, folder := t.TempDir(), filepath.Join(t.TempDir(), "folder")
	mkdir := func() {
		t.Helper()
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	rename := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	over := func(c *broker.Config) {
		c.Storage.SegmentAge = 1
		c.Storage.Durable.URL = "file://" + folder
	}
	mkdir()
	n := start(t, dir, over)
	publishLarge(t, dial(t, n), "kept", 0, 3)
	coveredTo(t, n, "kept", 3)
	n.close(t)()
	rename(folder, folder+".away")
	for i, empty := range []bool{false, true} {
		if empty {
			mkdir()
		}
		n = start(t, dir, over)
		c := dial(t, n)
		publishLarge(t, c, "kept", 3+3*i, 6+3*i)
		s, err := c.Admin().Status(t.Context())
		if err != nil || !strings.Contains(strings.Join(s.Degraded, "\n"), "cold tier") {
			t.Errorf("status: %v, %v", s.Degraded, err)
		}
		n.close(t)()
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("%v was written into the empty mount point, %v", left, err)
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	rename(folder+".away", folder)
	n = start(t, dir, over)
	coveredTo(t, n, "kept", 9)
	n.close(t)()
	if err := os.WriteFile(filepath.Join(dir, "folder"), []byte("abc"), 0o600); err != nil {
		t.Fatal(err)
	}
	n = start(t, dir, over)
	coveredTo(t, n, "kept", 9)
}

// What will not come right by itself is named and refused, and no secret is shown.
func TestColdTierThatIsRefused(t *testing.T) {
	t.Parallel()
	careless := &bucket{}
	careless.careless.Store(true)
	for name, c := range map[string]struct {
		durable broker.Durable
		join    bool
		says    []string
	}{
		"no such scheme":     {broker.Durable{URL: "ftp://x"}, false, []string{"open the cold tier", "no driver for ftp://"}},
		"credentials in it":  {broker.Durable{URL: "s3://user:hush@b"}, false, []string{"holds credentials"}},
		"a file, no folder":  {broker.Durable{URL: "file://" + filepath.Join("/proc", "self", "status")}, false, []string{"cold tier"}},
		"several overwrite":  {broker.Durable{URL: "test://b", Drivers: careless.open}, true, []string{"does not honour conditional writes", "test://b", "must not share it"}},
		"alone it may stand": {broker.Durable{URL: "test://b", Drivers: careless.open}, false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := broker.Config{DataDir: t.TempDir(), Name: "n1", Listen: broker.Listen{Client: "127.0.0.1:0"}, Storage: broker.Storage{Durable: c.durable}}
			cfg.Peers.Join = c.join
			if c.join {
				cfg.Peers.Listen, cfg.Peers.Gossip.Bind = freePort(t), freePort(t)
			}
			b, err := broker.Open(t.Context(), cfg)
			if err == nil {
				err = b.Close()
				if c.says == nil {
					if err != nil {
						t.Error(err)
					}
					return
				}
				t.Fatal("it was taken")
			}
			for _, want := range c.says {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "hush") || errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
}
