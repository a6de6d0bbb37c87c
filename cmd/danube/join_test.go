package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/cmd/danube/fail"
)

// syncBuffer is standard error of a broker in this process.
type syncBuffer struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// joining is a broker in this process that may not be ready yet.
type joining struct {
	log   syncBuffer
	lines chan string // the ready line; closed when the broker has ended
	code  chan int
	stop  context.CancelCauseFunc
}

// startJoin runs `danube join` with args until the end of the test, or stop.
func startJoin(t *testing.T, args ...string) *joining {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	r, w := io.Pipe()
	j := &joining{lines: make(chan string, 1), code: make(chan int, 1), stop: cancel}
	a := &app{in: strings.NewReader(""), out: w, err: &j.log, now: time.Now}
	var wg sync.WaitGroup
	wg.Go(func() { // returns when the broker has stopped
		j.code <- a.run(ctx, append([]string{"join"}, args...))
		_ = w.Close()
	})
	wg.Go(func() { // the same
		defer close(j.lines)
		if line, err := bufio.NewReader(r).ReadString('\n'); err == nil {
			j.lines <- line
		}
	})
	t.Cleanup(func() {
		cancel(fail.ErrInterrupted)
		wg.Wait()
	})
	return j
}

// ready waits for the ready line and returns its fields.
func (j *joining) ready(t *testing.T) map[string]string {
	t.Helper()
	select {
	case line := <-j.lines:
		fields := map[string]string{}
		for _, f := range strings.Fields(line) {
			k, v, _ := strings.Cut(f, "=")
			fields[k] = v
		}
		if _, ok := fields["ready"]; ok {
			return fields
		}
	case <-time.After(20 * time.Second):
	}
	t.Fatalf("not ready:\n%s", j.log.String())
	return nil
}

// end stops the broker in order.
func (j *joining) end(t *testing.T) {
	t.Helper()
	j.stop(fail.ErrInterrupted)
	if code := <-j.code; code != fail.Done {
		t.Errorf("stop: exit code %d\n%s", code, j.log.String())
	}
}

// ownHost is a loopback address where nobody else listens. On 127.0.0.1 a port that was free may be another's, or that
// of a connection, before the broker listens on it.
func ownHost() string {
	return fmt.Sprintf("127.%d.%d.%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250))
}

func freePorts(more ...string) []string {
	return append([]string{"--client-port", "0", "--peer-port", "0", "--http-port", "0"}, more...)
}

// TestThreeBrokersJoin from nothing, the seeds crossed; each says on which it waits, and none is ready before.
func TestThreeBrokersJoin(t *testing.T) {
	seeds := [3]string{ownHost(), ownHost(), ownHost()}
	start := func(i int) *joining {
		return startJoin(t, "--data-dir", t.TempDir(), "--name", fmt.Sprintf("n%d", i+1), "--host", seeds[i], "--expect", "3", seeds[(i+1)%3], seeds[(i+2)%3])
	}
	first := start(0)
	eventually(t, func() bool { return strings.Contains(first.log.String(), seeds[1]) }, "says which seed it waits for", &first.log)
	resp, err := http.Get("http://" + seeds[0] + ":8650/readyz")
	if err != nil {
		t.Fatal(err)
	}
	if _ = resp.Body.Close(); resp.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("while it waits /readyz answers %d", resp.StatusCode)
	}
	brokers := []*joining{first, start(1), start(2)}
	var all []string
	for i, b := range brokers {
		fields := b.ready(t)
		if fields["broker"] != fmt.Sprintf("n%d", i+1) || fields["durability"] != "local" {
			t.Errorf("ready line says %v", fields)
		}
		all = append(all, fields["clients"])
		if n := strings.Count(b.log.String(), "\n"); n > 10 {
			t.Errorf("a start logs %d lines:\n%s", n, b.log.String())
		}
	}
	s := newShell("DANUBE_BROKER=" + all[2])
	s.app.now = time.Now
	if code := s.call(t, "cluster", "status", "-o", "json"); code != fail.Done || strings.Count(s.out.String(), `"store":`) != 3 {
		t.Errorf("exit code %d, says\n%s%s", code, s.out.String(), s.err.String())
	}
	brokers[0].end(t)
	for _, b := range brokers[1:] { // without a majority what they do last is in vain
		b.stop(fail.ErrInterrupted)
	}
}

// TestNameIsKept: given once, it holds for the next start; a directory of a standalone broker keeps its own.
func TestNameIsKept(t *testing.T) {
	dir := t.TempDir()
	b := startStandalone(t, dir)
	b.danube(fail.Done, "", "topic", "create", "t")
	b.stop()
	for _, c := range []struct{ given, want string }{{"", "n1"}, {"left", "left"}, {"", "left"}} {
		args := freePorts("--data-dir", dir, "--gossip-port", "0")
		if c.given != "" {
			args = append(args, "--name", c.given)
		}
		j := startJoin(t, args...)
		if fields := j.ready(t); fields["broker"] != c.want || fields["topics"] != "1" {
			t.Errorf("ready line says %v, want the name %s and one topic", fields, c.want)
		}
		j.end(t)
	}
	s := newShell()
	if code := s.call(t, append([]string{"join", "--name", "a b"}, freePorts("--data-dir", dir)...)...); code != fail.Usage || !strings.Contains(s.err.String(), "--name names the broker") {
		t.Errorf("exit code %d, says %q", code, s.err.String())
	}
}

// TestBusyPortsOfACluster name the flag that moves them.
func TestBusyPortsOfACluster(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, which := range []string{"client", "peer", "gossip", "http"} {
		s := newShell()
		args := append([]string{"join", "--data-dir", t.TempDir(), "--gossip-port", "0"}, freePorts("--"+which+"-port", port)...)
		code := s.call(t, args...)
		if code != fail.Failed || !strings.Contains(s.err.String(), "--"+which+"-port moves it") || !strings.Contains(s.err.String(), l.Addr().String()) {
			t.Errorf("%s: exit code %d, says\n%s", which, code, s.err.String())
		}
	}
}

// TestStopWhileItWaits ends a broker that found nobody, with 0.
func TestStopWhileItWaits(t *testing.T) {
	seed := ownHost()
	j := startJoin(t, freePorts("--data-dir", t.TempDir(), "--gossip-port", "0", "--name", "n1", seed)...)
	eventually(t, func() bool { return strings.Contains(j.log.String(), seed) }, "says which seed it waits for", &j.log)
	j.end(t)
	if n := strings.Count(j.log.String(), "\n"); n > 4 {
		t.Errorf("says one thing in %d lines:\n%s", n, j.log.String())
	}
}

// eventually polls until ok, at most 10 s.
func eventually(t *testing.T, ok func() bool, what string, log fmt.Stringer) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 2000 {
		if ok() {
			return
		}
		<-tick.C
	}
	t.Fatalf("never: %s\n%s", what, log)
}
