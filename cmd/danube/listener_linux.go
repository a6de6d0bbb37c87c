package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listener is the process that listens on a TCP address, 0 where it cannot be
// told: it belongs to another user, or is gone.
func listener(address string) int {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	sockets := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		listeningSockets(file, uint16(port), sockets)
	}
	if len(sockets) == 0 {
		return 0
	}
	files, err := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	if err != nil {
		return 0
	}
	for _, file := range files {
		if target, err := os.Readlink(file); err == nil && sockets[target] {
			pid, _ := strconv.Atoi(strings.Split(file, "/")[2]) // the pattern matched digits
			return pid
		}
	}
	return 0
}

// listeningSockets adds the sockets that listen on a port, named as in /proc/PID/fd.
func listeningSockets(file string, port uint16, sockets map[string]bool) {
	f, err := os.Open(file)
	if err != nil {
		return
	}
	defer f.Close()
	const stateListen = "0A"
	suffix := fmt.Sprintf(":%04X", port)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && fields[3] == stateListen && strings.HasSuffix(fields[1], suffix) {
			sockets["socket:["+fields[9]+"]"] = true
		}
	}
}

// called is the name of a process in brackets, "" where it cannot be told.
func called(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return " (" + strings.TrimSpace(string(name)) + ")"
}
