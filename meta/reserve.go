package meta

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	reserveFile = "reserve"
	// reserveBytes lets a full disk take some thousand more metadata commands: enough to seal, to stop and to start.
	reserveBytes = 16 << 20
	// reserveRetry is how often a missing reserve is tried anew.
	reserveRetry = 10 * time.Second
)

// dropReserve gives the reserved space back to the file system, and says whether there was any.
func (s *store) dropReserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.low.Store(true)
	s.nextTry = s.now().Add(reserveRetry)
	if err := os.Remove(filepath.Join(s.dir, reserveFile)); err != nil {
		return false
	}
	s.metrics.reserve.Set(0)
	return true
}

// fillReserve makes the reserve if it is missing and there is ample room. That it cannot is no error: the disk is full,
// which the status says.
func (s *store) fillReserve() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.now().Before(s.nextTry) {
		return
	}
	path := filepath.Join(s.dir, reserveFile)
	if fi, err := os.Stat(path); err == nil && fi.Size() == reserveBytes {
		s.low.Store(false)
		s.metrics.reserve.Set(reserveBytes)
		return
	}
	s.nextTry = s.now().Add(reserveRetry)
	var free syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &free); err != nil || uint64(free.Bavail)*uint64(free.Bsize) < 4*reserveBytes {
		s.low.Store(true)
		return
	}
	if err := writeZeros(path, reserveBytes); err != nil {
		s.low.Store(true)
		// What was written of it would take space and give none back when it counts.
		_ = os.Remove(path)
		return
	}
	s.low.Store(false)
	s.metrics.reserve.Set(reserveBytes)
}

// writeZeros makes a file whose blocks are really there, which a truncate would not. Nobody reads it, so it needs no
// sync: a crash that loses it costs the next start one more try.
func writeZeros(path string, size int) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for n := 0; n < size && err == nil; n += len(block) {
		_, err = f.Write(block)
	}
	return errors.Join(err, f.Close())
}
