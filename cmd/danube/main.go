// Command danube is the broker and everything one does with it from a shell:
// standalone runs a broker, produce and consume move messages, topic and
// subscription administer, segment and wal look at files, bench measures.
//
// There is one file per subcommand: flags, questions and exit codes. What they share: app.go (the streams, the root
// command), errors.go (wrong flags), flags.go and parse.go (values of flags). What commands do lies below them: fail (exit
// codes, what is printed when something fails), render (tables and JSON), terminal (bars), settings (the broker's
// configuration), view (what a broker answers, for a person), pipe (messages between a topic and the streams), offline
// (the files of a stopped broker), node (the broker that settings mean) and bench (what is measured).
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/danubemq/danube/cmd/danube/fail"
)

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
		cancel(fail.ErrInterrupted)
		<-signals
		os.Exit(fail.Failed)
	}()
	return newApp().run(ctx, os.Args[1:])
}
