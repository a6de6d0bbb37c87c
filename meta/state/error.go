package state

import (
	"errors"
	"fmt"

	"github.com/danubemq/danube/meta/settings"
)

// Error is a refusal: the command was applied and changed nothing (a batched one: the entry changed nothing). It may
// travel to another broker as it is; errors.Is compares codes.
type Error struct {
	Code uint16 `msgpack:"c"` // append-only
	Text string `msgpack:"t"`
}

func (e *Error) Error() string { return e.Text }

// Is reports whether target is a refusal of the same kind.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// The kinds of refusal.
var (
	// ErrInvalid: the command breaks a rule of names, bounds or offsets; proposing it again cannot help.
	ErrInvalid = &Error{Code: 1, Text: "invalid"}
	// ErrExists: the name is taken by something with other settings.
	ErrExists = &Error{Code: 2, Text: "exists with other settings"}
	// ErrNotFound: no such namespace, topic, partition, subscription or store.
	ErrNotFound = &Error{Code: 3, Text: "not found"}
	// ErrStaleEpoch: the partition has another epoch; whoever proposed this no longer owns it.
	ErrStaleEpoch = &Error{Code: 4, Text: "stale epoch"}
	// ErrStaleGeneration: the cursor was reset since.
	ErrStaleGeneration = &Error{Code: 5, Text: "stale generation"}
	// ErrFenced: the store is unknown, or a newer process runs on it.
	ErrFenced = &Error{Code: 6, Text: "fenced"}
	// ErrConflict: what is there does not allow it now, such as a namespace that still has topics.
	ErrConflict = &Error{Code: 7, Text: "conflict"}
	// ErrOrphaned: acknowledged messages below the new start may come back; make their range LOST first.
	ErrOrphaned = &Error{Code: 8, Text: "orphaned range in the way"}
)

// Errors that are not results of a command.
var (
	// ErrNewerCommand: a command of a newer release. The state machine has stopped: it applies nothing more and takes
	// no snapshot, because guessing would make this broker diverge from the others.
	ErrNewerCommand = errors.New("metadata command of a newer release; upgrade this broker")
	// ErrDamaged: the bytes of a command or a snapshot are not what was written. The state machine has stopped.
	ErrDamaged = errors.New("metadata is damaged")
	// ErrTooLarge: the encoded command exceeds MaxCommand. Nothing was proposed; see Split.
	ErrTooLarge = errors.New("metadata command too large")
)

// CheckName refuses a part of a name that is not allowed; what says what it is the name of.
func CheckName(what, name string) error { return invalid(settings.CheckName(what, name)) }

// SplitTopic cuts "/namespace/name" in its two parts and refuses anything else.
func SplitTopic(topic string) (namespace, name string, err error) {
	namespace, name, err = settings.SplitTopic(topic)
	return namespace, name, invalid(err)
}

// invalid makes a refusal of what a package below says.
func invalid(err error) error {
	if err == nil {
		return nil
	}
	return refuse(ErrInvalid, "%v", err)
}

// refuse returns a refusal of the kind of base that says why.
func refuse(base *Error, format string, args ...any) error {
	return &Error{Code: base.Code, Text: fmt.Sprintf(format, args...)}
}
