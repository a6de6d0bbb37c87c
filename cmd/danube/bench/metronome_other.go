//go:build !linux

package bench

import "time"

// metronome waits for times as exactly as the runtime's timers do.
type metronome struct{}

func newMetronome() metronome { return metronome{} }

func (metronome) wait(d time.Duration) {
	timer := time.NewTimer(min(d, time.Second))
	<-timer.C
}

func (metronome) stop() {}
