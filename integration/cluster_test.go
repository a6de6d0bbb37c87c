package integration

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// fakeDanube plays a broker or a command well enough to test the helpers: it holds its ports, says that it is ready,
// and ends on SIGTERM with the code of the script.
func fakeDanube(script string, args []string) int {
	if args[0] != "standalone" {
		return fakeCommand(args)
	}
	flags := map[string]string{}
	for i := 1; i+1 < len(args); i += 2 {
		flags[args[i]] = args[i+1]
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	l, err := net.Listen("tcp", net.JoinHostPort(flags["--host"], flags["--client-port"]))
	if err != nil || script == "refuse" {
		fmt.Fprintln(os.Stderr, "danube: start: port in use")
		return 1
	}
	defer l.Close()
	fmt.Println("an earlier line")
	fmt.Printf("ready broker=n1 cluster=danube clients=%s http=http://127.0.0.1:%s data=%s topics=12 durability=local\n",
		l.Addr(), flags["--http-port"], flags["--data-dir"])
	<-stop
	if script == "dirty" {
		return 1
	}
	return 0
}

func fakeCommand(args []string) int {
	switch args[0] {
	case "cat":
		if _, err := io.Copy(os.Stdout, os.Stdin); err != nil {
			return 1
		}
		return 0
	case "describe":
		fmt.Printf("{\"topic\":%q,\"broker\":%q}\n", args[1], os.Getenv("DANUBE_BROKER"))
		return 0
	case "tail":
		fmt.Println("waiting")
		bufio.NewScanner(os.Stdin).Scan()
		return 0
	default:
		fmt.Fprintln(os.Stderr, "danube: unknown command:", args[0])
		return 2
	}
}

// fake are the options of a broker that this test binary plays.
func fake(t testing.TB, script string) options {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return options{program: self, env: []string{"DANUBE_FAKE=" + script}}
}

func listens(address string) bool {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

func TestBrokerComesBackOnItsPortsAndData(t *testing.T) {
	b := startBroker(t, "n1", fake(t, "plain"))
	address, data := b.address(), b.ready["data"]
	if data != b.dir || b.ready["broker"] != "n1" || b.ready["topics"] != "12" || !strings.HasPrefix(b.url(), "http://") {
		t.Fatalf("parsed the ready line into %q", b.ready)
	}
	if !listens(address) {
		t.Fatalf("nothing listens on %s", address)
	}
	first := b.process
	b.kill()
	eventually(t, 5*time.Second, "the port of a killed broker is free", func() bool { return !listens(address) })
	if code, err := first.wait(time.Second); err != nil || code != -1 {
		t.Fatalf("a killed broker ended with %d, %v", code, err)
	}
	b.restart()
	if b.address() != address || b.ready["data"] != data {
		t.Fatalf("came back at %s on %s, was at %s on %s", b.address(), b.ready["data"], address, data)
	}
	b.stop(10 * time.Second)
}

func TestPausedBrokerIsResumedOrEnded(t *testing.T) {
	b := startBroker(t, "n1", fake(t, "plain"))
	b.pause()
	b.process.signal(syscall.SIGTERM)
	if _, err := b.process.wait(50 * time.Millisecond); err == nil {
		t.Fatal("a paused broker ended on SIGTERM")
	}
	b.resume()
	if code, err := b.process.wait(10 * time.Second); err != nil || code != 0 {
		t.Fatalf("resumed with SIGTERM pending it ended with %d, %v", code, err)
	}
	b.start()
	b.pause() // the cleanup must end it all the same
}

func TestBrokerThatRefusesToStartIsAnError(t *testing.T) {
	b := newBroker(t, "n1", fake(t, "refuse"))
	err := b.tryStart(10 * time.Second)
	if err == nil || !strings.Contains(err.Error(), "before it printed") {
		t.Fatalf("start of a broker that exits: %v", err)
	}
	if code, err := b.process.wait(time.Second); err != nil || code != 1 {
		t.Fatalf("it ended with %d, %v", code, err)
	}
	if log := lastLines(b.log.Name(), 1); log != "danube: start: port in use" {
		t.Fatalf("the log ends with %q", log)
	}
}

func TestStopSeesTheExitCode(t *testing.T) {
	b := startBroker(t, "n1", fake(t, "dirty"))
	b.process.signal(syscall.SIGTERM)
	if code, err := b.process.wait(10 * time.Second); err != nil || code != 1 {
		t.Fatalf("an unclean stop ended with %d, %v", code, err)
	}
}

func TestCommandsReachTheirBroker(t *testing.T) {
	brokers := []*broker{startBroker(t, "n1", fake(t, "plain")), startBroker(t, "n2", fake(t, "plain"))}
	for _, b := range brokers {
		got := parse[map[string]string](t, b.must(nil, "describe", "/default/t", "-o", "json"))
		if got["topic"] != "/default/t" || got["broker"] != b.address() {
			t.Errorf("described %q at %q, want the broker %s", got["topic"], got["broker"], b.address())
		}
	}
	b := brokers[0]
	if r := b.run(strings.NewReader("a\nb\n"), "cat"); string(r.stdout) != "a\nb\n" || r.code != 0 {
		t.Errorf("piped a and b, got %q with %d", r.stdout, r.code)
	}
	if r := b.run(nil, "nonsense"); r.code != 2 || r.stderr != "danube: unknown command: nonsense\n" {
		t.Errorf("a wrong command: code %d, %q", r.code, r.stderr)
	}
	lines := parseLines[struct{ N int }](t, b.must(strings.NewReader("{\"N\":1}\n{\"N\":2}\n"), "cat"))
	if !slices.Equal(lines, []struct{ N int }{{1}, {2}}) {
		t.Errorf("parsed lines into %v", lines)
	}
}

func TestCommandRunsBesideTheTest(t *testing.T) {
	b := startBroker(t, "n1", fake(t, "plain"))
	in, feed := io.Pipe()
	defer feed.Close()
	p := b.command(in, "tail")
	if _, err := p.line("waiting", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	if p.ended() {
		t.Fatal("it ended with its input open")
	}
	feed.Close()
	if code, err := p.wait(10 * time.Second); err != nil || code != 0 {
		t.Fatalf("ended with %d, %v", code, err)
	}
	if out := p.output(); !slices.Equal(out, []string{"waiting"}) {
		t.Fatalf("printed %q", out)
	}
}

func TestReadyLineMayHoldSpaces(t *testing.T) {
	got := parseReady("ready broker=n1 clients=127.0.0.1:1 data=/tmp/my data/x y topics=0 durability=local")
	if got["data"] != "/tmp/my data/x y" || got["topics"] != "0" || got["durability"] != "local" {
		t.Fatalf("parsed %q", got)
	}
}

func TestScaledIsATwentieth(t *testing.T) {
	t.Setenv("DANUBE_FULL", "")
	if a, b := scaled(1000), scaled(3); a != 50 || b != 1 {
		t.Errorf("scaled 1000 and 3 to %d and %d", a, b)
	}
	t.Setenv("DANUBE_FULL", "1")
	if a := scaled(1000); a != 1000 {
		t.Errorf("in full 1000 became %d", a)
	}
}
