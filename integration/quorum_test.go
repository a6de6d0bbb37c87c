package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol"
)

// epochs are the epochs of all partitions of a topic, as text to compare.
func (f *fleet) epochs(topic string) string {
	f.t.Helper()
	d, err := f.control().TopicDescribe(f.t.Context(), protocol.TopicArgs{Topic: topic, Partition: -1})
	if err != nil {
		f.t.Fatalf("describe %s: %v", topic, err)
	}
	var all []string
	for _, p := range d.Partitions {
		all = append(all, fmt.Sprintf("%d: epoch %d at %s", p.Partition, p.Epoch, p.Owner))
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// TestQuorumLostIsRecovered: two of three brokers are gone for good. Nothing can be decided, readiness says so; `cluster
// recover` makes the third the only voter, and what lies on its disk is readable and writable; new brokers join.
func TestQuorumLostIsRecovered(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{build: &build{}})
	f.create("saved", 1)
	survivor := f.brokers[0]
	f.place("saved", survivor)
	sendEach(t, f.produce("saved"), 0, 100, 100)
	for _, b := range f.brokers[1:] {
		b.kill()
	}
	eventually(t, readyWithin, "the survivor says that it is not ready", func() bool {
		code, _ := get(survivor.url() + "/readyz")
		return code == 503
	})
	survivor.kill()
	r := survivor.must(nil, "cluster", "recover", "--data-dir", survivor.dir, "--yes")
	t.Logf("cluster recover said:\n%s%s", r.stdout, r.stderr)
	survivor.start()
	f.brokers = f.brokers[:1]
	f.admin = nil
	f.holds("saved", 100, 100)
	if first := sendEach(t, f.produce("saved"), 100, 10, 100); first < 1<<32 {
		t.Errorf("the new history goes on at offset %d", first)
	}
	if s := f.status(); s.History == 0 {
		t.Errorf("no new history was begun: %+v", s)
	}
}

// TestQuorumAwayWhileRolling: while the owner closes one segment after the other, the other two brokers stand still for two
// seconds, so that nothing can be decided; messages go on without a hand, and none is lost (A51).
func TestQuorumAwayWhileRolling(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{env: []string{"DANUBE_STORAGE_WAL_SEGMENT_AGE=1s"}})
	f.create("rolls", 1)
	owner := f.owner("rolls", 0)
	tr := carry(t, f.door, "rolls", 500)
	tr.flows(500)
	for range max(2, scaled(20)) {
		for _, b := range f.others(owner) {
			b.pause()
		}
		rest(t.Context(), 2*time.Second)
		for _, b := range f.others(owner) {
			b.resume()
		}
		tr.flows(1500)
	}
	t.Logf("longest pause %v", tr.pulse.pause())
	tr.proves(f.door)
}

// TestQuorumRaftDatabaseLost: the metadata of every broker are gone; `cluster rebuild` makes them again from one broker's
// segments, and nothing readable there is lost (R22).
func TestQuorumRaftDatabaseLost(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{build: &build{}})
	f.create("rebuilt", 1)
	b := f.brokers[0]
	f.place("rebuilt", b)
	sendEach(t, f.produce("rebuilt"), 0, 100, 100)
	for _, b := range f.brokers {
		b.kill()
	}
	if err := os.RemoveAll(filepath.Join(b.dir, "meta")); err != nil {
		t.Fatal(err)
	}
	r := b.must(nil, "cluster", "rebuild", "--from", b.dir, "--data-dir", b.dir, "--yes")
	t.Logf("cluster rebuild said:\n%s%s", r.stdout, r.stderr)
	b.start()
	f.brokers, f.admin = f.brokers[:1], nil
	f.holds("rebuilt", 100, 100)
	sendEach(t, f.produce("rebuilt"), 100, 5, 100)
}

// TestQuorumVoterReplaced: a voter that is removed gives its vote to a broker that had none, and disturbs no election when
// it comes back (A54).
func TestQuorumVoterReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4, options{build: &build{}})
	f.founders(3)
	f.start()
	f.one("voted")
	var gone *broker
	for _, s := range f.status().Brokers {
		if b := f.called(s.Name); s.Voter && !s.Leader && b != f.owner("voted", 0) {
			gone = b
		}
	}
	gone.kill()
	f.others(gone)[0].must(nil, "broker", "remove", gone.name, "--yes")
	nothingMissing(t, readyWithin, func() string {
		voters := 0
		for _, s := range f.status().Brokers {
			if s.Voter {
				voters++
			}
		}
		if voters != 3 {
			return fmt.Sprintf("%d voters", voters)
		}
		return ""
	})
	leader := f.leader()
	gone.launch()
	rest(t.Context(), time.Duration(max(scaled(120), 6))*time.Second)
	if now := f.leader(); now != leader {
		t.Errorf("a removed broker that came back moved the leadership from %s to %s", leader.name, now.name)
	}
	if !gone.process.ended() {
		t.Error("the removed broker runs on")
	} else if text := lastLines(gone.log.Name(), 5); !strings.Contains(text, "removed") {
		t.Errorf("it says %q", text)
	}
}

// TestQuorumRestartsAfterCompaction: metadata that were compacted many times come back after a kill of all brokers, and
// reach a broker that joins as a snapshot (A55).
func TestQuorumRestartsAfterCompaction(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 4, options{build: &build{}})
	late := f.brokers[3]
	f.founders(3)
	f.brokers = f.brokers[:3]
	f.start()
	for i := range scaled(400) {
		f.create(fmt.Sprintf("s%d", i), 4)
	}
	sendEach(t, f.produce("s0:0"), 0, 10, 100)
	for range max(scaled(20), 2) {
		for _, b := range f.brokers {
			b.kill()
		}
		f.start()
	}
	late.start()
	f.brokers = append(f.brokers, late)
	for _, b := range f.brokers {
		nothingMissing(t, readyWithin, func() string {
			s := b.askStatus()
			if s == nil || s.Topics != scaled(400) || len(s.Brokers) != 4 {
				return fmt.Sprintf("%s says %+v", b.name, s)
			}
			return ""
		})
	}
	f.settled("s0")
	f.holds("s0:0", 10, 100)
}

// TestQuorumNotReadyWithout: a broker that reaches no majority says that it is not ready, in words, and is ready again by
// itself (A59).
func TestQuorumNotReadyWithout(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{build: &build{}})
	lone := f.brokers[0]
	for _, b := range f.brokers[1:] {
		b.pause()
	}
	text := ""
	eventually(t, readyWithin, "it is not ready without a majority", func() bool {
		code, says := get(lone.url() + "/readyz")
		text = says
		return code == 503
	})
	if !strings.Contains(text, "leader") && !strings.Contains(text, "majority") && !strings.Contains(text, "quorum") {
		t.Errorf("it says %q", text)
	}
	for _, b := range f.brokers[1:] {
		b.resume()
	}
	eventually(t, readyWithin, "it is ready again", func() bool {
		code, _ := get(lone.url() + "/readyz")
		return code == 200
	})
	f.one("again")
}

// TestQuorumDeadCannotVoteAgain: after a recovery a broker of the lost majority that comes back is of an older history:
// it does not vote, and changes nothing.
func TestQuorumDeadCannotVoteAgain(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{build: &build{}})
	f.create("saved", 1)
	survivor, back := f.brokers[0], f.brokers[1:]
	f.place("saved", survivor)
	sendEach(t, f.produce("saved"), 0, 20, 100)
	for _, b := range f.brokers {
		b.kill()
	}
	survivor.must(nil, "cluster", "recover", "--data-dir", survivor.dir, "--yes")
	survivor.start()
	for _, b := range back {
		b.launch() // two of the old three: a majority by what they remember
	}
	rest(t.Context(), 8*time.Second)
	s := survivor.askStatus()
	if s == nil || s.Leader != survivor.name {
		t.Fatalf("the recovered broker says %+v", s)
	}
	for _, b := range s.Brokers {
		if b.Name != survivor.name && b.Voter {
			t.Errorf("%s votes", b.Name)
		}
	}
	survivor.holds("saved", 20, 100)
}
