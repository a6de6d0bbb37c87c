// Command danube is the broker and everything one does with it from a shell:
// standalone runs a broker, produce and consume move messages, topic and
// subscription administer, segment and wal look at files, bench measures.
//
// There is one file per subcommand. What they share: app.go (the streams, the
// root command), errors.go (exit codes, what is printed when something fails),
// output.go (tables and JSON), parse.go and flags.go (values of flags). The
// broker's configuration is the package settings, what bench measures the
// package bench.
package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"github.com/danubemq/danube/cmd/danube/fail"
)

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

func main() {
	os.Exit(start())
}

func start() int {
	// A reader that went away is an error of the write, not a death by signal:
	// consume still has acknowledgements to leave out and an exit code to choose.
	signal.Ignore(syscall.SIGPIPE)
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	// Returns when the process does.
	go func() {
		<-signals
		cancel(errInterrupted)
		<-signals
		os.Exit(fail.Failed)
	}()
	return newApp().run(ctx, os.Args[1:])
}
