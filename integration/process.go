package integration

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is one program that a test started. It is ended, by its own id, when the test is over.
type process struct {
	t    testing.TB
	name string
	cmd  *exec.Cmd
	log  *os.File

	mu    sync.Mutex
	lines []string // standard output so far
	wake  chan struct{}

	done chan struct{} // closed when the process has ended and its output is read to the end
	err  error         // what Wait returned, valid after done
}

// spawn starts a program with its standard output read line by line and both outputs kept in log. The settings change
// how the system starts it.
func spawn(t testing.TB, name string, cmd *exec.Cmd, log *os.File, settings ...func(*syscall.SysProcAttr)) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: cmd, log: log, wake: make(chan struct{}, 1), done: make(chan struct{})}
	cmd.Stderr = log
	cmd.SysProcAttr = endWithParent()
	for _, set := range settings {
		set(cmd.SysProcAttr)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatalf("open output of %s: %v", name, err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go p.follow(out) // returns when the process has ended
	t.Cleanup(p.end)
	return p
}

// follow reads the output to its end, then waits for the process: in this order, or Wait closes the pipe too early.
func (p *process) follow(out io.Reader) {
	defer close(p.done)
	scanner := bufio.NewScanner(io.TeeReader(out, p.log))
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		p.mu.Lock()
		p.lines = append(p.lines, scanner.Text())
		p.mu.Unlock()
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
	p.err = p.cmd.Wait()
}

// line waits until a line with the prefix was printed, the process ends, or the time is over. A test waits in one
// goroutine only.
func (p *process) line(prefix string, d time.Duration) (string, error) {
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	seen := 0
	for {
		over := p.ended() // asked first: once it has ended, no line comes after this look
		p.mu.Lock()
		lines := p.lines[seen:]
		seen = len(p.lines)
		p.mu.Unlock()
		for _, l := range lines {
			if strings.HasPrefix(l, prefix) {
				return l, nil
			}
		}
		if over {
			return "", fmt.Errorf("%s ended (%v) before it printed %q", p.name, p.err, prefix)
		}
		select {
		case <-p.wake:
		case <-p.done:
		case <-timeout.C:
			return "", fmt.Errorf("%s did not print %q within %v", p.name, prefix, d)
		}
	}
}

// output is what was printed to standard output so far.
func (p *process) output() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// printed is how many lines were printed so far.
func (p *process) printed() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.lines)
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Errorf("send %v to %s: %v", s, p.name, err)
	}
}

// wait waits for the end of the process and returns its exit code, -1 when a signal ended it.
func (p *process) wait(d time.Duration) (int, error) {
	select {
	case <-p.done:
	case <-time.After(d):
		return 0, fmt.Errorf("%s still runs after %v", p.name, d)
	}
	if exit := (*exec.ExitError)(nil); p.err != nil && !errors.As(p.err, &exit) {
		return 0, fmt.Errorf("wait for %s: %w", p.name, p.err)
	}
	return p.cmd.ProcessState.ExitCode(), nil
}

// kill ends the process as kill -9 does and waits until it is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// end is what a test leaves behind: nothing.
func (p *process) end() {
	select {
	case <-p.done:
	default:
		p.signal(syscall.SIGCONT)
		p.kill()
	}
}

// openLog opens the file that keeps what a process prints. It is kept, in DANUBE_TEST_LOGS or else in a temporary
// folder, and its last lines are shown, when the test fails.
func openLog(t testing.TB, name string) *os.File {
	t.Helper()
	dir := os.Getenv("DANUBE_TEST_LOGS")
	if dir == "" {
		dir = t.TempDir()
	}
	file := strings.NewReplacer("/", "_", " ", "_").Replace(t.Name() + "-" + name + ".log")
	log, err := os.OpenFile(filepath.Join(dir, file), os.O_CREATE|os.O_RDWR|os.O_TRUNC|os.O_APPEND, 0o644)
	if err != nil {
		t.Fatalf("open log: %v", err)
	}
	t.Cleanup(func() {
		defer log.Close()
		if !t.Failed() {
			os.Remove(log.Name())
			return
		}
		t.Logf("last lines of %s (%s):\n%s", name, log.Name(), lastLines(log.Name(), 30))
	})
	return log
}

func lastLines(path string, n int) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
