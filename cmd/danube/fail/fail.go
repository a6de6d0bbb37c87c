// Package fail is how a command fails: an error of it may know the exit code and what to do about it, and Report is the
// one place that prints errors. The texts are one line a problem, with a hint below where one helps.
package fail

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// The exit codes; docs/cli.md promises them.
const (
	Done     = 0
	Failed   = 1
	Usage    = 2 // the command line or the configuration is wrong
	TimedOut = 3
)

// ErrInterrupted is the cause of a context that a signal ended.
var ErrInterrupted = errors.New("interrupted")

// failure is an error that knows its exit code, and what to do about it.
type failure struct {
	code int
	err  error
	hint string
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// With is err with an exit code.
func With(code int, err error) error { return &failure{code: code, err: err} }

// Usagef is an error in how the command was called.
func Usagef(format string, args ...any) error {
	return With(Usage, fmt.Errorf(format, args...))
}

// WithHint adds the line that says what to do about err. It keeps err's exit code.
func WithHint(err error, format string, args ...any) error {
	return &failure{code: CodeOf(err), err: err, hint: fmt.Sprintf(format, args...)}
}

// Doing says what failed in front of why. What the broker answered speaks for itself: the steps that led to it are left
// out, unless time ran out in between.
func Doing(err error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	e, answered := errors.AsType[*protocol.Error](err)
	_, unknown := errors.AsType[*client.UnknownError](err)
	if !answered || unknown || e.Code == protocol.CodeTimeout || CodeOf(err) != Failed {
		return fmt.Errorf("%s: %w", what, err)
	}
	short := fmt.Errorf("%s: %w", what, e)
	if hint := HintOf(err); hint != "" {
		return WithHint(short, "%s", hint)
	}
	return short
}

// errQuiet ends a command that has itself said why.
var errQuiet = errors.New("failed")

// Quietly is the exit code without a text, for an error that was printed as part of the result.
func Quietly(err error, code int) error {
	if err == nil {
		return nil
	}
	return With(code, errQuiet)
}

// CodeOf is the exit code for err.
func CodeOf(err error) int {
	if err == nil {
		return Done
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	return Failed
}

// HintOf finds the hint of err: the command's own, else the broker's.
func HintOf(err error) string {
	for f, ok := errors.AsType[*failure](err); ok; f, ok = errors.AsType[*failure](f.err) {
		if f.hint != "" {
			return f.hint
		}
	}
	return brokerHint(err)
}

// brokerHint finds the first hint that a broker gave: one whose time ran out wraps what went wrong before.
func brokerHint(err error) string {
	if e, ok := err.(*protocol.Error); ok && e.Hint != "" {
		return e.Hint
	}
	switch x := err.(type) {
	case interface{ Unwrap() error }:
		return brokerHint(x.Unwrap())
	case interface{ Unwrap() []error }:
		for _, err := range x.Unwrap() {
			if hint := brokerHint(err); hint != "" {
				return hint
			}
		}
	}
	return ""
}

// problems are the errors that err joins, each a problem of its own: those of a configuration, say. What is wrapped in a
// sentence is one problem, however many lines it has.
func problems(err error) []error {
	for {
		f, ok := err.(*failure)
		if !ok {
			break
		}
		err = f.err
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, problems(e)...)
		}
		if errors.Join(all...).Error() == err.Error() {
			return all
		}
	}
	return []error{err}
}

// Report prints err as the house does, one line a problem and the hint below, and returns the exit code.
func Report(w io.Writer, err error) int {
	if err == nil {
		return Done
	}
	code := CodeOf(err)
	if code == Done || errors.Is(err, errQuiet) {
		return code
	}
	for _, problem := range problems(err) {
		text := strings.TrimRight(problem.Error(), "\n")
		fmt.Fprintf(w, "danube: %s\n", strings.ReplaceAll(text, "\n", "\n  "))
	}
	if e, ok := errors.AsType[*protocol.Error](err); ok && e.Request != "" {
		fmt.Fprintf(w, "  request %s (the broker's log has it too)\n", e.Request)
	}
	if hint := HintOf(err); hint != "" {
		fmt.Fprintf(w, "  hint: %s\n", hint)
	}
	return code
}
