package bench

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// metronome waits for short times exactly. The runtime's own timers wake an idle
// program up to a millisecond late, which would be measured as latency.
type metronome struct{}

// newMetronome takes the thread for itself until stop; it must be used by the goroutine that made it.
func newMetronome() metronome {
	runtime.LockOSThread()
	// Without it the kernel may add 50 µs; where it is refused it does.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	return metronome{}
}

// wait returns after d, or earlier when a signal came.
func (metronome) wait(d time.Duration) {
	t := unix.NsecToTimespec(int64(min(d, time.Second)))
	// EINTR is an early return.
	_ = unix.Nanosleep(&t, nil)
}

func (metronome) stop() { runtime.UnlockOSThread() }
