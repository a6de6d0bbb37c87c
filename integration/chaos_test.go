package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/integration/history"
	"github.com/danubemq/danube/protocol"
)

// chaos is one run: a broker on a disk that loses power, clients that record what they are told, and faults.
type chaos struct {
	t      testing.TB
	seed   uint64
	disk   *lossyDisk
	broker *broker
	run    *history.Run
	topics []chaosTopic

	producing sync.WaitGroup
	consuming sync.WaitGroup
}

type chaosTopic struct {
	name       string
	partitions int
}

// TestChaos runs for CHAOS_MINUTES (a few seconds by default) with CHAOS_SEED, which decides the plan of faults and the
// sizes of messages. scripts/chaos prints the line with the verdict last.
func TestChaos(t *testing.T) {
	minutes, err := strconv.ParseFloat(envOr("CHAOS_MINUTES", "0.2"), 64)
	if err != nil {
		t.Fatal(err)
	}
	seed, err := strconv.ParseUint(envOr("CHAOS_SEED", "7"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	report := runChaos(t, time.Duration(minutes*float64(time.Minute)), seed)
	t.Logf("chaos verdict: %s seed=%d", report.Verdict(), seed)
	if !report.OK() {
		t.Error(report)
	}
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func runChaos(t testing.TB, d time.Duration, seed uint64) history.Report {
	t.Helper()
	c := &chaos{t: t, seed: seed, disk: mountLossyDisk(t), run: history.New(seed),
		topics: []chaosTopic{{"/default/chaos-1", 1}, {"/default/chaos-3", 3}}}
	c.broker = startBroker(t, "n1", options{dir: filepath.Join(c.disk.dir, "data")})
	c.makeTopics()
	producing, stopProducing := context.WithCancel(t.Context())
	consuming, stopConsuming := context.WithCancel(t.Context())
	defer c.producing.Wait()
	defer c.consuming.Wait()
	defer stopProducing()
	defer stopConsuming()
	c.startClients(producing, consuming)
	c.hurt(d)
	stopProducing()
	c.producing.Wait()
	c.drain(30 * time.Second)
	stopConsuming()
	c.consuming.Wait()
	return c.run.Check(c.readBack())
}

// dial connects a client of its own; it lives until the test is over.
func (c *chaos) dial() *client.Client {
	ctx, cancel := context.WithTimeout(context.Background(), readyWithin)
	defer cancel()
	for {
		cl, err := client.Dial(ctx, []string{c.broker.address()}, client.Config{Name: "chaos"})
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

func (c *chaos) makeTopics() {
	c.t.Helper()
	cl := c.dial()
	defer cl.Close()
	for _, topic := range c.topics {
		arg := protocol.TopicCreate{Topic: topic.name, Config: protocol.TopicConfig{Partitions: topic.partitions}}
		if _, err := cl.Admin().TopicCreate(c.t.Context(), arg); err != nil {
			c.t.Fatalf("make topic: %v", err)
		}
	}
}

// hurt breaks something, lets it mend, and goes on until the time is over. The first round has every kind once, so that
// a short run is a whole one.
func (c *chaos) hurt(d time.Duration) {
	rnd := rand.New(rand.NewPCG(c.seed, 1))
	faults := []func(*rand.Rand){c.kill, c.pause, c.fillDisk, c.cutPower, c.failSync}
	end := time.Now().Add(d)
	for i := 0; time.Now().Before(end); i++ {
		between := time.Duration(200+rnd.IntN(800)) * time.Millisecond
		if !rest(c.t.Context(), between) {
			return
		}
		if i%len(faults) == 0 {
			rnd.Shuffle(len(faults), func(a, b int) { faults[a], faults[b] = faults[b], faults[a] })
		}
		faults[i%len(faults)](rnd)
	}
}

// epochs are the epochs of all partitions; nil when the broker does not say.
func (c *chaos) epochs() map[string]uint64 {
	ctx, cancel := context.WithTimeout(c.t.Context(), 10*time.Second)
	defer cancel()
	cl, err := client.Dial(ctx, []string{c.broker.address()}, client.Config{Name: "epochs"})
	if err != nil {
		return nil
	}
	defer cl.Close()
	all := map[string]uint64{}
	for _, topic := range c.topics {
		d, err := cl.Admin().TopicDescribe(ctx, protocol.TopicArgs{Topic: topic.name})
		if err != nil {
			return nil
		}
		for _, p := range d.Partitions {
			all[fmt.Sprintf("%s:%d", topic.name, p.Partition)] = p.Epoch
		}
	}
	return all
}

// fault records a fault around what it does, and whether an epoch changed by it.
func (c *chaos) fault(kind history.Kind, do func()) {
	before := c.epochs()
	f := c.run.Fault(kind, c.broker.name)
	do()
	changed := false
	for p, e := range c.epochs() {
		changed = changed || before != nil && before[p] != e
	}
	f.Healed(changed)
}

func (c *chaos) kill(rnd *rand.Rand) {
	c.fault(history.Kill, func() {
		c.broker.kill()
		rest(c.t.Context(), time.Duration(rnd.IntN(300))*time.Millisecond)
		c.broker.start()
	})
}

func (c *chaos) pause(rnd *rand.Rand) {
	c.fault(history.Pause, func() {
		c.broker.pause()
		rest(c.t.Context(), time.Duration(300+rnd.IntN(1500))*time.Millisecond)
		c.broker.resume()
	})
}

// fillDisk leaves no room for a while. The broker has to live through it (R20).
func (c *chaos) fillDisk(rnd *rand.Rand) {
	c.fault(history.DiskFull, func() {
		c.disk.say("space " + strconv.Itoa(rnd.IntN(1<<20)))
		rest(c.t.Context(), time.Duration(500+rnd.IntN(1000))*time.Millisecond)
		c.disk.say("space -1")
	})
	if c.broker.process.ended() {
		c.t.Errorf("the broker ended on a full disk: %s", c.broker.ending())
		c.broker.start()
	}
}

func (c *chaos) cutPower(rnd *rand.Rand) {
	c.fault(history.PowerLoss, func() {
		c.disk.losePower(c.broker, rnd.Uint64N(4)*rnd.Uint64N(1<<32)) // a quarter of them lose everything unsynced
		c.broker.start()
	})
}

// failSync fails one sync of the log. The broker has to give up and exit (R20), and is started again.
func (c *chaos) failSync(rnd *rand.Rand) {
	c.fault(history.SyncFails, func() {
		c.disk.say("fail sync EIO 1 " + []string{"/wal", "/journal"}[rnd.IntN(2)])
		gone, err := c.broker.process.wait(3 * time.Second)
		c.disk.say("heal")
		switch {
		case err != nil: // nothing was synced there meanwhile
		case gone != 1:
			c.t.Errorf("after a failed sync: %s", c.broker.ending())
			fallthrough
		default:
			c.broker.start()
		}
	})
}
