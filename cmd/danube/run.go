package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/node"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/storage"
)

func (a *app) logger(level string) *slog.Logger {
	var l slog.Level
	// The setting allows only what slog knows.
	_ = l.UnmarshalText([]byte(level))
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{Level: l}))
}

// url is where the HTTP port answers: at the advertised host when it listens on all addresses.
func url(listening, advertise string) string {
	host, port, err := net.SplitHostPort(listening)
	told, _, tellErr := net.SplitHostPort(advertise)
	if ip := net.ParseIP(host); err == nil && tellErr == nil && ip != nil && ip.IsUnspecified() {
		listening = net.JoinHostPort(told, port)
	}
	return "http://" + listening
}

// serve runs a broker until ctx ends, alone or in a cluster: there is no other way to run one.
func (a *app) serve(ctx context.Context, src settings.Sources) error {
	cfg, warnings, err := settings.Load(src)
	if err != nil {
		return fail.With(fail.Usage, err)
	}
	log := a.logger(cfg.LogLevel)
	for _, w := range warnings {
		log.Warn("configuration: " + w)
	}
	bc, err := node.Config(cfg, release, src.Alone, log)
	if err != nil {
		return err
	}
	if a.getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(goMemory(bc.Memory))
	}
	if ip := net.ParseIP(cfg.Host); ip != nil && !ip.IsLoopback() {
		log.Warn("listening beyond this machine without authentication: whoever reaches the ports may do everything",
			"address", bc.Listen.Client, "clients_are_told", cmp.Or(bc.Advertise, bc.Listen.Client))
	}
	faults, done, err := a.openFaults(&bc)
	if err != nil {
		return err
	}
	defer done()
	b, err := broker.Open(ctx, bc)
	if err != nil {
		if errors.Is(context.Cause(ctx), fail.ErrInterrupted) {
			return nil // asked to stop before it began
		}
		return node.Explain(fmt.Errorf("start: %w", err), bc)
	}
	err = node.KeepName(bc.DataDir, bc.Name)
	if err == nil {
		a.sayReady(b, bc, faults)
		err = b.Run(ctx)
	}
	return errors.Join(err, closeWithin(cfg.ShutdownTimeout, b.Close))
}

// sayReady prints the line that says that the broker serves.
func (a *app) sayReady(b *broker.Broker, bc broker.Config, faults string) {
	durability := bc.Storage.Durability
	if durability == "local" && bc.Storage.Sync == storage.Interval {
		durability = "interval"
	}
	fmt.Fprintf(a.out, "ready broker=%s cluster=%s clients=%s http=%s data=%s topics=%d durability=%s%s\n",
		bc.Name, bc.Cluster, b.ClientAddr(), url(b.HTTPAddr(), bc.Advertise), bc.DataDir, b.Topics(), durability, faults)
}

// goMemory is where Go's collector is to get busy: the budget of the broker and room for what is not in it.
func goMemory(budget int64) int64 { return budget + budget/4 + 64<<20 }

// closeWithin bounds a stop. What was acknowledged is on disk whether it ends in time or not.
func closeWithin(limit time.Duration, stop func() error) error {
	done := make(chan error, 1)
	// Returns when the broker is closed; after the limit the process ends without it.
	go func() { done <- stop() }()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("stop: %w", err)
		}
		return nil
	case <-timer.C:
		return fmt.Errorf("stop: not done after %s (shutdown_timeout): what was acknowledged is stored, the next start recovers", settings.FormatDuration(limit))
	}
}
