package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/protocol"
)

// The exit codes; docs/cli.md promises them.
const (
	exitDone     = 0
	exitFailed   = 1
	exitUsage    = 2
	exitTimedOut = 3
)

// failure is an error that knows its exit code, and what to do about it.
type failure struct {
	code int
	err  error
	hint string
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// usagef is an error in how the command was called.
func usagef(format string, args ...any) error {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// withHint adds the line that says what to do about err. It keeps err's exit code.
func withHint(err error, format string, args ...any) error {
	return &failure{code: exitCode(err), err: err, hint: fmt.Sprintf(format, args...)}
}

// failed says what failed in front of why. What the broker answered speaks for itself: the steps that led to it are left
// out, unless time ran out in between.
func failed(err error, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	e, answered := errors.AsType[*protocol.Error](err)
	_, unknown := errors.AsType[*client.UnknownError](err)
	if !answered || unknown || e.Code == protocol.CodeTimeout || exitCode(err) != exitFailed {
		return fmt.Errorf("%s: %w", what, err)
	}
	short := fmt.Errorf("%s: %w", what, e)
	if hint := hintOf(err); hint != "" {
		return withHint(short, "%s", hint)
	}
	return short
}

// errQuiet ends a command with exit code 1 after it has itself said why.
var errQuiet = errors.New("failed")

// exitCode is the exit code for err.
func exitCode(err error) int {
	if err == nil {
		return exitDone
	}
	if f, ok := errors.AsType[*failure](err); ok {
		return f.code
	}
	return exitFailed
}

// hintOf finds the hint of err: the command's own, else the broker's.
func hintOf(err error) string {
	for f, ok := errors.AsType[*failure](err); ok; f, ok = errors.AsType[*failure](f.err) {
		if f.hint != "" {
			return f.hint
		}
	}
	if e, ok := errors.AsType[*protocol.Error](err); ok {
		return e.Hint
	}
	return ""
}

// report prints err as the house does, one line a problem and the hint below, and returns the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitDone
	}
	code := exitCode(err)
	if code == exitDone || errors.Is(err, errQuiet) {
		return code
	}
	for line := range strings.SplitSeq(strings.TrimRight(err.Error(), "\n"), "\n") {
		fmt.Fprintf(w, "danube: %s\n", line)
	}
	if e, ok := errors.AsType[*protocol.Error](err); ok && e.Request != "" {
		fmt.Fprintf(w, "  request %s (the broker's log has it too)\n", e.Request)
	}
	if hint := hintOf(err); hint != "" {
		fmt.Fprintf(w, "  hint: %s\n", hint)
	}
	return code
}

// flagError turns what pflag says into the house's words, with the nearest flag.
func flagError(cmd *cobra.Command, err error) error {
	name := commandName(cmd)
	if !cmd.HasParent() {
		name = "danube"
		if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
			return withHint(usagef("unknown flag --%s", missing.GetSpecifiedName()), "danube --help lists the commands and their flags")
		}
	}
	if missing, ok := errors.AsType[*pflag.NotExistError](err); ok {
		given := missing.GetSpecifiedName()
		if len(given) == 1 {
			return withHint(usagef("%s: unknown flag -%s", name, given), "danube %s --help lists the flags", name)
		}
		if near := settings.Nearest(given, flagNames(cmd)); near != "" {
			return withHint(usagef("%s: unknown flag --%s", name, given), "did you mean --%s?", near)
		}
		return withHint(usagef("%s: unknown flag --%s", name, given), "danube %s --help lists the flags", name)
	}
	if bad, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return usagef("%s: --%s %s: %w", name, bad.GetFlag().Name, bad.GetValue(), bad.Unwrap())
	}
	return usagef("%s: %w", name, err)
}

// commandName is the command without the program: "topic create".
func commandName(cmd *cobra.Command) string {
	path := cmd.CommandPath()
	if _, rest, ok := strings.Cut(path, " "); ok {
		return rest
	}
	return path
}

func flagNames(cmd *cobra.Command) []string {
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}
