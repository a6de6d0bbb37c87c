package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/protocol"
)

// dial connects to the cluster. The error names what was tried and what would help.
func (a *app) dial(ctx context.Context) (*client.Client, error) { return a.dialFor(ctx, 0) }

// noLeader is how long a command goes on where brokers say that nobody leads the cluster: far longer than an election takes.
const noLeader = 8 * time.Second

// dialFor is dial for an operation that may take so long, 0 for as long as the client takes by itself.
func (a *app) dialFor(ctx context.Context, limit time.Duration) (*client.Client, error) {
	addrs, err := a.addresses()
	if err != nil {
		return nil, err
	}
	log := slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: slog.LevelWarn}))
	c, err := client.Dial(ctx, addrs, client.Config{Name: "danube " + release, Logger: log, Timeout: limit, NoLeader: noLeader})
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) {
			err = fmt.Errorf("connect to %s: %w", strings.Join(addrs, ", "), syscall.ECONNREFUSED)
			return nil, fail.WithHint(err, "`danube standalone` starts a broker; --broker or DANUBE_BROKER names another address")
		}
		err = fmt.Errorf("connect to the broker: %w", err)
		if errors.Is(err, client.ErrTimeout) && ctx.Err() == nil {
			err = fail.WithHint(err, "it listens and does not serve: it may be waiting for its seeds or for the cluster. Its log says for what, and so does /readyz on its HTTP port")
		} else if hint := wrongPort(err, addrs); hint != "" && ctx.Err() == nil {
			err = fail.WithHint(err, "%s", hint)
		}
		return nil, err
	}
	return c, nil
}

// wrongPort says what may be the matter where something listens and does not answer as a broker does; "" where something else is.
func wrongPort(err error, addrs []string) string {
	_, unresolved := errors.AsType[*net.DNSError](err)
	_, coded := errors.AsType[*protocol.Error](err)
	if unresolved || coded || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH) {
		return ""
	}
	hint := "--broker names the port for clients, 6650 unless the broker was started with another"
	for _, addr := range addrs {
		for port, what := range map[string]string{"8650": "HTTP", "7650": "brokers among themselves", "7946": "gossip"} {
			if strings.HasSuffix(addr, ":"+port) {
				return hint + "; " + port + " is for " + what
			}
		}
	}
	return hint
}

// show makes of cmd one that asks for something and prints it, as JSON or for a person. what is for the error.
func show[R any](a *app, cmd *cobra.Command, what string, op func(*client.Admin, context.Context) (R, error), print func(io.Writer, R) error) *cobra.Command {
	output := addOutput(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		answer, err := ask(cmd.Context(), a, func(admin *client.Admin, ctx context.Context, _ struct{}) (R, error) { return op(admin, ctx) }, struct{}{})
		if err != nil {
			return fail.Doing(err, "%s", what)
		}
		if output.value == "json" {
			return render.JSON(a.out, answer)
		}
		return print(a.out, answer)
	}
	return cmd
}

// ask calls one operation that answers something, on a connection of its own.
func ask[A, R any](ctx context.Context, a *app, op func(*client.Admin, context.Context, A) (R, error), arg A) (R, error) {
	c, err := a.dial(ctx)
	if err != nil {
		var none R
		return none, err
	}
	defer c.Close()
	return op(c.Admin(), ctx, arg)
}

// tell calls one operation that answers nothing, on a connection of its own.
func tell[A any](ctx context.Context, a *app, op func(*client.Admin, context.Context, A) error, arg A) error {
	c, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	return op(c.Admin(), ctx, arg)
}

// explained adds to an error of reading a topic what would help.
func explained(err error, topic string) error {
	is := func(c protocol.Code) bool { return errors.Is(err, &protocol.Error{Code: c}) }
	switch {
	case fail.HintOf(err) != "":
		return err
	case is(protocol.CodeNoSuchTopic):
		return fail.WithHint(err, "`danube topic create %s` makes it; so does `danube produce %s`", topic, topic)
	case is(protocol.CodeBelowLogStart):
		return fail.WithHint(err, "earliest is what is left of the topic")
	case is(protocol.CodeAboveEnd):
		return fail.WithHint(err, "latest is what comes from now on; `danube topic describe %s` tells the next offset", topic)
	}
	return err
}
