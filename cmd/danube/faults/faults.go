// Package faults gives a broker a port of the loopback address through which a test tells it what is to go wrong. The
// command imports it with the build tag faults only, so the program that users get has nothing of it.
//
// The port takes one command a line and answers each with "ok …" or "error …":
//
//	kill STEP [N]   end the process as kill -9 does when the step is reached, at the Nth time from now (1)
//	fail STEP [N]   panic there
//	wait STEP [N]   stand still there, until
//	go STEP         lets it go on and takes the order for the step back
//	reached STEP    how often the step was reached
//	steps           the steps that were reached, with how often
//	clock DURATION  move the broker's clock by so much, from where it is
//	sync DURATION   every sync of a file takes so much longer; 0 ends it
//	lease off       serve without asking whether the lease runs; only before the broker is opened
//	cold EVERY GRACE  the cold tier is fed and put in order every so often, in small pieces, and what nobody needs
//	                  there any more stays for GRACE; only before the broker is opened
package faults

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Faults is the open port with what was ordered over it.
type Faults struct {
	port    net.Listener
	shift   atomic.Int64 // of the clock, ns
	syncing atomic.Int64 // how much longer a sync takes, ns
	quit    chan struct{}
	wg      sync.WaitGroup

	LeaseOff bool // leases were ordered off; set by Open
	Cold     Cold // how the cold tier is hurried; set by Open

	mu      sync.Mutex // guards what follows
	changed sync.Cond
	reached map[string]int
	orders  map[string]*order
	conns   []net.Conn
	closed  bool
}

// Cold is how the cold tier is hurried. Zero: not at all.
type Cold struct{ Every, Grace time.Duration }

// order is what is to happen at a step.
type order struct {
	what string
	left int // times the step is passed until it happens
}

// Open opens the port. Orders are commands, separated by ";", that count from the beginning.
func Open(orders string) (*Faults, error) {
	f := &Faults{quit: make(chan struct{}), reached: map[string]int{}, orders: map[string]*order{}}
	f.changed.L = &f.mu
	for line := range strings.SplitSeq(orders, ";") {
		if line = strings.TrimSpace(line); line != "" {
			if _, err := f.obey(line); err != nil {
				return nil, err
			}
		}
	}
	var err error
	if f.port, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, fmt.Errorf("open the port of faults: %w", err)
	}
	f.wg.Go(f.accept) // returns when the port is closed
	return f, nil
}

// Addr is where the port listens.
func (f *Faults) Addr() string { return f.port.Addr().String() }

// Now is the clock of the broker.
func (f *Faults) Now() time.Time { return time.Now().Add(time.Duration(f.shift.Load())) }

// Close closes the port; who stands still at a step or in a sync goes on.
func (f *Faults) Close() {
	_ = f.port.Close() // nothing was written to it
	f.mu.Lock()
	if !f.closed {
		close(f.quit)
	}
	f.closed = true
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.changed.Broadcast()
	f.mu.Unlock()
	f.wg.Wait()
}

// At is called by the broker at each of its named steps.
func (f *Faults) At(step string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reached[step]++
	f.changed.Broadcast()
	o := f.orders[step]
	if o == nil {
		return
	}
	if o.left--; o.left > 0 {
		return
	}
	switch o.what {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL) // what can fail here?
		select {}
	case "fail":
		panic("told to fail at " + step)
	case "wait":
		for f.orders[step] == o && !f.closed {
			f.changed.Wait()
		}
	}
}

// obey carries out one command.
func (f *Faults) obey(line string) (string, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", errors.New("an empty command")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	defer f.changed.Broadcast()
	switch what := words[0]; {
	case what == "steps" && len(words) == 1:
		var all []string
		for _, step := range slices.Sorted(maps.Keys(f.reached)) {
			all = append(all, fmt.Sprintf("%s=%d", step, f.reached[step]))
		}
		return strings.Join(all, " "), nil
	case what == "reached" && len(words) == 2:
		return strconv.Itoa(f.reached[words[1]]), nil
	case what == "go" && len(words) == 2:
		delete(f.orders, words[1])
		return "", nil
	case what == "clock" && len(words) == 2:
		d, err := time.ParseDuration(words[1])
		if err != nil {
			return "", err
		}
		f.shift.Add(int64(d))
		return "", nil
	case line == "lease off" && f.port == nil:
		f.LeaseOff = true
		return "", nil
	case what == "cold" && len(words) == 3 && f.port == nil:
		return "", f.Cold.parse(words[1:])
	case what == "sync" && len(words) == 2:
		d, err := time.ParseDuration(words[1])
		if err != nil || d < 0 {
			return "", fmt.Errorf("%q is no duration of a sync", words[1])
		}
		f.syncing.Store(int64(d))
		return "", nil
	case (what == "kill" || what == "fail" || what == "wait") && (len(words) == 2 || len(words) == 3):
		n := 1
		if len(words) == 3 {
			var err error
			if n, err = strconv.Atoi(words[2]); err != nil || n < 1 {
				return "", fmt.Errorf("%q is no number of times", words[2])
			}
		}
		f.orders[words[1]] = &order{what, n}
		return "", nil
	}
	return "", fmt.Errorf("unknown command %q", line)
}

func (c *Cold) parse(words []string) (err error) {
	for i, d := range []*time.Duration{&c.Every, &c.Grace} {
		if *d, err = time.ParseDuration(words[i]); err != nil || *d <= 0 {
			return fmt.Errorf("%q is no time of the cold tier", words[i])
		}
	}
	return nil
}

func (f *Faults) accept() {
	for {
		c, err := f.port.Accept()
		if err != nil {
			return
		}
		f.mu.Lock()
		f.conns = append(f.conns, c)
		if f.closed {
			_ = c.Close()
		}
		f.mu.Unlock()
		f.wg.Go(func() { f.converse(c) }) // returns when either side closes the connection
	}
}

func (f *Faults) converse(c net.Conn) {
	defer c.Close()
	for lines := bufio.NewScanner(c); lines.Scan(); {
		answer, err := f.obey(lines.Text())
		if answer = strings.TrimRight("ok "+answer, " "); err != nil {
			answer = "error " + err.Error()
		}
		if _, err := io.WriteString(c, answer+"\n"); err != nil {
			return
		}
	}
}
