package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// startStick serves a log in this process.
func startStick(t *testing.T, laid int64) (address, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "log")
	log, err := openLog(path, laid, true)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() { // returns with the test binary: a stick has no clean end
		if err := log.run(); err != nil {
			t.Error(err)
		}
	}()
	go serve(l, log) // returns when the listener is closed
	return l.Addr().String(), path
}

func TestEverythingAcknowledgedIsInTheFile(t *testing.T) {
	address, path := startStick(t, 0)
	for _, l := range []load{
		{address: address, size: 100, window: 1, conns: 3, count: 30},
		{address: address, size: 1000, window: 50, conns: 2, count: 2000},
		{address: address, size: 300_000, window: 3, conns: 1, count: 20}, // two do not fit a read buffer
	} {
		before := sizeOf(t, path)
		r, err := publishAll(l)
		if err != nil || r.Messages != l.count || r.P50 <= 0 {
			t.Fatalf("publish %+v: %+v, %v", l, r, err)
		}
		if grown := sizeOf(t, path) - before; grown != l.count*int64(l.size+headSize) {
			t.Fatalf("the file grew by %d, want %d", grown, l.count*int64(l.size+headSize))
		}
	}
}

func TestLaidFileKeepsItsLength(t *testing.T) {
	address, path := startStick(t, 1<<20)
	if _, err := publishAll(load{address: address, size: 1000, window: 100, conns: 1, count: 5000}); err != nil {
		t.Fatal(err)
	}
	if n := sizeOf(t, path); n != 1<<20 {
		t.Fatalf("the file has %d bytes", n)
	}
	if text, err := os.ReadFile(path); err != nil || bytes.Equal(text[:8], make([]byte, 8)) {
		t.Fatalf("nothing was written to it: %v", err)
	}
}

func TestFollowerGetsEveryMessage(t *testing.T) {
	address, _ := startStick(t, 0)
	r, err := measureDelivery(load{address: address, size: 200, rate: 2000, duration: 200 * time.Millisecond})
	if err != nil || r.Messages != 400 || r.P50 <= 0 {
		t.Fatalf("%+v, %v", r, err)
	}
}

func TestWrongCRCEndsTheConnection(t *testing.T) {
	address, path := startStick(t, 0)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	frame := make([]byte, headSize+10)
	fill(frame, 0, castagnoli())
	frame[headSize] ^= 1
	if _, err := c.Write(append([]byte{publishes}, frame...)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(frame); err == nil {
		t.Fatalf("acknowledged with %d bytes", n)
	}
	if n := sizeOf(t, path); n != 0 {
		t.Fatalf("%d bytes were written", n)
	}
}

func sizeOf(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}
