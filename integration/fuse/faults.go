package main

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
)

// faults is what the file system is told to do wrong, and what it counts.
type faults struct {
	mu     sync.Mutex
	rules  []rule
	space  int64 // bytes that files may still grow by, -1 is no bound
	dead   bool  // power is lost: nothing works any more
	writes int
	syncs  int
}

// rule fails an operation with an error: the next left times, or always when left is -1, in paths that hold part.
type rule struct {
	op    string // "write" or "sync"
	errno syscall.Errno
	left  int
	part  string
}

// errno says what an operation on a path ends with, 0 is well. Every write, sync and change of a directory asks first.
func (f *faults) errno(op, path string) syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dead {
		return syscall.EIO
	}
	switch op {
	case "write":
		f.writes++
	case "sync":
		f.syncs++
	}
	for i := range f.rules {
		r := &f.rules[i]
		if r.op != op || r.left == 0 || !strings.Contains(path, r.part) {
			continue
		}
		if r.left > 0 {
			r.left--
		}
		return r.errno
	}
	return 0
}

// grow takes bytes of the space that is left.
func (f *faults) grow(n int64) syscall.Errno {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n <= 0 || f.space < 0 {
		return 0
	}
	if n > f.space {
		return syscall.ENOSPC
	}
	f.space -= n
	return 0
}

// give gives back the space of what was removed or cut. A hole that a truncation makes at the end takes none.
func (f *faults) give(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n > 0 && f.space >= 0 {
		f.space += n
	}
}

// fail adds a rule: OP ERRNO [COUNT [PART]].
func (f *faults) fail(args []string) error {
	if len(args) < 2 || args[0] != "write" && args[0] != "sync" {
		return fmt.Errorf("usage: fail write|sync ENOSPC|EIO [COUNT [PART-OF-PATH]]")
	}
	r := rule{op: args[0], left: -1}
	switch args[1] {
	case "ENOSPC":
		r.errno = syscall.ENOSPC
	case "EIO":
		r.errno = syscall.EIO
	default:
		return fmt.Errorf("unknown error %q", args[1])
	}
	if len(args) > 2 {
		if _, err := fmt.Sscan(args[2], &r.left); err != nil {
			return fmt.Errorf("read count: %w", err)
		}
	}
	if len(args) > 3 {
		r.part = args[3]
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = append(f.rules, r)
	return nil
}
