package integration

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMoveUnderLoad moves one topic round the brokers while it is produced to and consumed: neither client sees an error,
// nothing is lost, doubled or out of order, and in the end the list of ranges is short.
func TestMoveUnderLoad(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{})
	f.create("moved", 1)
	tr := carry(t, f.door, "moved", 1000)
	moves := scaled(1000)
	longest := time.Duration(0)
	began := time.Now()
	tr.pulse.pause()
	for i := range moves {
		f.move("moved", f.others(f.owner("moved", 0))[i%2])
		tr.flows(1)
		longest = max(longest, tr.pulse.pause())
	}
	moved := time.Since(began)
	heard := tr.proves(f.door)
	heard.inTurn(t)
	if len(heard.gaps) > 0 {
		t.Errorf("moves left gaps: %v", heard.gaps)
	}
	read := time.Since(began) - moved
	f.short("moved")
	t.Logf("%d moves in %v, %d messages, longest pause %v; read back in %v, few ranges after %v more", moves, moved, tr.l.count(), longest, read, time.Since(began)-moved-read)
}

// short waits until a topic has fewer than ten ranges, none orphaned.
func (f *fleet) short(topic string) {
	f.t.Helper()
	f.settled(topic)
	nothingMissing(f.t, readyWithin, func() string {
		if ranges := f.partition(topic, 0).Ranges; len(ranges) >= 10 {
			return fmt.Sprintf("%d ranges: %+v", len(ranges), ranges)
		}
		return ""
	})
}

// TestMoveHistoryIsRead: right after a move older offsets are read from the old owner; when the copy is complete the old
// one is released and may die.
func TestMoveHistoryIsRead(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{})
	f.create("old", 1)
	first := f.owner("old", 0)
	sendEach(t, f.produce("old"), 0, 500, 1000)
	second := f.others(first)[0]
	f.move("old", second)
	f.holds("old", 500, 1000)
	nothingMissing(t, readyWithin, func() string {
		for _, r := range f.partition("old", 0).Ranges {
			if slices.Contains(r.Stores, first.name) || !slices.Contains(r.Stores, second.name) {
				return fmt.Sprintf("ranges %+v", f.partition("old", 0).Ranges)
			}
		}
		return ""
	})
	first.kill()
	f.holds("old", 500, 1000)
	first.start()
}

// TestMoveToBusyOrDeadBroker: a move to a broker that is away fails in words, and the topic goes on where it is.
func TestMoveToDeadBroker(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{})
	f.create("stays", 1)
	tr := carry(t, f.door, "stays", 500)
	owner := f.owner("stays", 0)
	dead := f.others(owner)[0]
	dead.kill()
	r := owner.run(nil, "topic", "move", "stays", "--to", dead.name, "--timeout", "40s")
	if r.code == 0 || r.stderr == "" {
		t.Errorf("a move to a dead broker said %q with %d", r.stderr, r.code)
	}
	if now := f.owner("stays", 0); now != owner {
		t.Errorf("owned by %s", now.name)
	}
	dead.start()
	tr.flows(200)
	tr.proves(f.door).inTurn(t)
}

// moveSteps are the steps of a move, as the source names them, each with the side that gets there.
func moveSteps(t testing.TB) map[string]string {
	t.Helper()
	at := regexp.MustCompile(`\.At\("(move\.[a-z-]+)"\)`)
	steps := map[string]string{}
	for file, side := range map[string]string{"moving.go": "source", "receiving.go": "target"} {
		text, err := os.ReadFile("../broker/" + file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range at.FindAllSubmatch(text, -1) {
			steps[string(m[1])] = side
		}
	}
	delete(steps, "move.aborted")  // no move that succeeds gets there
	delete(steps, "move.exported") // without a cold tier nobody does
	if len(steps) < 9 {
		t.Fatalf("the broker names only %v", steps)
	}
	return steps
}

// TestMoveKilledAtEveryStep kills a broker at each step of a move, under load. Whatever dies: nothing is lost, and nothing
// stays half-way (L2).
func TestMoveKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{build: &build{tags: "faults"}})
	f.create("hurt", 1)
	tr := carry(t, f.door, "hurt", 500)
	for step, side := range moveSteps(t) {
		from := f.owner("hurt", 0)
		to := f.others(from)[0]
		victim := to
		if side == "source" {
			victim = from
		}
		victim.tell("kill %s", step)
		other := f.others(victim)[0]
		other.run(nil, "topic", "move", "hurt", "--to", to.name, "--timeout", "10s") // may fail, in words
		if _, err := victim.process.wait(readyWithin); err != nil {
			t.Fatalf("the %s never got to %s: %v", side, step, err)
		}
		victim.start()
		f.settled("hurt")
		tr.flows(100)
	}
	tr.proves(f.door)
}

// TestMoveLeaderDies kills the leader while a move is on: the next leader ends what it began.
func TestMoveLeaderDies(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{build: &build{tags: "faults"}})
	f.create("ended", 1)
	leader := f.leader()
	f.place("ended", f.others(leader)[0])
	tr := carry(t, f.door, "ended", 500)
	from := f.owner("ended", 0)
	to := f.others(leader, from)[0]
	const step = "move.paused"
	from.tell("wait %s", step)
	moving := make(chan result, 1)
	go func() { moving <- to.run(nil, "topic", "move", "ended", "--to", to.name) }() // returns when the move is over or given up
	eventually(t, readyWithin, "the move is on", func() bool { return from.reached(step) > 0 })
	leader.kill()
	from.tell("go %s", step)
	if r := <-moving; r.code != 0 {
		t.Logf("the move said: %s", r.stderr)
	}
	leader.start()
	f.settled("ended")
	tr.flows(200)
	tr.proves(f.door)
	if owner := f.owner("ended", 0); owner != to && owner != from {
		t.Errorf("owned by %s", owner.name)
	}
}

// TestDrain empties a broker of many topics under light load (`broker drain`), then takes it out.
func TestDrain(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{build: &build{}})
	topics := scaled(1000)
	for i := range topics {
		f.create(fmt.Sprintf("d%d", i), 1)
	}
	tr := carry(t, f.door, "d0", 200)
	victim := f.owner("d0", 0)
	for i := range topics {
		f.place(fmt.Sprintf("d%d", i), victim)
	}
	from := time.Now()
	r := f.others(victim)[0].must(nil, "broker", "drain", victim.name)
	took := time.Since(from)
	if !strings.Contains(string(r.stdout), "drained") {
		t.Errorf("said %q", r.stdout)
	}
	for _, b := range f.status().Brokers {
		if b.Name == victim.name && (b.Partitions > 0 || b.OnlyCopies > 0 || b.State != "drained") {
			t.Errorf("drained it is %+v", b)
		}
	}
	f.others(victim)[0].must(nil, "broker", "remove", victim.name, "--yes")
	victim.kill()
	tr.flows(100)
	tr.proves(f.door).inTurn(t)
	t.Logf("%d topics left in %v", topics, took)
}

// TestRollingRestartKeepsVotes: a broker that was stopped in order stays a member with its vote.
func TestRollingRestartKeepsVotes(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{})
	b := f.others(f.leader())[0]
	b.stop(readyWithin)
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	list, err := f.control().BrokerList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list.Brokers {
		if !s.Voter || s.Name == b.name && s.State != "stopped" {
			t.Errorf("after the stop of %s: %+v", b.name, s)
		}
	}
	b.start()
	eventually(t, readyWithin, "it is active again", func() bool {
		for _, s := range f.status().Brokers {
			if s.Name == b.name {
				return s.State == "active" && s.Voter
			}
		}
		return false
	})
}

// TestRollingRestart stops and starts every broker in turn under load: no send fails, nothing is lost or out of order.
func TestRollingRestart(t *testing.T) {
	t.Parallel()
	f := startCluster(t, 3, options{})
	f.create("rolled", 1)
	tr := carry(t, f.door, "rolled", 500)
	for range max(scaled(20), 2) {
		for _, b := range f.brokers {
			b.stop(readyWithin)
			tr.flows(100)
			b.start()
			tr.flows(100)
		}
	}
	f.settled("rolled")
	heard := tr.proves(f.door)
	heard.inTurn(t)
}
