package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// refusal starts a broker that has to end by itself, and returns what it said.
func (b *broker) refusal() string {
	b.t.Helper()
	if err := b.tryStart(readyWithin); err == nil {
		b.t.Fatalf("%s started", b.name)
	}
	code, err := b.process.wait(time.Second)
	if err != nil || code <= 0 {
		b.t.Fatalf("%s neither started nor refused: code %d, %v", b.name, code, err)
	}
	return lastLines(b.log.Name(), 3)
}

// TestIdentityTwoClustersNeverMerge: a broker of one cluster that is started with a seed of another stays what it is, and
// neither cluster sees the other's brokers (A57).
func TestIdentityTwoClustersNeverMerge(t *testing.T) {
	t.Parallel()
	x, y := startCluster(t, 3, options{build: &build{}}), startCluster(t, 3, options{build: &build{}})
	x.one("of-x")
	y.one("of-y")
	stray := x.brokers[1]
	stray.kill()
	stray.options.seeds = []string{y.brokers[0].host, y.brokers[1].host}
	stray.launch()
	rest(t.Context(), 5*time.Second)
	for _, f := range []*fleet{x, y} {
		for _, b := range f.others(stray) {
			s := b.askStatus()
			if s == nil || len(s.Brokers) != 3 || s.ClusterID != f.others(stray)[0].askStatus().ClusterID {
				t.Errorf("%s sees %+v", b.host, s)
			}
		}
	}
	if sx, sy := x.brokers[0].askStatus(), y.brokers[0].askStatus(); sx.ClusterID == sy.ClusterID {
		t.Error("both clusters have one id")
	}
	// With a seed of its own beside the wrong one it is back.
	stray.kill()
	stray.options.seeds = append(stray.options.seeds, x.brokers[0].host)
	stray.start()
	x.holds("of-x", 3, 100)
}

// TestIdentityWildcard: an address that nobody can dial is refused with the setting that mends it (A57).
func TestIdentityWildcard(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, options{build: &build{}})
	b := f.brokers[0]
	b.host = "0.0.0.0"
	b.options.args = []string{"--client-port", "0", "--http-port", "0"}
	text := b.refusal()
	if !strings.Contains(text, "advertise") {
		t.Errorf("refused with %q", text)
	}
}

// TestIdentityNewAddress: a broker comes back at another address, under its old name, with its topics (A57); then all
// three at once.
func TestIdentityNewAddress(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{build: &build{}})
	f.one("moved-house")
	elsewhere := loopback(t, 3)
	b := f.owner("moved-house", 0)
	b.kill()
	b.rehouse(elsewhere + "11")
	b.start()
	f.settled("moved-house")
	f.admin = nil
	for _, s := range f.status().Brokers {
		if s.Name == b.name && !strings.HasPrefix(s.Address, elsewhere) {
			t.Errorf("known at %s", s.Address)
		}
	}
	f.holds("moved-house", 3, 100)
	for _, b := range f.brokers {
		b.kill()
	}
	again := loopback(t, 3)
	hosts := []string{again + "11", again + "12", again + "13"}
	for i, b := range f.brokers {
		b.rehouse(hosts[i])
		b.options.seeds = hosts
	}
	f.start()
	f.admin = nil
	f.settled("moved-house")
	f.holds("moved-house", 3, 100)
}

// rehouse gives the broker another address for its next start.
func (b *broker) rehouse(host string) {
	b.host, b.ready = host, nil
}

// TestIdentityStandaloneBecomesFirst: the data directory of a broker that stood alone is the first of a cluster, with its
// topics.
func TestIdentityStandaloneBecomesFirst(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, options{build: &build{}})
	first := f.brokers[0]
	first.options.join = false
	first.start()
	sendEach(t, first.produce("alone"), 0, 50, 100)
	first.stop(readyWithin)
	first.options.join, first.options.expect, first.options.seeds = true, 0, nil
	first.start()
	for _, b := range f.brokers[1:] {
		b.options.expect, b.options.seeds = 0, []string{first.host}
		b.launch()
	}
	f.await(readyWithin)
	f.one("together")
	f.holds("alone", 50, 100)
	f.place("alone", f.brokers[2])
	f.holds("alone", 50, 100)
	if _, err := os.Stat(filepath.Join(first.dir, "cluster")); err != nil {
		t.Error(err)
	}
}

// TestIdentitySecondCopy: a copy of a data directory on another address is refused while the first runs, which is not
// disturbed (R9).
func TestIdentitySecondCopy(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4, options{build: &build{}})
	copied, second := f.brokers[2], f.brokers[3]
	f.founders(3)
	f.brokers = f.brokers[:3]
	f.start()
	f.one("copied")
	copied.kill()
	if out, err := exec.Command("cp", "-a", copied.dir, second.dir).CombinedOutput(); err != nil {
		t.Fatalf("copy: %v %s", err, out)
	}
	copied.start()
	text := second.refusal()
	if !strings.Contains(text, "copy") && !strings.Contains(text, "same") && !strings.Contains(text, "another process") {
		t.Errorf("refused with %q", text)
	}
	if copied.process.ended() {
		t.Errorf("the first one ended: %s", copied.ending())
	}
	f.holds("copied", 3, 100)
}

// storeOf is the identity of a broker's store, as the cluster knows it.
func (f *fleet) storeOf(b *broker) string {
	f.t.Helper()
	for _, s := range f.status().Brokers {
		if s.Name == b.name {
			return s.Store
		}
	}
	f.t.Fatalf("the status says nothing of %s", b.name)
	return ""
}

// TestIdentityEmptiedVoter: a voter whose disk was emptied comes as a new broker, and the old one's vote is nobody's. The
// cluster has a full set of voters again, and what lay only on the old disk is said to be orphaned, not gone (R9).
func TestIdentityEmptiedVoter(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{build: &build{}})
	f.create("emptied", 1)
	victim := f.others(f.leader())[0]
	old := f.storeOf(victim)
	f.place("emptied", f.others(victim)[0])
	sendEach(t, f.produce("emptied"), 0, 100, 100)
	victim.kill()
	if err := os.Rename(victim.dir, victim.dir+".lost"); err != nil {
		t.Fatal(err)
	}
	victim.start()
	nothingMissing(t, readyWithin, func() string {
		s := f.status()
		for _, b := range s.Brokers {
			if b.Store == old && b.Voter {
				return "the emptied store votes"
			}
		}
		voters := 0
		for _, b := range s.Brokers {
			if b.Voter {
				voters++
			}
		}
		if voters != 3 {
			return "not three voters"
		}
		return ""
	})
	f.holds("emptied", 100, 100)
	nothingMissing(t, readyWithin, func() string { // till then both go by one name
		for _, b := range f.status().Brokers {
			if b.Store == old && b.State == "active" {
				return "the emptied store is still taken for one that lives"
			}
		}
		return ""
	})
	f.place("emptied", victim)
	f.holds("emptied", 100, 100)
}
