//go:build figures && linux

package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol"
)

// TestFigureForm: three processes in any order form one cluster within 10 s.
func TestFigureForm(t *testing.T) {
	slowest := time.Duration(0)
	for i := range scaled(20) + 2 {
		f := newFleet(t, 3, options{build: &build{}})
		from := time.Now()
		for _, n := range rand.Perm(3) {
			f.brokers[n].launch()
		}
		f.await(readyWithin)
		f.one(fmt.Sprintf("formed-%d", i))
		slowest = max(slowest, time.Since(from))
		for _, b := range f.brokers {
			b.kill()
		}
	}
	within(t, "from the start of three brokers until a message is stored and read", slowest.Seconds(), 10, "s")
}

// The owner is killed with -9 under 5,000 messages a second and a consumer: writes go on within 5 s.

func TestFigureTakeoverOfTheLeader(t *testing.T) {
	within(t, "no acknowledgement after a kill of owner and leader", killOwner(t, options{build: &build{}}, true, 5000).Seconds(), 5, "s")
}

func TestFigureTakeoverOfAFollower(t *testing.T) {
	within(t, "no acknowledgement after a kill of the owner", killOwner(t, options{build: &build{}}, false, 5000).Seconds(), 5, "s")
}

// TestFigureMove: the pause of a producer over a planned move, at the 99th percentile.
func TestFigureMove(t *testing.T) { moves(t, options{build: &build{}}, 60) }

// moves is a topic that goes from broker to broker under load; bound is that of the pause, in milliseconds.
func moves(t *testing.T, o options, bound float64) {
	t.Helper()
	f := startCluster(t, 3, o)
	f.create("moved", 1)
	tr := carry(t, f.door, "moved", 1000)
	var pauses []time.Duration
	tr.pulse.pause()
	for i := range scaled(1000) {
		f.move("moved", f.others(f.owner("moved", 0))[i%2])
		tr.flows(1)
		pauses = append(pauses, tr.pulse.pause())
	}
	heard := tr.proves(f.door)
	heard.inTurn(t)
	f.short("moved")
	slices.Sort(pauses)
	ms := func(p float64) float64 { return pauses[int(p*float64(len(pauses)-1))].Seconds() * 1000 }
	t.Logf("%d moves: pause %.3g ms at the median, %.3g ms at most, %d ranges", len(pauses), ms(0.5), ms(1), len(f.partition("moved", 0).Ranges))
	within(t, "pause of a producer over a move, 99th percentile", ms(0.99), bound, "ms")
}

// TestFigureDrain: a broker with 1,000 topics under light load is drained within 30 s.
func TestFigureDrain(t *testing.T) {
	f := startCluster(t, 3, options{build: &build{}})
	const topics = 1000
	victim := f.brokers[2]
	f.brokers[0].must(nil, "broker", "drain", f.brokers[0].name)
	f.brokers[0].must(nil, "broker", "drain", f.brokers[1].name) // so that all topics are made on the third
	admin := f.control()
	inParallel(t, topics, func(ctx context.Context, i int) error {
		arg := protocol.TopicCreate{Topic: fmt.Sprintf("/default/d%d", i), Config: protocol.TopicConfig{Partitions: 1}}
		_, err := admin.TopicCreate(ctx, arg)
		return err
	})
	f.brokers[0].must(nil, "broker", "activate", f.brokers[0].name)
	f.brokers[0].must(nil, "broker", "activate", f.brokers[1].name)
	tr := carry(t, f.door, "d0", 100)
	from := time.Now()
	f.brokers[0].must(nil, "broker", "drain", victim.name)
	within(t, "drain of a broker with 1,000 topics", time.Since(from).Seconds(), 30, "s")
	tr.proves(f.door).inTurn(t)
}

// TestFigureProposals: with 10,000 topics an ordinary proposal through three brokers takes 3 ms at the median and 20 ms at
// the 99th percentile, fsync on.
func TestFigureProposals(t *testing.T) {
	f := startCluster(t, 3, options{build: &build{}})
	admin := f.control()
	var making sync.WaitGroup
	const partitions, at = 500, 20
	for i := range at {
		making.Go(func() { // returns when its topics are made
			for j := range partitions {
				arg := protocol.TopicCreate{Topic: fmt.Sprintf("/default/p%d-%d", i, j), Config: protocol.TopicConfig{Partitions: 1}}
				if _, err := admin.TopicCreate(t.Context(), arg); err != nil {
					t.Errorf("make topic: %v", err)
					return
				}
			}
		})
	}
	making.Wait()
	var times []time.Duration
	for i := range 1000 {
		keep := int64(i+1) * 1000
		from := time.Now()
		if err := admin.TopicSet(t.Context(), protocol.TopicSet{Topic: "/default/p0-0", RetentionMS: &keep}); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(from))
	}
	slices.Sort(times)
	within(t, "a change of the metadata with 10,000 topics, median", times[500].Seconds()*1000, 3, "ms")
	within(t, "a change of the metadata with 10,000 topics, 99th percentile", times[990].Seconds()*1000, 20, "ms")
}
