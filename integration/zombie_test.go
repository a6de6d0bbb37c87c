package integration

import (
	"fmt"
	"testing"
	"time"
)

// pauses of a broker that outlasts its lease by far.
const threeLeases = 9 * time.Second

// sleepOwner pauses the owner for three leases under load, with clients that keep their connections to it, and wakes it:
// what it believed to own is another's. All that was acknowledged is there once.
func sleepOwner(t *testing.T, o options, leads bool) {
	t.Helper()
	f, owner, tr := takeover(t, o, leads, 500)
	before := f.partition("kept", 0).Epoch
	// These know the owner alone: their connection is to the one that sleeps.
	stuck := carryAs(t, owner.door, "kept", who{"stuck", 100, tr.l})
	tr.pulse.pause()
	owner.pause()
	rest(t.Context(), threeLeases)
	t.Logf("longest pause of a producer that knows every broker: %v", tr.pulse.pause())
	owner.resume()
	nothingMissing(t, readyWithin, func() string {
		if after := owner.epochOf("kept"); after <= before {
			return fmt.Sprintf("asleep for %v it knows epoch %d, which was %d", threeLeases, after, before)
		}
		return ""
	})
	f.settled("kept")
	tr.flows(200)
	stuck.flows(200)
	tr.stopSending()
	tr.sending.Wait()
	stuck.proves(f.door)
	tr.proves(f.door)
	if owner.process.ended() {
		t.Errorf("it ended: %s", owner.ending())
	}
}

func TestZombieFollower(t *testing.T) {
	t.Parallel()
	sleepOwner(t, options{}, false)
}

func TestZombieLeader(t *testing.T) {
	t.Parallel()
	sleepOwner(t, options{}, true)
}

// TestZombieLeaderOwnsNothing: only the Raft leader sleeps. The others elect another, and topics that it does not own go
// on meanwhile (L3).
func TestZombieLeaderOwnsNothing(t *testing.T) {
	f, _, tr := takeover(t, options{}, false, 500)
	leader := f.leader()
	epoch := f.partition("kept", 0).Epoch
	tr.pulse.pause()
	leader.pause()
	rest(t.Context(), threeLeases)
	paused := tr.pulse.pause()
	leader.resume()
	if now := f.partition("kept", 0).Epoch; now != epoch {
		t.Errorf("the epoch went from %d to %d although the owner was well", epoch, now)
	}
	tr.flows(200)
	tr.proves(f.door).inTurn(t)
	t.Logf("longest pause of a topic whose owner was well: %v", paused)
	if paused > 2*time.Second {
		t.Errorf("a topic whose owner was well stood still for %v", paused)
	}
}

// TestZombieWithoutLeaseCheck: what must hold without a clock. In mode local the lease bounds only how much is stored
// twice or orphaned; nothing acknowledged is lost and no offset has two values.
func TestZombieWithoutLeaseCheck(t *testing.T) {
	t.Parallel()
	sleepOwner(t, options{build: faulty(), env: []string{"DANUBE_FAULTS=lease off"}}, false)
}
