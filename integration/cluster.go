package integration

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// readyWithin bounds the wait for a ready line; a race build on a busy machine is slow, a test of speed asserts its own.
const readyWithin = 60 * time.Second

// raceExit is the exit code of a race build after a data race.
const raceExit = 66

// options say how a broker is started. The zero value is `danube standalone` in a folder of its own, built with -race.
type options struct {
	build   *build   // nil is raced()
	program string   // taken instead of a build
	dir     string   // data directory, "" is a new temporary one
	args    []string // further flags
	env     []string // further NAME=value

	join   bool     // `danube join` instead of standalone
	seeds  []string // host[:port] of other brokers
	expect int      // brokers that form the first quorum, 0 says nothing
	host   string   // address with the default ports; "" is 127.0.0.1 with free ones
	wires  *wires   // network in which the brokers of a fleet live; nil is this one
	space  string   // namespace of the broker in it
}

// broker is one broker process, which may be killed and started again on the same ports and the same data.
type broker struct {
	door
	name    string
	program string
	dir     string
	host    string
	client  int
	http    int
	options options
	log     *os.File

	process *process          // the present incarnation
	ready   map[string]string // its ready line
}

// startBroker starts a broker and waits for its ready line.
func startBroker(t testing.TB, name string, o options) *broker {
	t.Helper()
	b := newBroker(t, name, o)
	b.start()
	return b
}

// newBroker prepares a broker and starts nothing.
func newBroker(t testing.TB, name string, o options) *broker {
	t.Helper()
	b := &broker{name: name, program: o.program, dir: o.dir, host: o.host, options: o, log: openLog(t, name)}
	b.door = door{t, func() []string { return []string{b.clients()} }}
	if b.program == "" {
		kind := raced()
		if o.build != nil {
			kind = *o.build
		}
		b.program = programs.path(t, kind)
	}
	if b.dir == "" {
		b.dir = filepath.Join(t.TempDir(), "data")
	}
	if b.host == "" {
		b.host, b.client, b.http = "127.0.0.1", freePort(t), freePort(t)
	}
	return b
}

// launch starts the process and does not wait for it.
func (b *broker) launch() *process {
	b.t.Helper()
	line := append([]string{b.program}, b.arguments()...)
	if space := b.options.space; space != "" {
		line = append([]string{"ip", "netns", "exec", space}, line...) // becomes the program, under the same id
	}
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = b.environ()
	b.process = spawn(b.t, b.name, cmd, b.log)
	return b.process
}

// arguments are what the program is started with.
func (b *broker) arguments() []string {
	o := &b.options
	args := []string{"standalone"}
	if o.join {
		args = append([]string{"join"}, o.seeds...)
		args = append(args, "--name", b.name)
		if o.expect > 0 {
			args = append(args, "--expect", strconv.Itoa(o.expect))
		}
	}
	args = append(args, "--data-dir", b.dir, "--host", b.host)
	if b.client > 0 {
		args = append(args, "--client-port", strconv.Itoa(b.client), "--http-port", strconv.Itoa(b.http))
	}
	return append(args, o.args...)
}

// environ is the environment of the broker and of its commands. A race build would wait a second at its exit for late
// reports; the first report ends it instead, with exit code 66.
func (b *broker) environ() []string {
	return append(append(os.Environ(), "GORACE=atexit_sleep_ms=0 halt_on_error=1"), b.options.env...)
}

// start starts the process and waits for its ready line.
func (b *broker) start() {
	b.t.Helper()
	if err := b.tryStart(readyWithin); err != nil {
		b.t.Fatal(err)
	}
}

// tryStart is start for a broker that may refuse: the error says that it ended or was not ready in time.
func (b *broker) tryStart(d time.Duration) error {
	b.t.Helper()
	b.launch()
	return b.await(d)
}

// await waits for the ready line of a broker that was launched.
func (b *broker) await(d time.Duration) error {
	line, err := b.process.line("ready ", d)
	if err != nil {
		return err
	}
	b.ready = parseReady(line)
	if b.ready["clients"] == "" {
		return fmt.Errorf("%s printed a ready line without clients=: %q", b.name, line)
	}
	return nil
}

// restart kills the broker, should it run, and starts it again on the same ports and the same data.
func (b *broker) restart() {
	b.t.Helper()
	b.kill()
	b.start()
}

func (b *broker) kill()   { b.process.end() }
func (b *broker) pause()  { b.process.signal(syscall.SIGSTOP) }
func (b *broker) resume() { b.process.signal(syscall.SIGCONT) }

// stop ends the broker with SIGTERM and fails the test unless it exits with 0 within d.
func (b *broker) stop(d time.Duration) {
	b.t.Helper()
	b.process.signal(syscall.SIGTERM)
	code, err := b.process.wait(d)
	if err != nil {
		b.t.Fatal(err)
	}
	if code != 0 {
		b.t.Fatalf("%s was asked to stop and exited with %d:\n%s", b.name, code, lastLines(b.log.Name(), 20))
	}
}

// ending says how a broker that ended by itself did so.
func (b *broker) ending() string {
	code := b.process.cmd.ProcessState.ExitCode()
	if code == raceExit {
		text, err := os.ReadFile(b.log.Name())
		if err != nil {
			return err.Error()
		}
		report := string(text[max(strings.LastIndex(string(text), "WARNING: DATA RACE"), 0):])
		return "a data race ended it\n" + strings.Join(strings.SplitN(report, "\n", 45)[:min(44, strings.Count(report, "\n"))], "\n")
	}
	return fmt.Sprintf("it exited with %d\n%s", code, lastLines(b.log.Name(), 10))
}

// address is where clients connect; url is the root of the HTTP side.
func (b *broker) address() string { return b.ready["clients"] }
func (b *broker) url() string     { return b.ready["http"] }

// parseReady splits `ready key=value …`; a value goes on until the next key, so that a path may hold spaces.
func parseReady(line string) map[string]string {
	keys := regexp.MustCompile(` ([a-z_]+)=`)
	fields := map[string]string{}
	at := keys.FindAllStringSubmatchIndex(line, -1)
	for i, m := range at {
		end := len(line)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		fields[line[m[2]:m[3]]] = strings.TrimSpace(line[m[1]:end])
	}
	return fields
}

// freePort finds a port below the range that the kernel gives to outgoing connections: one of those could take the
// port while its broker is down. No other test is given it until this one is over: its datagrams are taken as a claim.
func freePort(t testing.TB) int {
	t.Helper()
	for range 200 {
		port := 20000 + rand.IntN(12000)
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		claim, err := net.ListenPacket("udp", address)
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", address)
		if err == nil {
			l.Close()
			t.Cleanup(func() { claim.Close() })
			return port
		}
		claim.Close()
	}
	t.Fatal("no free port found on 127.0.0.1")
	return 0
}

// eventually polls until holds returns true, and fails the test with what it waited for after d.
func eventually(t testing.TB, d time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(d)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited %v in vain: %s", d, what)
		}
	}
}

// nothingMissing polls until missing says nothing, and fails the test with what it said last after d.
func nothingMissing(t testing.TB, d time.Duration, missing func() string) {
	t.Helper()
	what := ""
	deadline := time.Now().Add(d)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if what = missing(); what == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited %v in vain: %s", d, what)
		}
		<-tick.C
	}
}
