package node

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// listener is the process that listens on a TCP address, 0 where it cannot be
// told: it belongs to another user, or is gone.
func listener(address string) int {
	at, err := net.ResolveTCPAddr("tcp", address)
	if err != nil {
		return 0
	}
	sockets := map[string]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		listeningSockets(file, at.AddrPort(), sockets)
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

// listeningSockets adds the sockets that keep others from listening on an address, named as in /proc/PID/fd.
func listeningSockets(file string, at netip.AddrPort, sockets map[string]bool) {
	f, err := os.Open(file)
	if err != nil {
		return
	}
	defer f.Close()
	const stateListen = "0A"
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) > 9 && fields[3] == stateListen && excludes(fields[1], at) {
			sockets["socket:["+fields[9]+"]"] = true
		}
	}
}

// excludes reports whether who listens at local, as /proc/net writes it, keeps
// others from listening at an address: the same one, or one of the two is for all.
func excludes(local string, at netip.AddrPort) bool {
	there, ok := localAddress(local)
	if !ok || there.Port() != at.Port() {
		return false
	}
	a, b := there.Addr(), at.Addr().Unmap().WithZone("")
	return a == b || a.IsUnspecified() || b.IsUnspecified() || !b.IsValid()
}

// localAddress reads an address of /proc/net: each 32 bits of the IP in hex, in
// the machine's order, a colon and the port.
func localAddress(text string) (netip.AddrPort, bool) {
	host, port, _ := strings.Cut(text, ":")
	ip, err := hex.DecodeString(host)
	n, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(ip)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(ip); i += 4 {
		binary.NativeEndian.PutUint32(ip[i:], binary.BigEndian.Uint32(ip[i:]))
	}
	addr, ok := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), ok
}

// called is the name of a process in brackets, "" where it cannot be told.
func called(pid int) string {
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return " (" + strings.TrimSpace(string(name)) + ")"
}
