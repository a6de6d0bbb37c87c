package client

import (
	"errors"
	"fmt"

	"github.com/danubemq/danube/protocol"
)

// Errors that callers branch on; compare with [errors.Is]. An error that a
// broker answered carries a [*protocol.Error]: every code can be asked for with
// errors.Is(err, &protocol.Error{Code: …}), and errors.As gives text and hint.
var (
	// ErrClosed: the Client, Producer, Consumer or Reader was closed.
	ErrClosed = errors.New("closed")
	// ErrNoSuchTopic: the topic does not exist.
	ErrNoSuchTopic error = protocol.Errorf(protocol.CodeNoSuchTopic, "no such topic")
	// ErrNotAllowed: the broker knows who asks and refuses.
	ErrNotAllowed error = protocol.Errorf(protocol.CodeNotAllowed, "not allowed")
	// ErrOverloaded: the broker has no room at the moment.
	ErrOverloaded error = protocol.Errorf(protocol.CodeOverloaded, "broker overloaded")
	// ErrTimeout: time ran out, here or at the broker. What went wrong last, if
	// anything, is wrapped beside it.
	ErrTimeout error = protocol.Errorf(protocol.CodeTimeout, "timed out")
)

// UnknownError says that it is not known whether messages are stored: they may
// be read later or never.
type UnknownError struct {
	Count int   // messages
	Err   error // why nothing is known
}

// Error is the text for a person.
func (e *UnknownError) Error() string {
	if e.Count == 1 {
		return fmt.Sprintf("whether the message is stored is not known: %v", e.Err)
	}
	return fmt.Sprintf("whether %d messages are stored is not known: %v", e.Count, e.Err)
}

// counted is "1 partition", "2 partitions".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Unwrap is the cause.
func (e *UnknownError) Unwrap() error { return e.Err }

// superseded is the status of offsets whose messages are read at later ones.
const superseded = "superseded"

// GapError says that the offsets [From, To) of a partition are not delivered, and why.
type GapError struct {
	Topic     string
	Partition int
	From, To  uint64
	Status    string // trimmed, lost, orphaned, damaged, slow, unexplained, or superseded, which is no loss
}

// Error is the text for a person.
func (e *GapError) Error() string {
	if e.Status == superseded {
		return fmt.Sprintf("%s:%d: offsets %d to %d are superseded: their messages were stored again and come at later offsets",
			e.Topic, e.Partition, e.From, e.To-1)
	}
	return fmt.Sprintf("%s:%d has a gap at offsets %d to %d (%s)", e.Topic, e.Partition, e.From, e.To-1, e.Status)
}

// wireError turns what a broker answered into the error of op.
func wireError(op string, e *protocol.Error) error {
	return fmt.Errorf("%s: %w", op, e)
}

// hasCode reports whether err carries one of the codes.
func hasCode(err error, codes ...protocol.Code) bool {
	e, ok := errors.AsType[*protocol.Error](err)
	if !ok {
		return false
	}
	for _, c := range codes {
		if e.Code == c {
			return true
		}
	}
	return false
}
