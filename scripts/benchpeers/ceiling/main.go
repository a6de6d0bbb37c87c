// Command ceiling is the least that a durable broker can be: a measuring stick for ours, in the same run.
//
// Its server checks a CRC, copies frames into one file with group commit, and acknowledges; it has no index, no
// subscriptions, no topics and no recovery. What it reaches no broker of that shape exceeds on the same machine.
//
//	ceiling serve   [--address A] [--file PATH] [--laid BYTES] [--sync=true]
//	ceiling publish [--address A] [--size B] [--count N] [--window N] [--connections N]
//	ceiling latency [--address A] [--size B] [--rate N] [--duration D]
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ceiling:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("say serve, publish or latency")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	address := flags.String("address", "127.0.0.1:17777", "where the server listens")
	switch args[0] {
	case "serve":
		path := flags.String("file", "ceiling.log", "the log, emptied at the start")
		laid := flags.Int64("laid", 0, "bytes to fill with zeros ahead and use again and again; 0 is a growing file")
		durable := flags.Bool("sync", true, "fdatasync before the acknowledgement")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		return runServer(*address, *path, *laid, *durable)
	case "publish", "latency":
		l := load{}
		flags.IntVar(&l.size, "size", 1024, "bytes of a message, at least 8")
		flags.IntVar(&l.window, "window", 500, "messages in flight on a connection")
		flags.IntVar(&l.conns, "connections", 1, "connections")
		flags.Int64Var(&l.count, "count", 1_000_000, "messages in all")
		flags.IntVar(&l.rate, "rate", 1000, "messages a second")
		flags.DurationVar(&l.duration, "duration", 10*time.Second, "for how long")
		if err := flags.Parse(args[1:]); err != nil {
			return err
		}
		l.address = *address
		measure := publishAll
		if args[0] == "latency" {
			measure = measureDelivery
		}
		r, err := measure(l)
		if err != nil {
			return err
		}
		return json.NewEncoder(os.Stdout).Encode(r)
	default:
		return fmt.Errorf("unknown command %q", args[0])
	}
}

// runServer serves until it is interrupted, or the log fails.
func runServer(address, path string, laid int64, durable bool) error {
	log, err := openLog(path, laid, durable)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	failed := make(chan error, 1)
	go func() { failed <- log.run() }() // returns when the disk fails
	go serve(l, log)                    // returns when the listener is closed
	fmt.Println("ready " + l.Addr().String())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, os.Interrupt, syscall.SIGTERM)
	select {
	case err := <-failed:
		return err
	case <-stop:
		return l.Close()
	}
}
