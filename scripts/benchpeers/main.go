// Command benchpeers measures Danube against NATS JetStream and against a measuring stick, side by side.
//
//	benchpeers compare [flags]    start the servers, run pairs A B A B of every row, print medians of their ratios
//	benchpeers drive WORK [flags] one run of the peer's client, in a process of its own
//
// Everything listens on 127.0.0.1, ends by itself and is bounded in time. scripts/bench-peers builds what it needs.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := errors.New("say compare or drive")
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "compare":
			err = compare(ctx, os.Args[2:])
		case "drive":
			err = runDrive(ctx, os.Args[2:], os.Stdout)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchpeers:", err)
		os.Exit(1)
	}
}

// compare runs every row and prints the report. A figure that is not reached is no error: it is reported.
func compare(ctx context.Context, args []string) (err error) {
	s, err := parseSettings(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	b, err := openBench(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	plain, err := plainFigures(b.work, b.bytes)
	if err != nil {
		return err
	}
	report := report{settings: s, args: args, plain: plain}
	for _, r := range b.rows() {
		if !s.only.MatchString(r.name) {
			continue
		}
		fmt.Fprintln(os.Stderr, "row", r.name)
		report.lines = append(report.lines, b.run(ctx, r)...)
		if ctx.Err() != nil {
			report.note = "cut short: " + ctx.Err().Error()
			break
		}
	}
	text := report.markdown()
	fmt.Print(text)
	if s.markdown != "" {
		if err := os.WriteFile(s.markdown, []byte(text), 0o644); err != nil {
			return fmt.Errorf("write report: %w", err)
		}
	}
	return nil
}

// run plays the pairs of a row, theirs before ours, and makes its lines of the report.
func (b *bench) run(ctx context.Context, r row) []line {
	theirs, mode := r.theirs, ""
	var theirErr, ourErr error
	if r.best != nil {
		theirs, mode, theirErr = r.best(ctx)
	}
	if b.broker != nil {
		b.broker.peak.Store(0)
	}
	var us, them []result
	for i := 0; i < b.pairs && ctx.Err() == nil; i++ {
		if theirs != nil && theirErr == nil {
			var t result
			if t, theirErr = theirs(ctx); theirErr == nil {
				them = append(them, t)
			}
		}
		if ourErr == nil {
			var o result
			if o, ourErr = r.ours(ctx); ourErr == nil {
				us = append(us, o)
			}
		}
		fmt.Fprintf(os.Stderr, "  pair %d of %d%s\n", i+1, b.pairs, complaints(theirErr, ourErr))
	}
	var lines []line
	for _, g := range r.goals {
		lines = append(lines, judge(r, g, mode, us, them))
		lines[len(lines)-1].note = strings.TrimSpace(complaints(theirErr, ourErr))
	}
	if r.memory && b.broker != nil && len(us) > 0 {
		peak := float64(b.broker.peak.Load()) / (1 << 20)
		lines = append(lines, line{work: "memory of the broker meanwhile", figure: "MiB", bound: "at most 200", ours: peak, measured: true, reached: peak <= 200})
	}
	return lines
}

func complaints(errs ...error) string {
	text := ""
	for _, err := range errs {
		if err != nil {
			text += " · " + err.Error()
		}
	}
	return text
}
