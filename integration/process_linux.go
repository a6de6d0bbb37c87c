package integration

import "syscall"

// endWithParent lets the kernel end a child whose parent died, as a test binary does that ran into its time limit.
func endWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
