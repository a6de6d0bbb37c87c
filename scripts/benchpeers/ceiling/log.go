package main

import (
	"fmt"
	"os"
	"sync"
	"syscall"
)

// maxRound is how many bytes one round may hold; connections wait while the next one is that full.
const maxRound = 4 << 20

// log is one file with one writer. Connections copy their frames into the round that is filling; the writer takes it,
// writes and syncs it, and tells everybody, while the next one fills.
type log struct {
	file *os.File
	laid int64 // length of a file that was zero-filled ahead and is used again from its start; 0 is a growing one
	sync bool
	at   int64

	mu      sync.Mutex
	changed *sync.Cond // the round has room, or something in it
	filling round
	tails   map[*tail]struct{}
}

// round is what one write makes durable.
type round struct {
	bytes  []byte
	shares []share
}

// share is what one connection has in a round.
type share struct {
	from     *publisher
	messages uint64
}

func openLog(path string, laid int64, sync_ bool) (*log, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < laid; at += int64(len(zeros)) {
		if _, err := file.WriteAt(zeros, at); err != nil {
			return nil, fmt.Errorf("lay out log: %w", err)
		}
	}
	if err := file.Sync(); err != nil {
		return nil, fmt.Errorf("sync log: %w", err)
	}
	l := &log{file: file, laid: laid, sync: sync_, tails: map[*tail]struct{}{}}
	l.changed = sync.NewCond(&l.mu)
	return l, nil
}

// append copies whole frames into the filling round, waiting while it is full.
func (l *log) append(from *publisher, frames []byte, messages uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.filling.bytes) > 0 && len(l.filling.bytes)+len(frames) > maxRound {
		l.changed.Wait()
	}
	l.filling.bytes = append(l.filling.bytes, frames...)
	if n := len(l.filling.shares); n > 0 && l.filling.shares[n-1].from == from {
		l.filling.shares[n-1].messages += messages
	} else {
		l.filling.shares = append(l.filling.shares, share{from, messages})
	}
	l.changed.Broadcast()
}

// run writes rounds until the disk fails: there is nothing to be saved here.
func (l *log) run() error {
	var spare round
	for {
		l.mu.Lock()
		for len(l.filling.bytes) == 0 {
			l.changed.Wait()
		}
		full := l.filling
		l.filling = round{spare.bytes[:0], spare.shares[:0]}
		l.changed.Broadcast()
		l.mu.Unlock()

		if l.laid > 0 && l.at+int64(len(full.bytes)) > l.laid {
			l.at = 0
		}
		if _, err := l.file.WriteAt(full.bytes, l.at); err != nil {
			return fmt.Errorf("write round: %w", err)
		}
		l.at += int64(len(full.bytes))
		if l.sync {
			if err := fdatasync(l.file); err != nil {
				return fmt.Errorf("sync round: %w", err)
			}
		}
		l.mu.Lock()
		for t := range l.tails {
			t.offer(full.bytes)
		}
		l.mu.Unlock()
		for _, s := range full.shares {
			s.from.acknowledge(s.messages)
		}
		spare = full
	}
}

func (l *log) follow(t *tail) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tails[t] = struct{}{}
}

func (l *log) leave(t *tail) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tails, t)
}

func fdatasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR {
			return err
		}
	}
}
