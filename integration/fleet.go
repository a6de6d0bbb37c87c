package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// door is where clients come in: at one broker, or at any of a fleet.
type door struct {
	t         testing.TB
	addresses func() []string
}

// dial connects a client that lives until the test is over, whatever becomes of the brokers.
func (d door) dial() *client.Client {
	d.t.Helper()
	ctx, cancel := context.WithTimeout(d.t.Context(), readyWithin)
	defer cancel()
	cl, err := client.Dial(ctx, d.addresses(), client.Config{Name: "integration"})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(cl.Close)
	return cl
}

// fleet is the brokers of one cluster, n1 to nN, which may be started in any order.
type fleet struct {
	door
	brokers []*broker
	admin   *client.Client // made when first asked for
}

// newFleet prepares n brokers that know each other as seeds and expect each other, unless the options say otherwise, and
// starts none. They have an address each and the default ports.
func newFleet(t testing.TB, n int, o options) *fleet {
	t.Helper()
	prefix := ""
	if o.wires != nil {
		prefix = o.wires.prefix
	} else {
		prefix = loopback(t, n)
	}
	f := &fleet{}
	f.door = door{t, f.clients}
	var hosts []string
	for i := range n {
		hosts = append(hosts, prefix+strconv.Itoa(firstHost+i))
	}
	for i := range n {
		own := o
		own.join, own.host = true, hosts[i]
		if o.expect == 0 {
			own.expect = n
		}
		if o.seeds == nil {
			own.seeds = append(append([]string(nil), hosts[:i]...), hosts[i+1:]...)
		}
		if o.wires != nil {
			own.space = o.wires.spaces[i]
		}
		f.brokers = append(f.brokers, newBroker(t, fmt.Sprintf("n%d", i+1), own))
	}
	return f
}

// founders lets the first n brokers form the cluster; the others know the first one, expect nobody and join.
func (f *fleet) founders(n int) {
	for i, b := range f.brokers {
		b.options.expect, b.options.seeds = 0, []string{f.brokers[0].host}
		if i < n {
			b.options.expect, b.options.seeds = n, nil
			for _, other := range f.brokers[:n] {
				if other != b {
					b.options.seeds = append(b.options.seeds, other.host)
				}
			}
		}
	}
}

// startCluster starts n brokers at once and waits until each is ready.
func startCluster(t testing.TB, n int, o options) *fleet {
	t.Helper()
	f := newFleet(t, n, o)
	f.start()
	return f
}

// start starts every broker at once and waits until each is ready.
func (f *fleet) start() {
	f.t.Helper()
	for _, b := range f.brokers {
		b.launch()
	}
	f.await(readyWithin)
}

// await waits for the ready lines of all brokers that were launched.
func (f *fleet) await(d time.Duration) {
	f.t.Helper()
	end := time.Now().Add(d)
	for _, b := range f.brokers {
		if err := b.await(time.Until(end)); err != nil {
			f.t.Fatalf("%v\n%s", err, lastLines(b.log.Name(), 10))
		}
	}
}

// clients are the addresses of all brokers.
func (f *fleet) clients() []string {
	var all []string
	for _, b := range f.brokers {
		all = append(all, b.clients())
	}
	return all
}

// control is one client for all questions of a test.
func (f *fleet) control() *client.Admin {
	f.t.Helper()
	if f.admin == nil {
		f.admin = f.dial()
	}
	return f.admin.Admin()
}

// status is the state of the cluster as a broker that is up sees it.
func (f *fleet) status() *protocol.Status {
	f.t.Helper()
	s, err := f.control().Status(f.t.Context())
	if err != nil {
		f.t.Fatalf("ask for the status: %v", err)
	}
	return s
}

// called finds a broker by its name.
func (f *fleet) called(name string) *broker {
	f.t.Helper()
	for _, b := range f.brokers {
		if b.name == name {
			return b
		}
	}
	f.t.Fatalf("no broker is called %q", name)
	return nil
}

// leader waits until one of the brokers leads.
func (f *fleet) leader() *broker {
	f.t.Helper()
	name := ""
	eventually(f.t, readyWithin, "a leader is known", func() bool {
		name = f.status().Leader
		return name != ""
	})
	return f.called(name)
}

// owner is the broker that serves a partition.
func (f *fleet) owner(topic string, partition int) *broker {
	f.t.Helper()
	return f.called(f.partition(topic, partition).Owner)
}

func (f *fleet) partition(topic string, n int) protocol.PartitionDescription {
	f.t.Helper()
	d, err := f.control().TopicDescribe(f.t.Context(), protocol.TopicArgs{Topic: topic, Partition: n})
	if err != nil {
		f.t.Fatalf("describe %s: %v", topic, err)
	}
	for _, p := range d.Partitions {
		if p.Partition == n {
			return p
		}
	}
	f.t.Fatalf("%s has no partition %d: %+v", topic, n, d.Partitions)
	return protocol.PartitionDescription{}
}

// create makes a topic and waits until all its partitions are served.
func (f *fleet) create(topic string, partitions int) {
	f.t.Helper()
	arg := protocol.TopicCreate{Topic: topic, Config: protocol.TopicConfig{Partitions: partitions}}
	if _, err := f.control().TopicCreate(f.t.Context(), arg); err != nil {
		f.t.Fatalf("make topic %s: %v", topic, err)
	}
}

// move moves partition 0 of a topic to a broker and returns when that one serves.
func (f *fleet) move(topic string, to *broker) {
	f.t.Helper()
	arg := protocol.TopicMove{Topic: topic, To: to.name}
	if _, err := f.control().TopicMove(f.t.Context(), arg); err != nil {
		f.t.Fatalf("move %s to %s: %v", topic, to.name, err)
	}
}

// place moves partition 0 of a topic to a broker unless it is there.
func (f *fleet) place(topic string, at *broker) {
	f.t.Helper()
	if f.owner(topic, 0) != at {
		f.move(topic, at)
	}
}

// others are all brokers but those named.
func (f *fleet) others(but ...*broker) []*broker {
	var all []*broker
next:
	for _, b := range f.brokers {
		for _, no := range but {
			if b == no {
				continue next
			}
		}
		all = append(all, b)
	}
	return all
}

// firstHost is the last part of the first broker's address.
const firstHost = 11

// loopback finds a part 127.A.B. of the loopback network that no other test has, with the default ports of n brokers
// free, and keeps it until the test is over.
func loopback(t testing.TB, n int) string {
	t.Helper()
	for range 200 {
		prefix := "127." + part(t)
		if free(prefix, n) {
			return prefix
		}
	}
	t.Fatal("no free part of the loopback network found")
	return ""
}

// part finds the middle of an address, A.B., that no other test has, and keeps it until the test is over: who listens on
// 127.A.B.1 has it.
func part(t testing.TB) string {
	t.Helper()
	for range 200 {
		middle := fmt.Sprintf("%d.%d.", 1+rand.IntN(250), 1+rand.IntN(250))
		if claim, err := net.Listen("tcp", "127."+middle+"1:7946"); err == nil {
			t.Cleanup(func() { claim.Close() })
			return middle
		}
	}
	t.Fatal("no free part of a network found")
	return ""
}

func free(prefix string, n int) bool {
	for i := range n {
		for _, port := range []string{"6650", "7650", "7946", "8650"} {
			l, err := net.Listen("tcp", prefix+strconv.Itoa(firstHost+i)+":"+port)
			if err != nil {
				return false
			}
			l.Close()
		}
	}
	return true
}
