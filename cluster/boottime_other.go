//go:build !linux

package cluster

import "time"

// boottime stands in where there is no CLOCK_BOOTTIME: the wall clock, which goes on while the machine sleeps.
func boottime() time.Duration { return time.Duration(time.Now().UnixNano()) }
