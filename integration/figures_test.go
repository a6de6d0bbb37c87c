//go:build figures && linux

package integration

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// slack widens every bound: 1 on a machine that does nothing else, 5 in CI.
func slack(t testing.TB) float64 {
	t.Helper()
	s, err := strconv.ParseFloat(envOr("FIGURES_SLACK", "1"), 64)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// within fails the test unless the figure is below its bound times the slack, and logs it either way.
func within(t testing.TB, what string, got, bound float64, unit string) {
	t.Helper()
	t.Logf("%s: %.3g %s, bound %.3g %s", what, got, unit, bound*slack(t), unit)
	if got > bound*slack(t) {
		t.Errorf("%s is %.3g %s, the bound is %.3g %s", what, got, unit, bound*slack(t), unit)
	}
}

// resident is the resident memory of the broker in MiB.
func (b *broker) resident() float64 {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", b.process.cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	var size, pages int
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		b.t.Fatal(err)
	}
	return float64(pages*os.Getpagesize()) / (1 << 20)
}

// spent is the processor time that the broker has used.
func (b *broker) spent() time.Duration {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.process.cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	// Fields are counted behind the name, which may hold spaces: user and system time are the 12th and 13th.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	ticks := 0
	for _, f := range fields[11:13] {
		n, err := strconv.Atoi(f)
		if err != nil {
			b.t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100
}

// openFiles counts the broker's open files.
func (b *broker) openFiles() int {
	b.t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.process.cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	return len(entries)
}

// timed starts the broker again and says how long it took until its ready line.
func (b *broker) timed() time.Duration {
	b.t.Helper()
	from := time.Now()
	b.start()
	return time.Since(from)
}

func TestFigureIdleBroker(t *testing.T) {
	b := startBroker(t, "n1", options{build: &build{}})
	b.dial() // somebody is connected
	rest(t.Context(), 3*time.Second)
	used := b.spent()
	const watched = 10 * time.Second
	rest(t.Context(), watched)
	within(t, "idle processor time", 100*(b.spent()-used).Seconds()/watched.Seconds(), 1, "%")
	within(t, "idle resident memory", b.resident(), 60, "MiB")
}

// TestFigureSlowDisk: syncs of two seconds (in CI half a second, over the same messages) under 64 producers with messages of
// a megabyte cost time, not memory (A71).
func TestFigureSlowDisk(t *testing.T) {
	b := startBroker(t, "n1", options{build: &build{tags: "faults"}, env: []string{"DANUBE_MEMORY_LIMIT=256MiB"}})
	ctx, cancel := context.WithCancel(t.Context())
	peak := make(chan float64)
	go func() { // returns when ctx ends
		most := 0.0
		for ctx.Err() == nil {
			most = max(most, b.resident())
			rest(ctx, 20*time.Millisecond)
		}
		peak <- most
	}()
	slow := 2 * time.Second
	if scaled(20) < 20 {
		slow /= 4
	}
	from := time.Now()
	slowDisk(t, b, slow, 2)
	took := time.Since(from)
	cancel()
	within(t, "resident memory over a slow disk", <-peak, 512, "MiB")
	within(t, "128 MiB in rounds of up to 8 MiB", took.Seconds(), 30*slow.Seconds(), "s")
}

// TestFigureReadyOverALongLog: the start does not grow with the log, after a kill neither.
func TestFigureReadyOverALongLog(t *testing.T) {
	b := startBroker(t, "n1", options{build: &build{}})
	p, err := b.dial().Producer(t.Context(), "/default/long", client.ProducerConfig{Create: &protocol.TopicConfig{}})
	if err != nil {
		t.Fatal(err)
	}
	const size = 64 << 10
	m := client.Message{Payload: make([]byte, size)}
	count := scaled(10 << 30 / size)
	for range count {
		if err := p.SendAsync(t.Context(), m, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.kill()
	within(t, fmt.Sprintf("start over %d MiB after a kill", count*size>>20), b.timed().Seconds(), 1, "s")
	b.stop(readyWithin)
	within(t, "start after a clean stop", b.timed().Seconds(), 1, "s")
}

// TestFigureManyTopics makes ten thousand topics with ten messages each. The bounds of time shrink with the count, but
// for a second that any start may take.
func TestFigureManyTopics(t *testing.T) {
	b := startBroker(t, "n1", options{build: &build{}})
	const all, each = 10_000, 10
	count := scaled(all)
	share := float64(count) / all
	from := time.Now()
	makeTopics(t, b.dial(), count, each)
	within(t, fmt.Sprintf("%d topics made and filled", count), time.Since(from).Seconds(), 20*share+1, "s")
	within(t, "resident memory", b.resident(), 400, "MiB")
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	within(t, "open files", float64(b.openFiles()), float64(min(limit.Cur, 4096)), "files")
	from = time.Now()
	b.stop(readyWithin)
	within(t, "stop", time.Since(from).Seconds(), 5*share+1, "s")
	within(t, "start", b.timed().Seconds(), 10*share+1, "s")
	within(t, "resident memory after the start", b.resident(), 400, "MiB")
	checkTopics(t, b.dial(), count, each)
}

func topicNumber(i int) string { return fmt.Sprintf("/default/many-%d", i) }

// inParallel calls do with every number below count, sixteen at a time, until one fails.
func inParallel(t testing.TB, count int, do func(ctx context.Context, i int) error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	numbers := make(chan int)
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() { // returns when there are no more numbers
			for i := range numbers {
				if err := do(ctx, i); err != nil {
					cancel(fmt.Errorf("topic %d: %w", i, err))
				}
			}
		})
	}
	for i := 0; i < count && ctx.Err() == nil; i++ {
		numbers <- i
	}
	close(numbers)
	wg.Wait()
	if ctx.Err() != nil {
		t.Fatal(context.Cause(ctx))
	}
}

func makeTopics(t testing.TB, cl *client.Client, count, each int) {
	t.Helper()
	inParallel(t, count, func(ctx context.Context, i int) error {
		p, err := cl.Producer(ctx, topicNumber(i), client.ProducerConfig{Create: &protocol.TopicConfig{}})
		if err != nil {
			return err
		}
		for j := range each {
			if err := p.SendAsync(ctx, client.Message{Payload: fmt.Appendf(nil, "%d/%d", i, j)}, nil); err != nil {
				return err
			}
		}
		_, err = p.Close(ctx)
		return err
	})
}

func checkTopics(t testing.TB, cl *client.Client, count, each int) {
	t.Helper()
	inParallel(t, count, func(ctx context.Context, i int) error {
		r, err := cl.Reader(ctx, topicNumber(i), client.ReaderConfig{From: protocol.Position{Kind: protocol.Earliest}, ToEnd: true})
		if err != nil {
			return err
		}
		defer r.Close()
		for j := range each {
			m, err := r.Next(ctx)
			if err != nil {
				return err
			}
			if want := fmt.Sprintf("%d/%d", i, j); string(m.Payload) != want {
				return fmt.Errorf("message %d is %q, want %q", j, m.Payload, want)
			}
		}
		return nil
	})
}

// TestFigureHostileConnections: a thousand connections that send half a frame, garbage or a huge length cost little
// memory (A72): what a peer may hold before a valid HELLO is 64 KiB.
func TestFigureHostileConnections(t *testing.T) {
	b := startBroker(t, "n1", options{build: &build{}})
	p := b.produce("good")
	sendEach(t, p, 0, 10, 100)
	before := b.resident()
	dropped := besiege(t, b, 1000)
	sendEach(t, p, 10, 100, 100)
	within(t, "growth of resident memory", b.resident()-before, 100, "MiB")
	dropped()
	b.holds("good", 110, 100)
}
