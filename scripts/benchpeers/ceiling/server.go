package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"sync"
)

// headSize is the head of a frame: its payload's length and CRC-32C, four bytes each.
const headSize = 8

// The first byte of a connection says what it is.
const (
	publishes = 'P'
	follows   = 'F'
)

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// serve takes connections until the listener is closed.
func serve(l net.Listener, log *log) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() { // returns when the peer hangs up
			defer c.Close()
			r := bufio.NewReaderSize(c, 512<<10)
			switch kind, _ := r.ReadByte(); kind {
			case publishes:
				publish(c, r, log)
			case follows:
				deliver(c, log)
			}
		}()
	}
}

// publisher is the server's side of a connection that publishes. Its acknowledgements are cumulative.
type publisher struct {
	mu    sync.Mutex
	acked uint64
	wake  chan struct{}
}

func (p *publisher) acknowledge(n uint64) {
	p.mu.Lock()
	p.acked += n
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// publish checks every frame and hands over as many at once as are there.
func publish(c net.Conn, r *bufio.Reader, log *log) {
	p := &publisher{wake: make(chan struct{}, 1)}
	done := make(chan struct{})
	defer close(done)
	go func() { // returns when the connection is over
		var b [8]byte
		for {
			select {
			case <-p.wake:
			case <-done:
				return
			}
			p.mu.Lock()
			binary.LittleEndian.PutUint64(b[:], p.acked)
			p.mu.Unlock()
			if _, err := c.Write(b[:]); err != nil {
				return
			}
		}
	}()
	table := castagnoli()
	for {
		if _, err := r.Peek(headSize); err != nil {
			return
		}
		there, _ := r.Peek(r.Buffered())
		whole, messages := 0, uint64(0)
		for whole+headSize <= len(there) {
			end := whole + headSize + int(binary.LittleEndian.Uint32(there[whole:]))
			if end > len(there) {
				break
			}
			if crc32.Checksum(there[whole+headSize:end], table) != binary.LittleEndian.Uint32(there[whole+4:]) {
				return
			}
			whole, messages = end, messages+1
		}
		if messages == 0 { // the rest of one frame is still on its way
			if _, err := r.Peek(headSize + int(binary.LittleEndian.Uint32(there))); err != nil {
				return
			}
			continue
		}
		log.append(p, there[:whole], messages)
		if _, err := r.Discard(whole); err != nil {
			return
		}
	}
}

// tail is the server's side of a connection that follows the log.
type tail struct {
	mu    sync.Mutex
	room  *sync.Cond
	bytes []byte
	gone  bool
	wake  chan struct{}
}

// offer copies a durable round for the follower, waiting while it is far behind.
func (t *tail) offer(b []byte) {
	t.mu.Lock()
	for len(t.bytes) > 2*maxRound && !t.gone {
		t.room.Wait()
	}
	if !t.gone {
		t.bytes = append(t.bytes, b...)
	}
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

func deliver(c net.Conn, log *log) {
	t := &tail{wake: make(chan struct{}, 1)}
	t.room = sync.NewCond(&t.mu)
	log.follow(t)
	hungUp := make(chan struct{})
	go func() { // returns when the peer hangs up: it never says anything
		_, _ = io.Copy(io.Discard, c)
		close(hungUp)
	}()
	if _, err := fmt.Fprint(c, "+"); err != nil { // from here on it misses nothing
		return
	}
	defer log.leave(t)
	defer func() {
		t.mu.Lock()
		t.gone = true
		t.room.Broadcast()
		t.mu.Unlock()
	}()
	var out []byte
	for {
		select {
		case <-t.wake:
		case <-hungUp:
			return
		}
		t.mu.Lock()
		t.bytes, out = out[:0], t.bytes
		t.room.Broadcast()
		t.mu.Unlock()
		if _, err := c.Write(out); err != nil {
			return
		}
	}
}
