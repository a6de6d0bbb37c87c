package terminal

import (
	"bytes"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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

// TestEveryEndsInOrder: what is done again and again is over before the last is done, and is not done behind it.
func TestEveryEndsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun, last atomic.Int64 // last: how many had begun when the last was done
		release := make(chan struct{})
		stop := every(time.Second, func() { begun.Add(1); <-release }, func() { last.Store(begun.Load()) })
		time.AfterFunc(1500*time.Millisecond, stop)
		<-time.After(3 * time.Second)
		if begun.Load() != 1 || last.Load() != 0 {
			t.Errorf("begun %d times, the last done behind %d, while the first goes on", begun.Load(), last.Load())
		}
		close(release)
		<-time.After(3 * time.Second)
		if n := begun.Load(); last.Load() != n {
			t.Errorf("begun %d times, the last done behind %d", n, last.Load())
		}
	})
}
