package integration

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// wires is a network of its own: a namespace for each broker, joined to each other and to this process by a bridge.
// What goes wrong on the way is a rule of nftables where packets arrive, so that one direction can fail alone.
type wires struct {
	t      testing.TB
	prefix string // of the addresses, "10.A.B."
	spaces []string
}

// newWires makes the network; it is gone when the test is over. It needs root, ip and nft.
func newWires(t testing.TB, n int) *wires {
	t.Helper()
	if os.Getuid() != 0 {
		lacks(t, "root, who may make network namespaces,", "iproute2 nftables, and run as root")
	}
	needs(t, "ip", "iproute2")
	needs(t, "nft", "nftables")
	id := fmt.Sprintf("%x", rand.IntN(1<<24))
	w := &wires{t: t, prefix: "10." + part(t)}
	hub := "dt" + id + "hub"
	w.make(hub)
	w.run("ip -n %s link add br0 type bridge", hub)
	w.run("ip -n %s link set br0 up", hub)
	// This process takes part from where it is.
	w.run("ip link add dt%sr type veth peer name root netns %s", id, hub)
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "dt"+id+"r").Run() }) // gone with the hub as well
	w.run("ip addr add %s254/24 dev dt%sr", w.prefix, id)
	w.run("ip link set dt%sr up", id)
	w.run("ip -n %s link set root master br0 up", hub)
	for i := range n {
		space := fmt.Sprintf("dt%sn%d", id, i+1)
		w.make(space)
		w.spaces = append(w.spaces, space)
		w.run("ip -n %s link add eth0 type veth peer name n%d netns %s", space, i+1, hub)
		w.run("ip -n %s link set n%d master br0 up", hub, i+1)
		w.run("ip -n %s addr add %s/24 dev eth0", space, w.host(i))
		w.run("ip -n %s link set lo up", space)
		w.run("ip -n %s link set eth0 up", space)
		w.run("ip netns exec %s nft add table inet faults", space)
		w.run("ip netns exec %s nft add chain inet faults arriving { type filter hook input priority 0 ; }", space)
	}
	return w
}

// make makes a namespace that ends with the test.
func (w *wires) make(space string) {
	w.t.Helper()
	w.run("ip netns add %s", space)
	w.t.Cleanup(func() {
		if out, err := exec.Command("ip", "netns", "del", space).CombinedOutput(); err != nil {
			w.t.Errorf("remove namespace %s: %v\n%s", space, err, out)
		}
	})
}

func (w *wires) host(i int) string { return w.prefix + strconv.Itoa(firstHost+i) }

// names gives every broker a table of names of its own, empty at first, and no name server; the function returned
// writes the table, which holds from then on.
func (w *wires) names() (set func(table string)) {
	w.t.Helper()
	var tables []string
	for _, space := range w.spaces {
		// "ip netns exec" lays what is in this folder over /etc.
		dir := "/etc/netns/" + space
		tables = append(tables, dir+"/hosts")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() {
			if err := os.RemoveAll(dir); err != nil {
				w.t.Error(err)
			}
		})
		if err := os.WriteFile(dir+"/resolv.conf", []byte("nameserver 127.0.0.1\n"), 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
	set = func(table string) {
		w.t.Helper()
		for _, file := range tables {
			// In place: the brokers see this file, not its name.
			if err := os.WriteFile(file, []byte(table), 0o644); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	set("")
	return set
}

// run runs one command, whose words are separated by spaces.
func (w *wires) run(format string, args ...any) {
	w.t.Helper()
	line := fmt.Sprintf(format, args...)
	words := strings.Fields(line)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		w.t.Fatalf("%s: %v\n%s", line, err, out)
	}
}

// at adds a rule for what arrives at broker to from broker from, both counted from 0.
func (w *wires) at(to, from int, rule string) {
	w.t.Helper()
	w.run("ip netns exec %s nft add rule inet faults arriving ip saddr %s %s", w.spaces[to], w.host(from), rule)
}

// silence lets nothing of broker from arrive at broker to. The other direction goes on, as far as it can.
func (w *wires) silence(from, to int) {
	w.t.Helper()
	w.at(to, from, "drop")
}

// isolate cuts a broker off from all other brokers, both ways. Clients still reach it.
func (w *wires) isolate(i int) {
	w.t.Helper()
	for j := range w.spaces {
		if j != i {
			w.silence(i, j)
			w.silence(j, i)
		}
	}
}

// lose drops so many of a hundred packets between any two brokers.
func (w *wires) lose(percent int) {
	w.t.Helper()
	for i := range w.spaces {
		for j := range w.spaces {
			if i != j {
				w.at(i, j, fmt.Sprintf("numgen random mod 100 < %d drop", percent))
			}
		}
	}
}

// heal takes every fault back.
func (w *wires) heal() {
	w.t.Helper()
	for _, space := range w.spaces {
		w.run("ip netns exec %s nft flush chain inet faults arriving", space)
	}
}
