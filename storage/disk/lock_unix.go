//go:build unix

package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// flock is a held lock. The file stays when the lock is given back: removing it
// would let two processes lock two files of one name.
type flock struct {
	f    *os.File
	once sync.Once
	err  error
}

func lockFile(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, err
	}
	if err := takeLock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &flock{f: f}, nil
}

func takeLock(f *os.File) error {
	var err error
	for {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if errors.Is(err, unix.EWOULDBLOCK) {
		return &LockedError{Name: f.Name(), PID: holder(f)}
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	if _, err := f.WriteAt(fmt.Appendf(nil, "%d\n", os.Getpid()), 0); err != nil {
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return nil
}

// holder reads the process id that a lock file names, 0 when it names none.
func holder(f *os.File) int {
	var text [20]byte
	n, _ := f.ReadAt(text[:], 0) // a lock file that cannot be read names nobody
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text[:n])))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

// Close gives the lock back. It is idempotent.
func (l *flock) Close() error {
	l.once.Do(func() { l.err = l.f.Close() })
	return l.err
}
