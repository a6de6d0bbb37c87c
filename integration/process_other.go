//go:build !linux

package integration

import "syscall"

// endWithParent asks for nothing where the kernel offers nothing: cleanup ends the children.
func endWithParent() *syscall.SysProcAttr { return nil }
