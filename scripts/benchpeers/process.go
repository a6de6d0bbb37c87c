package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// server is a process that this run started and will end, by its own id.
type server struct {
	name string
	cmd  *exec.Cmd
	done chan struct{}
	peak atomic.Int64 // highest resident memory that was seen, bytes
}

// startServer starts a server and waits until a line of its output says that it is ready.
func startServer(ctx context.Context, name, ready string, argv ...string) (*server, string, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	out, in, err := os.Pipe()
	if err != nil {
		return nil, "", fmt.Errorf("make pipe: %w", err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	if err := cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("start %s: %w", name, err)
	}
	in.Close()
	s := &server{name: name, cmd: cmd, done: make(chan struct{})}
	lines := make(chan string)
	go func() { // returns when the server has closed its output
		defer close(lines)
		defer out.Close()
		sent := false
		said := ""
		defer func() {
			if !sent && said != "" {
				fmt.Fprintf(os.Stderr, "%s said last: %s\n", name, said)
			}
		}()
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			said = scanner.Text()
			if !sent && strings.Contains(said, ready) {
				lines <- scanner.Text()
				sent = true
			}
		}
	}()
	go func() { // returns when the server has ended
		_ = cmd.Wait()
		close(s.done)
	}()
	select {
	case line, ok := <-lines:
		if ok {
			go s.watch() // returns when the server has ended
			return s, line, nil
		}
		return nil, "", fmt.Errorf("%s ended before it was ready", name)
	case <-time.After(2 * time.Minute):
		return nil, "", errors.Join(fmt.Errorf("%s was not ready in two minutes", name), s.stop())
	case <-ctx.Done():
		return nil, "", errors.Join(ctx.Err(), s.stop())
	}
}

// watch looks at the server's resident memory ten times a second.
func (s *server) watch() {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.peak.Store(max(s.peak.Load(), resident(s.cmd.Process.Pid)))
		case <-s.done:
			return
		}
	}
}

// resident is the resident memory of a process in bytes, 0 when it is gone.
func resident(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	if err != nil {
		return 0
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// stop ends the server gently, then for certain.
func (s *server) stop() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may be gone already
	select {
	case <-s.done:
		return nil
	case <-time.After(30 * time.Second):
	}
	if err := s.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("end %s: %w", s.name, err)
	}
	<-s.done
	return nil
}

// measure runs a client to its end and reads the result it printed. Before it, everything dirty goes to the disk, so
// that one side does not pay for what the other left behind.
func measure(ctx context.Context, env []string, argv ...string) (result, error) {
	syscall.Sync()
	out, err := execute(ctx, env, argv...)
	if err != nil {
		return result{}, err
	}
	var r result
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&r); err != nil && !errors.Is(err, io.EOF) {
		return result{}, fmt.Errorf("%s: read result: %w", strings.Join(argv, " "), err)
	}
	if r.Errors > 0 {
		return r, fmt.Errorf("%s: %d errors in what was read back", strings.Join(argv, " "), r.Errors)
	}
	return r, nil
}

func execute(ctx context.Context, env []string, argv ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(complaint.String())
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, text[max(0, len(text)-400):])
	}
	return out.Bytes(), nil
}
