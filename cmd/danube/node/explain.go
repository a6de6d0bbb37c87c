package node

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/disk"
)

// Explain adds to why a broker did not start what would help.
func Explain(err error, bc broker.Config) error {
	dir := bc.DataDir
	if busy, ok := errors.AsType[*broker.ListenError](err); ok {
		return listenError(err, busy)
	}
	if bind := bc.Peers.Gossip.Bind; bind != "" && strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) { // the gossip library keeps only the text
		return listenError(err, &broker.ListenError{Port: "gossip", Address: bind, Err: syscall.EADDRINUSE})
	}
	if locked, ok := errors.AsType[*disk.LockedError](err); ok {
		who := "another process"
		if locked.PID > 0 {
			who = fmt.Sprintf("process %d%s", locked.PID, called(locked.PID))
		}
		return fail.WithHint(fmt.Errorf("start: the data directory %s is in use by %s", dir, who), "stop that one, or choose another with --data-dir")
	}
	if _, lost := errors.AsType[*storage.IdentityError](err); lost {
		return fail.WithHint(err, "if this is the disk it was, `danube wal adopt %s` writes the store's id again from its segments", dir)
	}
	if errors.Is(err, disk.ErrNetwork) {
		return fail.WithHint(err, "--data-dir must lie on a disk of this machine")
	}
	return err
}

func listenError(err error, busy *broker.ListenError) error {
	flag := "--" + strings.ToLower(busy.Port) + "-port"
	switch {
	case errors.Is(busy, syscall.EADDRINUSE):
		who := "another process"
		if pid := listener(busy.Address); pid > 0 {
			who = fmt.Sprintf("process %d%s", pid, called(pid))
		}
		return fail.WithHint(fmt.Errorf("start: the %s port %s is in use by %s", busy.Port, busy.Address, who), "%s moves it", flag)
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fail.WithHint(err, "--host must be an address of this machine")
	case errors.Is(err, syscall.EACCES):
		return fail.WithHint(err, "ports below 1024 need privileges; %s moves it", flag)
	}
	return err
}
