// Package bench measures a broker, honestly. Every message carries the number of its run, a stream, a sequence and a CRC;
// everything is read back and checked, outside the time that is measured.
//
// There are three measurements: a Load publishes as fast as it goes, a Drain reads a topic with acknowledgements, a Beat
// publishes at a steady rate and measures until delivery. Each gives a Result. The package knows the client and the stamps
// of its own messages (stamp.go); what is printed, and what it is called on the command line, is the command's.
package bench

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/danubemq/danube/client"
)

// Surroundings is what a run takes from the program around it.
type Surroundings struct {
	Dial func(context.Context) (*client.Client, error)
	// Say tells the person who waits what was found wrong, one line a call. nil: nobody is told, Result.Errors counts.
	Say func(line string)
	// Watch shows how far n is on its way to total (not above 0: unknown), until the function it returns is called. May be nil.
	Watch func(n *atomic.Int64, total int64, what string) (stop func())
}

func (s Surroundings) say(format string, args ...any) {
	if s.Say != nil {
		s.Say(fmt.Sprintf(format, args...))
	}
}

func (s Surroundings) watch(n *atomic.Int64, total int64, what string) (stop func()) {
	if s.Watch == nil {
		return func() {}
	}
	return s.Watch(n, total, what)
}
