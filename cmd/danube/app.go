package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/pipe"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/cmd/danube/terminal"
)

// defaultBroker is where a client looks when neither --broker nor DANUBE_BROKER says otherwise.
const defaultBroker = "127.0.0.1:6650"

// app is the program around one command: its streams, environment and clock,
// all replaceable in tests, and the flags every command has.
type app struct {
	in      io.Reader
	out     io.Writer
	err     io.Writer
	env     []string // of the form NAME=value
	now     func() time.Time
	brokers string // --broker
}

func newApp() *app {
	return &app{in: os.Stdin, out: os.Stdout, err: os.Stderr, env: os.Environ(), now: time.Now}
}

// run carries out one command line and returns the exit code.
func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.in)
	root.SetOut(a.out)
	root.SetErr(a.err)
	return fail.Report(a.err, root.ExecuteContext(ctx))
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "danube",
		Short: "A message broker: reliable topics, named durability, one binary",
		Long: "Danube is a message broker in one binary. Start one with `danube standalone`,\n" +
			"then `danube produce` and `danube consume` from another shell.",
		Args:              cobra.ArbitraryArgs,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		return unknownCommand(cmd, args[0])
	}
	root.SetFlagErrorFunc(flagError)
	root.SetHelpCommand(helpCommand(root))
	root.PersistentFlags().StringVar(&a.brokers, "broker", "",
		"address of a broker, or a comma list tried in turn (DANUBE_BROKER, else "+defaultBroker+")")
	root.AddCommand(a.standalone(), a.join(), a.produce(), a.consume(), a.topic(), a.subscription(), a.segment(), a.wal(),
		a.benches(), a.broker(), a.cluster(), a.configuration(), a.completion(), a.version())
	return root
}

// helpCommand is `danube help`: of a command that does not exist it is an error, as calling it would be.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		Args:  cobra.ArbitraryArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			cmd := root
			for _, name := range args {
				var next *cobra.Command
				for _, c := range cmd.Commands() {
					if c.Name() == name {
						next = c
					}
				}
				if next == nil {
					return unknownCommand(cmd, name)
				}
				cmd = next
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}

// group is a command that only holds others.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: cobra.ArbitraryArgs}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		var names []string
		for _, c := range cmd.Commands() {
			names = append(names, c.Name())
		}
		return fail.WithHint(fail.Usagef("%s: a command is missing", commandName(cmd)), "one of %s", strings.Join(names, ", "))
	}
	cmd.AddCommand(children...)
	return cmd
}

func unknownCommand(cmd *cobra.Command, given string) error {
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	err := fail.Usagef("unknown command %q", strings.TrimPrefix(cmd.CommandPath()+" "+given, "danube "))
	if near := settings.Nearest(given, names); near != "" {
		return fail.WithHint(err, "did you mean %s %s?", cmd.CommandPath(), near)
	}
	return fail.WithHint(err, "%s --help lists the commands", cmd.CommandPath())
}

// wantArgs refuses a call that does not have exactly the arguments named.
func wantArgs(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fail.Usagef("%s: %s is missing", commandName(cmd), names[len(args)])
		case len(args) > len(names):
			return fail.Usagef("%s: %q is one argument too many", commandName(cmd), args[len(names)])
		}
		return nil
	}
}

// wantSome refuses a call without its first argument, or with any argument when name is empty.
func wantSome(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fail.Usagef("%s: %s is missing", commandName(cmd), name)
		}
		return nil
	}
}

// getenv returns a variable of the environment, "" when it is not set.
func (a *app) getenv(name string) string {
	for _, e := range a.env {
		if k, v, ok := strings.Cut(e, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// addresses is the brokers to try, in order.
func (a *app) addresses() ([]string, error) {
	list := a.brokers
	if list == "" {
		list = a.getenv("DANUBE_BROKER")
	}
	if list == "" {
		list = defaultBroker
	}
	var addrs []string
	for addr := range strings.SplitSeq(list, ",") {
		if addr = strings.TrimSpace(addr); addr == "" {
			continue
		}
		addr, err := completeAddress(addr)
		if err != nil {
			return nil, fail.Usagef("--broker: %w", err)
		}
		addrs = append(addrs, addr)
	}
	if len(addrs) == 0 {
		return nil, fail.Usagef("--broker: no address in %q", list)
	}
	return addrs, nil
}

// shell is what is told to what moves messages.
func (a *app) shell() pipe.Shell { return pipe.Shell{Out: a.out, Err: a.err, Now: a.now} }

// noticef tells the person at the shell something that is no result and no error.
func (a *app) noticef(format string, args ...any) {
	fmt.Fprintf(a.err, format+"\n", args...)
}

// confirm asks before something is destroyed, or takes yes for the answer. Where nobody can answer it is an error.
func (a *app) confirm(yes bool, question string) error {
	if yes {
		return nil
	}
	if !terminal.Is(a.in) {
		return fail.WithHint(fail.Usagef("%s asks for confirmation and standard input is no terminal", question), "--yes goes ahead without asking")
	}
	fmt.Fprintf(a.err, "%s? [y/N] ", question)
	answer, err := bufio.NewReader(a.in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return errors.New("not confirmed: nothing was done")
}
