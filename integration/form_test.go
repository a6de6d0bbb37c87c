package integration

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// one fails unless all brokers are of one cluster, know each other, and the cluster works.
func (f *fleet) one(topic string) {
	f.t.Helper()
	ids := map[string]string{}
	for _, b := range f.brokers {
		eventually(f.t, readyWithin, b.name+" knows every broker and a leader", func() bool {
			s := b.askStatus()
			if s == nil || s.Leader == "" || len(s.Brokers) != len(f.brokers) {
				return false
			}
			ids[b.name] = s.ClusterID
			return true
		})
	}
	for name, id := range ids {
		if id != ids["n1"] {
			f.t.Fatalf("%s is of cluster %s, n1 of %s", name, id, ids["n1"])
		}
	}
	sendEach(f.t, f.produce(topic), 0, 3, 100)
	f.holds(topic, 3, 100)
}

// askStatus is the status as this broker sees it, nil when it does not answer.
func (b *broker) askStatus() *protocol.Status {
	ctx, cancel := context.WithTimeout(b.t.Context(), 5*time.Second)
	defer cancel()
	cl, err := client.Dial(ctx, []string{b.clients()}, client.Config{Name: "status"})
	if err != nil {
		return nil
	}
	defer cl.Close()
	s, err := cl.Admin().Status(ctx)
	if err != nil {
		return nil
	}
	return s
}

// TestFormInAnyOrder starts three brokers in any order, within a second of each other: one cluster each time.
func TestFormInAnyOrder(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 3))
	slowest := time.Duration(0)
	for i := range scaled(20) + 2 {
		f := newFleet(t, 3, options{build: &build{}})
		for _, n := range rnd.Perm(3) {
			f.brokers[n].launch()
			rest(t.Context(), time.Duration(rnd.IntN(400))*time.Millisecond)
		}
		last := time.Now()
		f.await(readyWithin)
		slowest = max(slowest, time.Since(last))
		f.one(fmt.Sprintf("formed-%d", i))
		for _, b := range f.brokers {
			b.kill()
		}
	}
	t.Logf("ready at most %v after the last was started", slowest)
}

// TestFormSlowly starts three brokers with half a minute between them (in CI three seconds): nobody is ready before a
// quorum is there, then all are (A57, A59).
func TestFormSlowly(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, options{build: &build{}})
	between := time.Duration(scaled(60)) * time.Second / 2
	for i := range 3 {
		f.brokers[i].launch()
		if i == 2 {
			break
		}
		rest(t.Context(), between)
		for _, b := range f.brokers[:i+1] {
			if _, err := b.process.line("ready ", time.Millisecond); err == nil {
				t.Fatalf("%s is ready with %d of 3 brokers", b.name, i+1)
			}
			if b.process.ended() {
				t.Fatalf("%s gave up waiting: %s", b.name, b.ending())
			}
		}
	}
	f.await(readyWithin)
	f.one("slowly")
}

// TestFormAloneIsNotReady: a broker whose seeds do not answer waits for ever, says for whom, and is not ready (A57, A59).
func TestFormAloneIsNotReady(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, options{build: &build{}})
	b := f.brokers[0]
	b.launch()
	nothingMissing(t, readyWithin, func() string {
		code, text := get("http://" + b.host + ":8650/readyz")
		if code != 503 || !strings.Contains(text, f.brokers[1].host) && !strings.Contains(text, "waiting") {
			return fmt.Sprintf("a broker without its seeds answers %d %q", code, text)
		}
		return ""
	})
	if b.process.ended() {
		t.Fatal(b.ending())
	}
	// The others come: all are ready, without a hand.
	f.brokers[1].launch()
	f.brokers[2].launch()
	f.await(readyWithin)
	if code, text := get(b.url() + "/readyz"); code != 200 {
		t.Errorf("ready says %d %q of a broker in a cluster", code, text)
	}
	f.one("alone")
}

// TestFormNamesComeLate starts three brokers that know each other by names that nobody knows yet: all wait, none is ready,
// and once the names are known the cluster forms by itself (A59).
func TestFormNamesComeLate(t *testing.T) {
	t.Parallel()
	w := newWires(t, 3)
	set := w.names()
	f := newFleet(t, 3, options{build: &build{}, wires: w, seeds: []string{"one.broker.test", "two.broker.test", "three.broker.test"}})
	var table strings.Builder
	for i, b := range f.brokers {
		fmt.Fprintf(&table, "%s %s\n", b.host, b.options.seeds[i])
		b.launch()
	}
	for _, b := range f.brokers {
		eventually(t, readyWithin, b.name+" says which names it does not know", func() bool {
			code, text := get("http://" + b.host + ":8650/readyz")
			return code == 503 && strings.Contains(text, "two.broker.test") && strings.Contains(text, "lookup")
		})
	}
	rest(t.Context(), time.Duration(scaled(60))*time.Second)
	for _, b := range f.brokers {
		if b.process.ended() {
			t.Fatalf("%s gave up waiting: %s", b.name, b.ending())
		}
		if code, text := get("http://" + b.host + ":8650/readyz"); code != 503 {
			t.Fatalf("%s knows nobody and answers %d %q", b.name, code, text)
		}
	}
	set(table.String())
	f.await(readyWithin)
	f.one("named")
}

// get asks a broker over HTTP; code 0 means that it did not answer.
func get(url string) (code int, text string) {
	res, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(body)
}

// TestFormLater lets brokers join a cluster that runs, knowing one seed each; they vote not and serve topics.
func TestFormLater(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 5, options{build: &build{}})
	f.founders(3)
	f.start()
	f.one("later")
	eventually(t, readyWithin, "three of five brokers vote", func() bool {
		voters := 0
		for _, b := range f.status().Brokers {
			if b.Voter {
				voters++
			}
		}
		return voters == 3
	})
	f.place("later", f.brokers[4])
	f.holds("later", 3, 100)
}

// TestFormCrossedSeeds starts six brokers that expect three, with seeds across, and kills brokers at the steps of a
// proposal: whatever happens, one cluster comes of it.
func TestFormCrossedSeeds(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(5, 5))
	steps := []string{"before proposed", "proposed", "before held", "held", "before founded", "founded", "told", "added"}
	hit := map[string]int{}
	rounds := scaled(200)
	if rounds < 200 {
		rounds /= 2 // six brokers that start twice take their time
	}
	for i := range rounds {
		f := newFleet(t, 6, options{build: &build{tags: "faults"}, expect: 3})
		for j, b := range f.brokers {
			b.options.expect = 3
			b.options.seeds = []string{f.brokers[(j+1)%6].host, f.brokers[(j+3)%6].host}
			if rnd.IntN(2) == 0 {
				b.options.env = []string{"DANUBE_FAULTS=kill " + steps[rnd.IntN(len(steps))]}
			}
			b.launch()
			rest(t.Context(), time.Duration(rnd.IntN(60))*time.Millisecond)
		}
		// Those that died come back, without an order to die.
		deadline := time.Now().Add(2 * readyWithin)
		for waiting := f.brokers; len(waiting) > 0; {
			var still []*broker
			for _, b := range waiting {
				if b.process.ended() {
					hit[strings.TrimPrefix(b.options.env[0], "DANUBE_FAULTS=kill ")]++
					b.options.env = nil
					b.launch()
				}
				if _, err := b.process.line("ready ", 10*time.Millisecond); err != nil {
					still = append(still, b)
				}
			}
			if waiting = still; time.Now().After(deadline) {
				t.Fatalf("round %d: %d brokers are not ready:\n%s", i, len(still), lastLines(still[0].log.Name(), 10))
			}
		}
		f.one(fmt.Sprintf("crossed-%d", i))
		for _, b := range f.brokers {
			b.kill()
		}
	}
	t.Logf("killed at %v", hit)
	if len(hit) < 3 {
		t.Errorf("brokers died at %v only: the run proves little", hit)
	}
}
