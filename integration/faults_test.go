package integration

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// faulty is a broker built with the tag faults.
func faulty() *build { return &build{race: true, tags: "faults"} }

// tell gives one command to the faults of a broker and returns the answer without its "ok".
func (b *broker) tell(format string, args ...any) string {
	b.t.Helper()
	c, err := net.DialTimeout("tcp", b.ready["faults"], 10*time.Second)
	if err != nil {
		b.t.Fatalf("reach the faults of %s: %v", b.name, err)
	}
	defer c.Close()
	line := fmt.Sprintf(format, args...)
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		b.t.Fatal(err)
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	rest, ok := strings.CutPrefix(strings.TrimSpace(answer), "ok")
	if err != nil || !ok {
		b.t.Fatalf("faults, %s: %q, %v", line, answer, err)
	}
	return strings.TrimSpace(rest)
}

func (b *broker) reached(step string) int {
	b.t.Helper()
	n, err := strconv.Atoi(b.tell("reached %s", step))
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

// namedSteps are the steps of the log, as its source names them.
func namedSteps(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob("../storage/wal/*.go")
	if err != nil {
		t.Fatal(err)
	}
	at := regexp.MustCompile(`config\.At\("([^"]+)"\)`)
	steps := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range at.FindAllSubmatch(text, -1) {
			steps[string(m[1])] = true
		}
	}
	if len(steps) < 7 {
		t.Fatalf("the log names only %v", steps)
	}
	return slices.Sorted(maps.Keys(steps))
}

// dieAt arranges that the broker dies at the step, and does what leads there; load goes on beside it.
func dieAt(t testing.TB, b *broker, step string, rnd *rand.Rand) {
	t.Helper()
	switch step {
	case "replay": // of the start after a kill; small rounds are what the journal holds
		sendEach(t, b.produce("small"), 0, 5, 50)
		b.kill()
		env := b.options.env
		b.options.env = append(slices.Clone(env), "DANUBE_FAULTS=kill replay")
		b.launch()
		b.options.env = env
	case "checkpoint", "close.sealed":
		b.tell("kill %s", step)
		b.process.signal(syscall.SIGTERM)
	case "trim":
		b.tell("kill trim")
		n := b.describe("trimmed").Partitions[0].NextOffset
		b.command(nil, "topic", "truncate", "trimmed", "--before", fmt.Sprint(n-20), "--yes") // tries again after the kill
	case "commit.ahead": // the load grows into large parts while a sync lasts, and the log writes ahead what comes meanwhile
		b.tell("sync 300ms")
		b.tell("kill commit.ahead %d", 1+rnd.IntN(2))
	default:
		b.tell("kill %s %d", step, 1+rnd.IntN(20))
	}
	if code, err := b.process.wait(readyWithin); err != nil || code != -1 {
		t.Fatalf("killed at %s it ended with %d, %v; it reached %s", step, code, err, lastLines(b.log.Name(), 5))
	}
}

// TestFaultsKillAtEveryStep kills the process at each named step of the log, under load, and starts it again: nothing
// that was acknowledged is lost, nothing is stored twice.
func TestFaultsKillAtEveryStep(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{build: faulty(), env: []string{"DANUBE_STORAGE_WAL_SEGMENT_BYTES=1MiB"}})
	rnd := rand.New(rand.NewPCG(6, 6))
	l := newLedger()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sending := l.load(ctx, t, b.door, "kept", "a")
	trimmed := 0
	for _, step := range namedSteps(t) {
		if step == "commit.ahead" && scaled(40) < 40 {
			continue // it wants a load that a busy machine does not give within the time: in full only
		}
		for range scaled(40) {
			if step == "trim" {
				sendEach(t, b.produce("trimmed"), trimmed, 200, sizeKept)
				trimmed += 200
			}
			want := l.count() + 50
			eventually(t, readyWithin, "acknowledgements before the kill at "+step, func() bool { return l.count() >= want })
			dieAt(t, b, step, rnd)
			b.start()
		}
	}
	cancel()
	sending.Wait()
	got, gaps := b.contents("kept")
	l.check(t, got, gaps)
	last, _ := b.contents("trimmed")
	for i := trimmed - 20; i < trimmed; i++ {
		if last[uint64(i)] != string(numbered(i, sizeKept)) {
			t.Errorf("of the truncated topic offset %d is %.30q", i, last[uint64(i)])
		}
	}
	t.Logf("%d messages acknowledged over kills at %v", l.count(), namedSteps(t))
}

// TestFaultsUnsyncedIsUnseen holds the log between its write and its sync: nobody is acknowledged, and nobody reads what
// may yet be lost (R1).
func TestFaultsUnsyncedIsUnseen(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{build: faulty()})
	p := b.produce("held")
	sendEach(t, p, 0, 5, 100)
	b.tell("wait commit.written")
	before := b.reached("commit.written")
	told := make(chan error, 1)
	err := p.SendAsync(t.Context(), client.Message{Payload: numbered(5, 100)}, func(_ client.Result, err error) { told <- err })
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, readyWithin, "the step is reached", func() bool { return b.reached("commit.written") > before })
	b.holds("held", 5, 100)
	select {
	case err := <-told:
		t.Errorf("acknowledged before the sync: %v", err)
	default:
	}
	b.tell("go commit.written")
	if err := <-told; err != nil {
		t.Fatal(err)
	}
	b.holds("held", 6, 100)
}

// TestFaultsClockSteps moves the clock back and forth: append times never run backwards within a partition (R13, A42).
func TestFaultsClockSteps(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{build: faulty()})
	p := b.produce("clock")
	n := 0
	for _, step := range []string{"0s", "-1h", "3h", "-30m"} {
		b.tell("clock %s", step)
		sendEach(t, p, n, 5, 100)
		n += 5
	}
	r, err := b.dial().Reader(t.Context(), "clock", client.ReaderConfig{From: protocol.Position{Kind: protocol.Earliest}, ToEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var last time.Time
	for i := range n {
		m, err := r.Next(t.Context())
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if m.AppendTime.Before(last) {
			t.Errorf("offset %d was appended at %v, the one before at %v", m.Offset, m.AppendTime, last)
		}
		last = m.AppendTime
	}
	if _, err := r.Next(t.Context()); !errors.Is(err, io.EOF) {
		t.Errorf("behind the last message: %v", err)
	}
	if ahead := time.Until(last); ahead < time.Hour {
		t.Errorf("the clock was never moved: the last message is of %v", last)
	}
}

// TestFaultsPanicEndsTheProcess: nothing carries on after a panic, and the stack is there.
func TestFaultsPanicEndsTheProcess(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{build: faulty()})
	p := b.produce("t")
	sendEach(t, p, 0, 5, 100)
	b.tell("fail commit.gather")
	if err := p.SendAsync(t.Context(), client.Message{Payload: numbered(5, 100)}, nil); err != nil {
		t.Fatal(err)
	}
	if code, err := b.process.wait(readyWithin); err != nil || code != 2 {
		t.Errorf("after a panic it ended with %d, %v", code, err)
	}
	text, err := os.ReadFile(b.log.Name())
	if err != nil || !bytes.Contains(text, []byte("told to fail at commit.gather")) || !bytes.Contains(text, []byte("goroutine ")) {
		t.Errorf("the stack is not in the log: %v\n%s", err, text)
	}
	b.start()
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.holds("t", 6, 100)
}

// TestFaultsAreInNoPlainBuild: the program that users get has nothing of it.
func TestFaultsAreInNoPlainBuild(t *testing.T) {
	for _, c := range []struct {
		build build
		has   bool
	}{{raced(), false}, {*faulty(), true}} {
		text, err := os.ReadFile(programs.path(t, c.build))
		if err != nil {
			t.Fatal(err)
		}
		for _, trace := range []string{"DANUBE_FAULTS", "told to fail at", "danube/faults.(*Faults)"} {
			if bytes.Contains(text, []byte(trace)) != c.has {
				t.Errorf("built with tags %q the program holds %q: %v, want %v", c.build.tags, trace, !c.has, c.has)
			}
		}
	}
	b := startBroker(t, "n1", options{env: []string{"DANUBE_FAULTS=kill commit.gather"}})
	if _, there := b.ready["faults"]; there {
		t.Errorf("the ready line is %q", b.ready)
	}
	sendEach(t, b.produce("t"), 0, 5, 100)
}
