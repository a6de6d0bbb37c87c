package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// side is one run of one side.
type side func(context.Context) (result, error)

// What a side says that cannot run: its rows are reported as not measured.
var (
	errNoDanube = errors.New("no danube program")
	errNoPeer   = errors.New("no peer")
)

// row is one line of the figures to reach.
type row struct {
	name   string // for -only
	work   string
	ours   side
	theirs side // nil: ours is held against a bound
	goals  []goal
	// best picks the peer's best mode once, before the pairs.
	best func(context.Context) (side, string, error)
	// memory also reports the broker's resident memory, against a bound in MiB.
	memory bool
}

// goal is what a row asks for of one figure.
type goal struct {
	figure string
	of     func(result) float64
	// least or most bounds the ratio ours to theirs, or ours alone in a row without theirs; 0 is no bound.
	least, most float64
}

func rate(least float64) goal {
	return goal{figure: "msg/s", of: func(r result) float64 { return r.Rate }, least: least}
}
func speed(least float64) goal {
	return goal{figure: "MB/s", of: func(r result) float64 { return float64(r.Bytes) / r.Seconds / 1e6 }, least: least}
}
func median(most float64) goal {
	return goal{figure: "median µs", of: func(r result) float64 { return r.P50 }, most: most}
}
func p99(most float64) goal {
	return goal{figure: "99th percentile µs", of: func(r result) float64 { return r.P99 }, most: most}
}

// window is how many messages of a size are in flight when it goes as fast as it goes: at most 16 MiB of them.
func window(size int) int { return min(10_000, 16<<20/size) }

// rows are the figures to reach, in their order.
func (b *bench) rows() []row {
	var all []row
	for _, p := range []struct {
		size  int
		least float64
		goals string
	}{{128, 3, ""}, {1024, 2, ""}, {16384, 0, " (reported only)"}} {
		all = append(all, row{
			name: fmt.Sprintf("publish-%d", p.size), work: fmt.Sprintf("publish, %d B, durable, against JetStream's best mode as it comes%s", p.size, p.goals),
			ours: b.publishOurs(p.size), best: b.bestMode(p.size), goals: []goal{rate(p.least)}, memory: true,
		})
	}
	all = append(all, row{name: "publish-16384-plain", work: "publish, 16384 B, durable, against plain 1 MiB writes with fdatasync, file: " + b.kind,
		ours: b.publishOurs(16384), theirs: b.plainWrites(), goals: []goal{speed(.5)}})
	all = append(all, b.syncRows()...)
	for _, p := range []struct {
		size  int
		least float64
	}{{128, 4}, {1024, 3}, {16384, 1.5}} {
		n := b.countOf(p.size)
		all = append(all, row{
			name: fmt.Sprintf("consume-%d", p.size), work: fmt.Sprintf("consume from the beginning with acks, %d B, against a pull consumer with acks", p.size),
			ours: b.ours([]string{"bench", "produce", "TOPIC", "--size", strconv.Itoa(p.size), "--count", n, "--window", strconv.Itoa(window(p.size))},
				"consume", "TOPIC", "--count", n),
			theirs: b.peer(b.nats, p.size, []string{"async", "--count", n, "--window", "4000"}, []string{"consume", "--count", n}),
			goals:  []goal{rate(p.least)},
		})
	}
	return append(append(all, b.latencyRows()...), b.stickRows()...)
}

// countOf is how many messages of a size make a run.
func (b *bench) countOf(size int) string { return strconv.FormatInt(b.bytes/int64(size), 10) }

func (b *bench) publishOurs(size int) side {
	return b.ours(nil, "produce", "TOPIC", "--size", strconv.Itoa(size), "--count", b.countOf(size), "--window", strconv.Itoa(window(size)))
}

// syncRows are those in which every connection waits for each of its messages.
func (b *bench) syncRows() []row {
	// Bounded by time: at these rates 2 GiB would take minutes a run.
	many := strconv.Itoa(int(6000 * b.seconds.Seconds()))
	few := strconv.Itoa(int(3000 * b.seconds.Seconds()))
	return []row{
		{name: "sync-16", work: "16 connections with one message in flight each, 1 KiB, durable, against sync_interval: always",
			ours:   b.ours(nil, "produce", "TOPIC", "--size", "1024", "--count", many, "--connections", "16", "--window", "1"),
			theirs: b.peer(b.natsAlways, 1024, []string{"sync", "--count", many, "--connections", "16"}), goals: []goal{rate(3.5)}},
		{name: "sync-1", work: "one connection, one message in flight, 1 KiB, durable, against sync_interval: always",
			ours:   b.ours(nil, "produce", "TOPIC", "--size", "1024", "--count", few, "--connections", "1", "--window", "1"),
			theirs: b.peer(b.natsAlways, 1024, []string{"sync", "--count", few}), goals: []goal{median(1)}},
	}
}

func (b *bench) latencyRows() []row {
	d := b.seconds.String()
	beat := func(rate string) []string {
		return []string{"latency", "TOPIC", "--size", "1024", "--rate", rate, "--duration", d}
	}
	unreliable := []string{"topic", "create", "TOPIC", "--reliable=false"}
	fast := strconv.FormatInt(b.bytes/4/128, 10)
	return []row{
		{name: "latency-1000", work: "publish to delivery, 1 KiB at 1,000 a second, durable, against sync_interval: always",
			ours: b.ours(nil, beat("1000")...), theirs: b.peer(b.natsAlways, 1024, []string{"latency", "--rate", "1000", "--duration", d}),
			goals: []goal{median(1), p99(1)}},
		{name: "latency-10000", work: "publish to delivery, 1 KiB at 10,000 a second, durable",
			ours: b.ours(nil, beat("10000")...), goals: []goal{median(500), p99(2500)}},
		{name: "core-latency", work: "non-reliable topic, 1 KiB at 10,000 a second, against core NATS",
			ours: b.ours(unreliable, beat("10000")...), theirs: b.peer(b.nats, 1024, []string{"core-latency", "--rate", "10000", "--duration", d}),
			goals: []goal{median(1.2), p99(1.5)}},
		{name: "core-rate", work: "non-reliable topic, 128 B as fast as it goes, against core NATS",
			ours:   b.ours(unreliable, "produce", "TOPIC", "--size", "128", "--count", fast),
			theirs: b.peer(b.nats, 128, []string{"core-rate", "--count", fast}), goals: []goal{rate(.5)}},
		{name: "topics-1000", work: "1,000 topics at once over 64 connections, durable, 1 KiB, against one topic",
			ours:   b.ours(nil, "produce", "TOPIC", "--size", "1024", "--count", b.countOf(1024), "--connections", "64", "--topics", "1000"),
			theirs: b.publishOurs(1024), goals: []goal{rate(.5)}},
	}
}

// stickRows hold ours against the least that a durable broker can be.
func (b *bench) stickRows() []row {
	var all []row
	for _, p := range []struct {
		size  int
		least float64
	}{{128, .3}, {1024, .5}, {16384, .7}} {
		all = append(all, row{name: fmt.Sprintf("ceiling-%d", p.size), work: fmt.Sprintf("publish, %d B, durable, against the measuring stick, file: %s", p.size, b.kind),
			ours:   b.publishOurs(p.size),
			theirs: b.stick("publish", "--size", strconv.Itoa(p.size), "--count", b.countOf(p.size), "--window", strconv.Itoa(window(p.size))),
			goals:  []goal{rate(p.least)}})
	}
	d := b.seconds.String()
	for _, rate := range []string{"1000", "10000"} {
		all = append(all, row{name: "ceiling-latency-" + rate, work: "publish to delivery, 1 KiB at " + rate + " a second, against the measuring stick",
			ours:   b.ours(nil, "latency", "TOPIC", "--size", "1024", "--rate", rate, "--duration", d),
			theirs: b.stick("latency", "--size", "1024", "--rate", rate, "--duration", d), goals: []goal{median(1.5)}})
	}
	return all
}

func (b *bench) plainWrites() side {
	return func(context.Context) (result, error) {
		return writePlain(b.work, 1<<20, b.bytes, true, b.kind == "laid")
	}
}

// bestMode tries the peer's ways to publish with short runs and returns the fastest with its name.
func (b *bench) bestMode(size int) func(context.Context) (side, string, error) {
	return func(ctx context.Context) (side, string, error) {
		if b.nats == "" {
			return nil, "", errNoPeer
		}
		short := strconv.FormatInt(max(b.bytes/int64(size)/16, 1000), 10)
		var best []string
		var highest float64
		for _, mode := range [][]string{
			{"async", "--window", "1000"}, {"async", "--window", "4000"}, {"async", "--window", "16000"},
			{"fast", "--window", "100"}, {"fast", "--window", "500"}, {"fast", "--window", "2000"},
		} {
			r, err := b.peer(b.nats, size, append(mode, "--count", short))(ctx)
			if err != nil {
				return nil, "", err
			}
			if r.Rate > highest {
				highest, best = r.Rate, mode
			}
		}
		name := fmt.Sprintf("%s, %s %s", best[0], map[string]string{"async": "window", "fast": "flow"}[best[0]], best[2])
		return b.peer(b.nats, size, append(best, "--count", b.countOf(size))), name, nil
	}
}
