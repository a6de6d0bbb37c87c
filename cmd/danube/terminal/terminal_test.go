package terminal

import (
	"bytes"
	"os"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestNothingIsShownElsewhere: into a file or a pipe no bar is written, and its user need not know.
func TestNothingIsShownElsewhere(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var b bytes.Buffer
	if Is(file) || Is(&b) || Is(nil) {
		t.Error("takes a file for a terminal")
	}
	for _, bar := range []*Bar{NewBar(&b, 10, "work", true), NewBar(file, -1, "work", false)} {
		bar.Set(5)
		bar.Done()
	}
	var n atomic.Int64
	Busy(&b, "work")()
	Watch(file, &n, 10, "work")()
	if size, err := file.Seek(0, 2); err != nil || size > 0 || b.Len() > 0 {
		t.Errorf("writes %d bytes and %q, %v", size, b.String(), err)
	}
}

// TestEveryEndsInOrder: what is done again and again is over before the last is done, and that is done once.
func TestEveryEndsInOrder(t *testing.T) {
	var ticks atomic.Int64
	ticked := make(chan struct{}, 1)
	last := int64(-1)
	stop := every(1, func() {
		ticks.Add(1)
		select {
		case ticked <- struct{}{}:
		default:
		}
	}, func() { last = ticks.Load() })
	<-ticked
	stop()
	if n := ticks.Load(); last != n {
		t.Errorf("it went on: %d times, and %d when the last was done", n, last)
	}
}
