package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// laidBytes is the length of a file that is zero-filled ahead and used again from its start.
const laidBytes = 256 << 20

// writePlain writes size bytes at a time until total bytes are written, synced after each write when asked, to a file
// that grows, or to a zero-filled one that is used again and again.
func writePlain(dir string, size int, total int64, sync, laid bool) (r result, err error) {
	f, err := os.Create(filepath.Join(dir, "plain"))
	if err != nil {
		return r, fmt.Errorf("make plain file: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	if laid {
		zeros := make([]byte, 1<<20)
		for at := int64(0); at < laidBytes; at += int64(len(zeros)) {
			if _, err := f.WriteAt(zeros, at); err != nil {
				return r, fmt.Errorf("lay out plain file: %w", err)
			}
		}
	}
	if err := f.Sync(); err != nil {
		return r, fmt.Errorf("sync plain file: %w", err)
	}
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i)
	}
	var times []time.Duration
	var at int64
	start := time.Now()
	for n := int64(0); n < total; n += int64(size) {
		since := time.Now()
		if laid && at+int64(size) > laidBytes {
			at = 0
		}
		if _, err := f.WriteAt(b, at); err != nil {
			return r, fmt.Errorf("write plain file: %w", err)
		}
		at += int64(size)
		if sync {
			if err := syscall.Fdatasync(int(f.Fd())); err != nil {
				return r, fmt.Errorf("sync plain file: %w", err)
			}
		}
		times = append(times, time.Since(since))
	}
	return summarise(int64(len(times)), int64(size), time.Since(start), times), nil
}

// loopback sends size bytes over a TCP connection on 127.0.0.1 and, when echoed, waits for them to come back before
// the next.
func loopback(size int, count int64, echoed bool) (result, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return result{}, fmt.Errorf("listen: %w", err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() { // returns when the connection is closed
		c, err := l.Accept()
		if err != nil {
			served <- err
			return
		}
		defer c.Close()
		if echoed {
			_, err = io.Copy(c, c)
		} else if _, err = io.CopyN(io.Discard, c, int64(size)*count); err == nil {
			_, err = c.Write([]byte{1})
		}
		served <- err
	}()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return result{}, fmt.Errorf("dial: %w", err)
	}
	b := make([]byte, size)
	var times []time.Duration
	start := time.Now()
	for range count {
		since := time.Now()
		if _, err := c.Write(b); err != nil {
			return result{}, fmt.Errorf("write: %w", err)
		}
		if echoed {
			if _, err := io.ReadFull(c, b); err != nil {
				return result{}, fmt.Errorf("read: %w", err)
			}
			times = append(times, time.Since(since))
		}
	}
	if !echoed {
		if _, err := io.ReadFull(c, b[:1]); err != nil {
			return result{}, fmt.Errorf("read: %w", err)
		}
	}
	took := time.Since(start)
	return summarise(count, int64(size), took, times), errors.Join(c.Close(), <-served)
}

// plainFigure is one figure of the bare machine.
type plainFigure struct{ what, figure string }

// plainFigures measures disk and loopback, so that the other figures can be read on another machine.
func plainFigures(dir string, bytes int64) ([]plainFigure, error) {
	var all []plainFigure
	var failed error
	add := func(what string, r result, err error, text func(result) string) {
		failed = errors.Join(failed, err)
		if err == nil {
			all = append(all, plainFigure{what, text(r)})
		}
	}
	speed := func(r result) string { return fmt.Sprintf("%.0f MB/s", float64(r.Bytes)/r.Seconds/1e6) }
	times := func(r result) string { return fmt.Sprintf("median %.0f µs, 99th percentile %.0f µs", r.P50, r.P99) }
	bulk := max(bytes/4, 64<<20)
	r, err := writePlain(dir, 1<<20, bulk, false, false)
	add("write of 1 MiB, growing file, not synced", r, err, speed)
	for _, kind := range []struct {
		name string
		laid bool
	}{{"growing file", false}, {"zero-filled file", true}} {
		r, err = writePlain(dir, 1<<20, bulk, true, kind.laid)
		add("write of 1 MiB and fdatasync, "+kind.name, r, err, speed)
		r, err = writePlain(dir, 4<<10, 2000*4<<10, true, kind.laid)
		add("write of 4 KiB and fdatasync, "+kind.name, r, err, times)
	}
	r, err = loopback(64<<10, bulk>>16, false)
	add("loopback, 64 KiB writes", r, err, speed)
	r, err = loopback(1, 20_000, true)
	add("loopback, one byte there and back", r, err, times)
	return all, failed
}
