package export

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/danubemq/danube/storage/wal"
)

// The bucket is away until the disk is full (A18): producers are refused, nothing is given up. When it is back
// everything is exported without any space, what is covered is given up, and producers go on.
func TestFullDiskHealsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, 0, nil)
		defer w.close()
		w.bucket.script(func(context.Context, string, []byte) error { return errLost })
		w.fsys.Limit(8<<20 + 400<<10) // the log leaves 8 MiB to others
		full := false
		for range 1000 {
			if err := w.parts[0].send(1, 1000); err != nil {
				full = errors.Is(err, wal.ErrFull)
				break
			}
			if err := w.parts[1].send(1, 200); err != nil {
				full = errors.Is(err, wal.ErrFull)
				break
			}
			wait(50 * time.Millisecond)
		}
		if !full || w.end(0) != 0 {
			t.Fatalf("full: %t, exported up to %d", full, w.end(0))
		}
		w.export.Pressed(true)
		freed := int64(0)
		release := func() {
			for n, p := range w.parts {
				p.log.Covered([]wal.Offsets{{From: 0, To: w.end(n)}})
				f, err := p.log.Release(w.end(n))
				if err != nil {
					t.Fatal(err)
				}
				freed += f
			}
		}
		wait(time.Minute)
		if release(); freed != 0 {
			t.Fatalf("%d bytes were given up that are nowhere else", freed)
		}
		w.bucket.script(nil)
		wait(2 * time.Minute)
		w.checkAll()
		if release(); freed < 100<<10 {
			t.Fatalf("%d bytes were given up", freed)
		}
		wait(time.Second)
		if err := w.parts[2].send(50, 1000); err != nil {
			t.Fatalf("with space again: %v", err)
		}
	})
}
