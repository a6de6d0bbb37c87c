// Package pipe moves messages between a topic and the streams of a shell. A [Sender] sends what an [Input] yields, many
// messages in flight, and keeps the account of what became of them; a [Drain] prints what a [Feed] yields and acknowledges
// each message after its bytes were written.
//
// A Sender has a goroutine that reads the input, which may stay behind in a read that never returns, and one that tells
// what is being waited for; a Drain has none but its timers'.
package pipe

import (
	"fmt"
	"io"
	"time"
)

// Shell is where a command prints, and its clock.
type Shell struct {
	Out io.Writer // results
	Err io.Writer // everything said to a person
	Now func() time.Time
}

// noticef tells the person at the shell something that is no result and no error.
func (s Shell) noticef(format string, args ...any) {
	fmt.Fprintf(s.Err, format+"\n", args...)
}
