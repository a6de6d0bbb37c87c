package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/cmd/danube/bench"
	"github.com/danubemq/danube/cmd/danube/fail"
)

// running is a broker in this process.
type running struct {
	t     *testing.T
	dir   string
	ready map[string]string
	log   *bytes.Buffer
	stop  func() int // returns the exit code
}

// startStandalone runs `danube standalone` until the end of the test, or stop.
func startStandalone(t *testing.T, dir string, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	r, w := io.Pipe()
	b := &running{t: t, dir: dir, log: &bytes.Buffer{}}
	a := &app{in: strings.NewReader(""), out: w, err: b.log, now: time.Now}
	code := make(chan int, 1)
	// Returns when the broker has stopped.
	go func() {
		defer w.Close()
		code <- a.run(ctx, append([]string{"standalone", "--data-dir", dir, "--client-port", "0", "--http-port", "0"}, args...))
	}()
	line, err := bufio.NewReader(r).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "ready ") {
		t.Fatalf("no ready line: %q, %v, exit code %d\n%s", line, err, <-code, b.log.String())
	}
	b.ready = map[string]string{}
	for _, field := range strings.Fields(line)[1:] {
		k, v, _ := strings.Cut(field, "=")
		b.ready[k] = v
	}
	stopped := false
	b.stop = func() int {
		if stopped {
			return fail.Done
		}
		stopped = true
		cancel(fail.ErrInterrupted)
		return <-code
	}
	t.Cleanup(func() { b.stop() })
	return b
}

// danube runs a command against the broker and returns what it printed; another exit code than want is an error.
func (b *running) danube(want int, stdin string, args ...string) (stdout, stderr string) {
	b.t.Helper()
	s := newShell("DANUBE_BROKER=" + b.ready["clients"])
	s.app.in, s.app.now = strings.NewReader(stdin), time.Now
	if code := s.call(b.t, args...); code != want {
		b.t.Fatalf("danube %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), code, want, s.out.String(), s.err.String())
	}
	return s.out.String(), s.err.String()
}

// says fails the test unless text holds want.
func (b *running) says(text, want string) {
	b.t.Helper()
	if !strings.Contains(text, want) {
		b.t.Errorf("lacks %q:\n%s", want, text)
	}
}

func TestReadyLineAndCleanStop(t *testing.T) {
	dir := t.TempDir()
	b := startStandalone(t, dir)
	for key, want := range map[string]string{"broker": "n1", "cluster": "danube", "data": dir, "topics": "0", "durability": "local"} {
		if b.ready[key] != want {
			t.Errorf("ready line says %s=%s, want %s", key, b.ready[key], want)
		}
	}
	if !strings.HasPrefix(b.ready["http"], "http://127.0.0.1:") || !strings.HasPrefix(b.ready["clients"], "127.0.0.1:") {
		t.Errorf("ready line says %v", b.ready)
	}
	b.danube(fail.Done, "", "topic", "create", "t")
	if code := b.stop(); code != fail.Done {
		t.Errorf("stop: exit code %d\n%s", code, b.log.String())
	}
	if n := strings.Count(b.log.String(), "\n"); n > 10 {
		t.Errorf("a start logs %d lines:\n%s", n, b.log.String())
	}
	again := startStandalone(t, dir, "--log-level", "warn")
	if again.ready["topics"] != "1" {
		t.Errorf("after a restart the ready line says topics=%s", again.ready["topics"])
	}
}

// TestMainJob sends lines of any bytes and reads them back, as a reader and as a consumer.
func TestMainJob(t *testing.T) {
	b := startStandalone(t, t.TempDir())
	lines := "first\n\n\xff\x00 third\nlast without newline"
	_, said := b.danube(fail.Done, lines, "produce", "t")
	b.says(said, "created topic /default/t (1 partition, durability local)\n")
	b.says(said, "sent 4, acknowledged 4, failed 0, offsets 0-3")
	for _, args := range [][]string{{}, {"-s", "exclusive"}, {"-s", "shared", "--type", "shared"}, {"-s", "shared2", "--type", "shared", "--no-ack"}} {
		got, _ := b.danube(fail.Done, "", append([]string{"consume", "t", "--from", "earliest", "--count", "4", "-o", "raw"}, args...)...)
		if got != lines+"\n" {
			t.Errorf("consume %v returned %q", args, got)
		}
	}
	if got, _ := b.danube(fail.TimedOut, "", "consume", "t", "-s", "shared", "--count", "1", "--timeout", "100ms"); got != "" {
		t.Errorf("acknowledged messages came again: %q", got)
	}
	if got, _ := b.danube(fail.Done, "", "consume", "t", "-s", "shared2", "--count", "4", "-o", "raw"); got != lines+"\n" {
		t.Errorf("what was not acknowledged came back as %q", got)
	}
	_, said = b.danube(fail.TimedOut, "", "consume", "t", "-s", "exclusive", "--from", "earliest", "--count", "1", "--timeout", "100ms")
	b.says(said, "exists and stands at offset 4")
	b.says(said, "danube subscription reset")
	b.danube(fail.Done, "", "subscription", "reset", "t", "exclusive", "--to", "2")
	if got, _ := b.danube(fail.Done, "", "consume", "t", "-s", "exclusive", "--count", "1", "-o", "text"); got != `\xff\x00 third`+"\n" {
		t.Errorf("after a reset came %q", got)
	}
	_, said = b.danube(fail.Failed, "", "consume", "none")
	b.says(said, "danube topic create /default/none")
}

// The subscribe of one partition makes a subscription on all: none of the others is one that existed.
func TestFromOfANewSubscriptionOfManyPartitionsCounts(t *testing.T) {
	b := startStandalone(t, t.TempDir())
	b.danube(fail.Done, "", "produce", "t", "--count", "300", "--partitions", "12")
	if _, said := b.danube(fail.Done, "", "consume", "t", "-s", "s", "--from", "earliest", "--count", "300"); strings.Contains(said, "exists") {
		t.Errorf("of a subscription it made it says:\n%s", said)
	}
	_, said := b.danube(fail.TimedOut, "", "consume", "t", "-s", "s", "--from", "earliest", "--count", "1", "--timeout", "100ms")
	if n := strings.Count(said, "exists and stands at offset 0:"); n != 1 {
		t.Errorf("of one that existed it says so %d times:\n%s", n, said)
	}
}

func TestProduceJSONAgainstABroker(t *testing.T) {
	b := startStandalone(t, t.TempDir())
	got, _ := b.danube(fail.Done, "", "produce", "t", "a", "b", "-o", "json", "--partitions", "3", "--key", "k", "--property", "p=v", "--compression", "zstd")
	for i, line := range strings.Split(strings.TrimSpace(got), "\n") {
		var ack struct{ Line, Offset int }
		if err := json.Unmarshal([]byte(line), &ack); err != nil || ack.Line != i+1 || ack.Offset != i {
			t.Errorf("acknowledgement %d is %s", i, line)
		}
	}
	got, _ = b.danube(fail.Done, "", "consume", "t", "--from", "earliest", "--count", "2", "-o", "json")
	b.says(got, `"key":"k","properties":{"p":"v"},"payload":"a"`)
	_, said := b.danube(fail.Done, "", "produce", "gen", "--count", "500", "--size", "1KiB", "--rate", "50000")
	b.says(said, "sent 500, acknowledged 500, failed 0, offsets 0-499")
	_, said = b.danube(fail.Failed, "a\n"+strings.Repeat("x", 11<<20)+"\nb\n", "produce", "long")
	b.says(said, "line 2: 11534336 bytes are more than a message may have (10MiB)")
	b.says(said, "sent 3, acknowledged 2, failed 1")
}

// TestCreatedAgainAfterARestart: a topic that is there already is no reason to fail, and it takes messages (A51).
func TestCreatedAgainAfterARestart(t *testing.T) {
	dir := t.TempDir()
	b := startStandalone(t, dir)
	b.danube(fail.Done, "", "topic", "create", "orders")
	b.danube(fail.Done, "one\n", "produce", "orders")
	b.stop()
	b = startStandalone(t, dir)
	b.danube(fail.Done, "", "topic", "create", "orders")
	b.danube(fail.Done, "two\n", "produce", "orders")
	if got, _ := b.danube(fail.Done, "", "consume", "orders", "--from", "earliest", "--count", "2", "-o", "raw"); got != "one\ntwo\n" {
		t.Errorf("read %q", got)
	}
	b.stop()
}

func TestAdministration(t *testing.T) {
	b := startStandalone(t, t.TempDir())
	b.danube(fail.Done, "", "topic", "create", "orders", "--partitions", "2", "--retention-time", "7d", "--retention-bytes", "1GiB")
	_, said := b.danube(fail.Failed, "", "topic", "create", "orders", "--partitions", "3")
	b.says(said, "exists with other settings")
	_, said = b.danube(fail.Failed, "", "topic", "create", "warm", "--durability", "warm")
	b.says(said, "durability warm is not in this version; it has local")
	got, _ := b.danube(fail.Done, "", "topic", "list")
	b.says(got, "168h, 1GiB")
	b.danube(fail.Done, "", "topic", "set", "orders", "--retention-time", "0")
	got, _ = b.danube(fail.Done, "", "topic", "list", "-o", "json")
	if strings.Contains(got, "retention_ms") || !json.Valid([]byte(got)) {
		t.Errorf("retention was not taken away: %s", got)
	}
	b.danube(fail.Done, "", "subscription", "create", "orders", "s", "--type", "shared", "--from", "earliest", "--max-unacked", "10")
	b.danube(fail.Done, "", "subscription", "set", "orders", "s", "--ack-timeout", "5s")
	got, _ = b.danube(fail.Done, "", "subscription", "describe", "orders", "s")
	b.says(got, "max unacked 10, ack timeout 5s")
	b.danube(fail.Done, "", "produce", "orders:1", "a", "b", "c")
	got, _ = b.danube(fail.Done, "", "topic", "describe", "orders", "--all")
	b.says(got, "SUBSCRIPTION")
	got, _ = b.danube(fail.Done, "", "topic", "peek", "orders:1", "--offset", "1", "--count", "1", "-o", "raw")
	if got != "b\n" {
		t.Errorf("peek shows %q", got)
	}
	got, _ = b.danube(fail.Done, "", "topic", "verify", "orders", "-o", "json")
	b.says(got, `"findings": []`)
	_, said = b.danube(fail.Usage, "", "topic", "truncate", "orders", "--before", "2", "--yes")
	b.says(said, "/default/orders:0 to /default/orders:1")
	got, _ = b.danube(fail.Done, "", "topic", "truncate", "orders:1", "--before", "2", "--dry-run")
	b.says(got, "would remove offsets 0-1")
	b.says(got, "2 messages not acknowledged")
	b.danube(fail.Done, "", "topic", "truncate", "orders:1", "--before", "2", "--yes")
	_, said = b.danube(fail.Failed, "", "consume", "orders:1", "--from", "0")
	b.says(said, "the log starts at offset 2")
	b.danube(fail.Done, "", "subscription", "delete", "orders", "s", "--yes")
	got, _ = b.danube(fail.Done, "", "subscription", "list", "orders", "-o", "json")
	b.says(got, `"subscriptions": []`)
	b.danube(fail.Done, "", "topic", "delete", "orders", "--yes")
	_, said = b.danube(fail.Failed, "", "topic", "describe", "orders")
	b.says(said, "does not exist")
	got, _ = b.danube(fail.Done, "", "cluster", "status")
	b.says(got, "leader      n1")
}

func TestBenches(t *testing.T) {
	b := startStandalone(t, t.TempDir())
	b.danube(fail.Done, "", "topic", "create", "parts", "--partitions", "3")
	b.danube(fail.Done, "", "topic", "create", "live", "--reliable=false")
	for _, line := range []string{
		"bench produce p --count 2000 --size 128",
		"bench produce p --count 100 --window 1 --connections 2",
		"bench produce q --topics 3 --count 300 --duration 0s",
		"bench produce d --duration 50ms",
		"bench produce parts --count 5000 --size 1KiB",
		"bench latency parts --rate 2000 --duration 100ms",
		"bench consume parts",
		"bench consume p",
		"bench consume p --type shared --consumers 2 --count 500",
		"bench latency l --rate 2000 --duration 200ms",
		"bench latency live --rate 2000 --duration 100ms",
		"bench produce live --count 1000",
	} {
		got, _ := b.danube(fail.Done, "", append(strings.Fields(line), "-o", "json")...)
		var r bench.Result
		if err := json.Unmarshal([]byte(got), &r); err != nil || r.Messages == 0 || r.Errors != 0 || r.Rate == 0 || r.P50 == 0 || r.Max < r.P99 {
			t.Errorf("%s: %v\n%s", line, err, got)
		}
	}
	got, _ := b.danube(fail.Done, "", "subscription", "list", "p", "-o", "json")
	b.says(got, `"subscriptions": []`)
	_, said := b.danube(fail.Failed, "", "bench", "consume", "none")
	b.says(said, "does not exist")
	_, said = b.danube(fail.Failed, "", "bench", "consume", "p", "--count", "1000000")
	b.says(said, "/default/p holds 2100 messages")
}

// TestWhyItDoesNotStart: what is in the way is named, with what moves it.
func TestWhyItDoesNotStart(t *testing.T) {
	b := startStandalone(t, t.TempDir())
	me := fmt.Sprintf("process %d", os.Getpid())
	_, client, err := net.SplitHostPort(b.ready["clients"])
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir()
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"client port": {[]string{"--data-dir", other, "--client-port", client, "--http-port", "0"}, fail.Failed,
			[]string{"the client port 127.0.0.1:" + client + " is in use by " + me, "--client-port moves it"}},
		"HTTP port": {[]string{"--data-dir", other, "--client-port", "0", "--http-port", client}, fail.Failed,
			[]string{"the HTTP port 127.0.0.1:" + client + " is in use by " + me, "--http-port moves it"}},
		"directory": {[]string{"--data-dir", b.dir, "--client-port", "0", "--http-port", "0"}, fail.Failed,
			[]string{"the data directory " + b.dir + " is in use by " + me, "--data-dir"}},
		"address":       {[]string{"--data-dir", other, "--host", "203.0.113.1"}, fail.Failed, []string{"--host must be an address of this machine"}},
		"configuration": {[]string{"--config", writeConfig(t, "storage: {mode: object_store}\n")}, fail.Usage, []string{"storage.mode is object_store"}},
		"port":          {[]string{"--client-port", "65536"}, fail.Usage, []string{"--client-port: client_port: 65536 is more than the most allowed"}},
	} {
		s := newShell()
		if code := s.call(t, append([]string{"standalone"}, c.args...)...); code != c.code {
			t.Errorf("%s: exit code %d, want %d", name, code, c.code)
		}
		for _, want := range c.says {
			if !strings.Contains(s.err.String(), want) {
				t.Errorf("%s: lacks %q:\n%s", name, want, s.err.String())
			}
		}
	}
}

func TestListeningBeyondTheMachineWarnsOnce(t *testing.T) {
	_, port, err := net.SplitHostPort(closedPort(t))
	if err != nil {
		t.Fatal(err)
	}
	b := startStandalone(t, t.TempDir(), "--host", "0.0.0.0", "--client-port", port)
	for _, key := range []string{"clients", "http"} {
		if strings.Contains(b.ready[key], "0.0.0.0") || strings.Contains(b.ready[key], "[::]") {
			t.Errorf("the ready line says %s=%s, which nobody can reach", key, b.ready[key])
		}
	}
	b.danube(fail.Done, "", "produce", "t", "through the advertised address")
	b.stop()
	if n := strings.Count(b.log.String(), "without authentication"); n != 1 {
		t.Errorf("warned %d times:\n%s", n, b.log.String())
	}
}

func TestWhereHTTPIs(t *testing.T) {
	if got := url("[::]:8650", "broker.example:7000"); got != "http://broker.example:8650" {
		t.Errorf("HTTP is said to be at %s", got)
	}
	if got := url("127.0.0.1:8650", ""); got != "http://127.0.0.1:8650" {
		t.Errorf("HTTP is said to be at %s", got)
	}
}

// TestStopIsBounded: one that hangs ends with an error that says what it means.
func TestStopIsBounded(t *testing.T) {
	release := make(chan struct{})
	err := closeWithin(10*time.Millisecond, func() error { <-release; return nil })
	close(release)
	if err == nil || !strings.Contains(err.Error(), "shutdown_timeout") {
		t.Errorf("ended with %v", err)
	}
	if err := closeWithin(time.Minute, func() error { return nil }); err != nil {
		t.Error(err)
	}
	if err := closeWithin(time.Minute, func() error { return io.ErrShortWrite }); err == nil {
		t.Error("an error of the stop was swallowed")
	}
}
