package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/integration/history"
	"github.com/danubemq/danube/protocol"
)

// chaos is one run: brokers on disks that lose power, clients that record what they are told, and faults.
type chaos struct {
	t       testing.TB
	seed    uint64
	brokers []*patientOfChaos
	fleet   *fleet // the same brokers; nil when there is one
	wires   *wires // what they talk over; nil when there is one
	share   *share // their cold tier; nil: there is none
	run     *history.Run
	topics  []chaosTopic

	producing sync.WaitGroup
	consuming sync.WaitGroup
}

// patientOfChaos is a broker with its disk.
type patientOfChaos struct {
	*broker
	disk *lossyDisk
}

type chaosTopic struct {
	name       string
	partitions int
	level      history.Level
}

// TestChaos runs for CHAOS_MINUTES (a few seconds by default) with CHAOS_SEED, which decides the plan of faults and the
// sizes of messages, on CHAOS_BROKERS: one broker, then three, then three with a cold tier (3+cold) unless it says
// otherwise. scripts/chaos prints the line with the verdict last.
func TestChaos(t *testing.T) {
	minutes, err := strconv.ParseFloat(envOr("CHAOS_MINUTES", "0.2"), 64)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(envOr("CHAOS_SEED", "7"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for word := range strings.FieldsSeq(envOr("CHAOS_BROKERS", "1 3 3+cold")) {
		number, cold := strings.CutSuffix(word, "+cold")
		brokers, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(word, func(t *testing.T) {
			report := runChaos(t, brokers, cold, time.Duration(minutes*float64(time.Minute)), seed)
			if !report.OK() {
				t.Error(report)
			}
			verdict := report.Verdict()
			if t.Failed() && report.OK() {
				verdict = "FAILED: see above; " + verdict
			}
			t.Logf("chaos verdict: %s brokers=%s seed=%d", verdict, word, seed)
		})
	}
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func runChaos(t testing.TB, brokers int, cold bool, d time.Duration, seed uint64) history.Report {
	t.Helper()
	c := &chaos{t: t, seed: seed, run: history.New(seed)}
	c.topics = []chaosTopic{{"/default/chaos-1", 1, history.Local}, {"/default/chaos-3", 3, history.Local}}
	if cold {
		c.share = newShare(t)
	}
	if brokers == 1 && !cold {
		disk := mountLossyDisk(t)
		c.brokers = []*patientOfChaos{{startBroker(t, "n1", options{dir: filepath.Join(disk.dir, "data")}), disk}}
	} else {
		c.startCluster(brokers)
	}
	c.makeTopics()
	producing, stopProducing := context.WithCancel(t.Context())
	consuming, stopConsuming := context.WithCancel(t.Context())
	defer c.producing.Wait()
	defer c.consuming.Wait()
	defer stopProducing()
	defer stopConsuming()
	c.startClients(producing, consuming)
	began := time.Now()
	c.hurt(d)
	t.Logf("hurt for %v", time.Since(began))
	c.healed()
	stopProducing()
	c.producing.Wait()
	c.drain(30 * time.Second)
	stopConsuming()
	c.consuming.Wait()
	t.Logf("all is consumed after %v", time.Since(began))
	final := c.readBack()
	c.soundTiers()
	t.Logf("and read back after %v", time.Since(began))
	return c.run.Check(final)
}

// dial connects a client of its own; it lives until the test is over.
func (c *chaos) dial() *client.Client {
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	for {
		cl, err := client.Dial(ctx, c.addresses(), client.Config{Name: "chaos"})
		if err == nil {
			return cl
		}
		if !rest(ctx, 50*time.Millisecond) {
			c.t.Errorf("dial: %v", err)
			return nil
		}
	}
}

// rest waits and says whether the context still lives.
func rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// addresses are where clients come in.
func (c *chaos) addresses() []string {
	var all []string
	for _, b := range c.brokers {
		all = append(all, b.clients())
	}
	return all
}

func (c *chaos) makeTopics() {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	for _, topic := range c.topics {
		arg := protocol.TopicCreate{Topic: topic.name, Config: protocol.TopicConfig{Partitions: topic.partitions, Durability: string(topic.level)}}
		if _, err := cl.Admin().TopicCreate(c.t.Context(), arg); err != nil {
			c.t.Fatalf("make topic: %v", err)
		}
	}
}

// hurt breaks something, lets it mend, and goes on until the time is over. The first round has every kind once, what the
// cold tier adds before all else, so that a short run says something of it.
func (c *chaos) hurt(d time.Duration) {
	rnd := rand.New(rand.NewPCG(c.seed, 1))
	faults := []func(*rand.Rand, *patientOfChaos){c.kill, c.pause, c.fillDisk, c.cutPower, c.failSync}
	if c.fleet != nil {
		faults = append(faults, c.isolate, c.cutOneWay, c.move, c.stop, c.killForLong)
	}
	swap := func(a, b int) { faults[a], faults[b] = faults[b], faults[a] }
	rnd.Shuffle(len(faults), swap)
	if c.share != nil {
		faults = append([]func(*rand.Rand, *patientOfChaos){c.loseStore, c.loseDisk}, faults...)
	}
	end := time.Now().Add(d)
	for i := 0; time.Now().Before(end); i++ {
		between := time.Duration(200+rnd.IntN(800)) * time.Millisecond
		if !rest(c.t.Context(), between) {
			return
		}
		if i > 0 && i%len(faults) == 0 {
			rnd.Shuffle(len(faults), swap)
		}
		faults[i%len(faults)](rnd, c.victim(rnd))
	}
}

// victim is a broker that owns a partition, if there is one: what befalls another shows little.
func (c *chaos) victim(rnd *rand.Rand) *patientOfChaos {
	order := rnd.Perm(len(c.brokers))
	owners := map[string]bool{}
	for _, p := range c.partitions() {
		owners[p.Owner] = true
	}
	for _, i := range order {
		if owners[c.brokers[i].name] {
			return c.brokers[i]
		}
	}
	return c.brokers[order[0]]
}

// epochs are the epochs of all partitions; nil when the broker does not say.
func (c *chaos) epochs() map[string]uint64 {
	all := map[string]uint64{}
	for name, p := range c.partitions() {
		all[name] = p.Epoch
	}
	return all
}

// partitions describes all partitions; nil when no broker does.
func (c *chaos) partitions() map[string]protocol.PartitionDescription {
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	cl, err := client.Dial(ctx, c.addresses(), client.Config{Name: "epochs"})
	if err != nil {
		return nil
	}
	defer cl.Close()
	all := map[string]protocol.PartitionDescription{}
	for _, topic := range c.topics {
		d, err := cl.Admin().TopicDescribe(ctx, protocol.TopicArgs{Topic: topic.name, Partition: -1})
		if err != nil {
			return nil
		}
		for _, p := range d.Partitions {
			all[fmt.Sprintf("%s:%d", topic.name, p.Partition)] = p
		}
	}
	return all
}

// fault records a fault around what it does, and whether an epoch changed by it.
func (c *chaos) fault(kind history.Kind, b *patientOfChaos, do func()) {
	before := c.epochs()
	f := c.run.Fault(kind, b.name)
	if kind != history.StoreAway { // which is everybody's
		c.spare(f, b.name)
	}
	do()
	changed := false
	for p, e := range c.epochs() {
		changed = changed || len(before) > 0 && before[p] != e
	}
	f.Healed(changed)
}

func (c *chaos) kill(rnd *rand.Rand, b *patientOfChaos) {
	c.fault(history.Kill, b, func() {
		b.kill()
		rest(c.t.Context(), time.Duration(rnd.IntN(300))*time.Millisecond)
		b.start()
	})
}

func (c *chaos) pause(rnd *rand.Rand, b *patientOfChaos) {
	c.fault(history.Pause, b, func() {
		b.pause()
		rest(c.t.Context(), time.Duration(300+rnd.IntN(1500))*time.Millisecond)
		b.resume()
	})
}

// fillDisk leaves no room for a while. The broker has to live through it (R20).
func (c *chaos) fillDisk(rnd *rand.Rand, b *patientOfChaos) {
	c.fault(history.DiskFull, b, func() {
		b.disk.say("space " + strconv.Itoa(rnd.IntN(1<<18)))
		rest(c.t.Context(), time.Duration(500+rnd.IntN(1000))*time.Millisecond)
		b.disk.say("space -1")
	})
	if b.process.ended() {
		c.t.Errorf("the broker ended on a full disk: %s", b.ending())
		b.start()
	}
}

func (c *chaos) cutPower(rnd *rand.Rand, b *patientOfChaos) {
	c.fault(history.PowerLoss, b, func() {
		b.disk.losePower(b.broker, rnd.Uint64N(4)*rnd.Uint64N(1<<32)) // a quarter of them lose everything unsynced
		b.start()
	})
}

// failSync fails one sync of the log. The broker has to give up and exit (R20), and is started again.
func (c *chaos) failSync(rnd *rand.Rand, b *patientOfChaos) {
	c.fault(history.SyncFails, b, func() {
		b.disk.say("fail sync EIO 1 " + []string{"/wal", "/journal"}[rnd.IntN(2)])
		gone, err := b.process.wait(3 * time.Second)
		if b.disk.say("heal") == "left=1" {
			return // nothing was synced there meanwhile
		}
		if err != nil { // it failed at the last moment: the broker is about to exit
			gone, err = b.process.wait(readyWithin)
		}
		if err != nil || gone != 1 {
			c.t.Errorf("after a failed sync: %v: %s", err, b.ending())
		}
		b.start()
	})
}
