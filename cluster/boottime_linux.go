package cluster

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime returns the time since the machine started. It goes on while the machine sleeps, which Go's monotonic clock
// does not: a lease must run out meanwhile.
func boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("cluster: no CLOCK_BOOTTIME: " + err.Error())
	}
	return time.Duration(ts.Nano())
}
