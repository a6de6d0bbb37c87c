package integration

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/danubemq/danube/integration/objects"
	"github.com/danubemq/danube/protocol"
)

// hurried has a broker with the tag faults do the work of its cold tier ten times a second, in small pieces, and keep
// garbage for a second.
const hurried = "DANUBE_FAULTS=cold 100ms 1s"

// tierSteps are the steps of the cold tier's work, as its source names them.
func tierSteps(t testing.TB) []string {
	t.Helper()
	step := regexp.MustCompile(`"((?:export|keeper|depot)\.[a-z-]+)"`)
	steps := map[string]bool{}
	for _, folder := range []string{"../storage/cold/export", "../storage/cold/keeper", "../broker/depot"} {
		files, err := filepath.Glob(folder + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range step.FindAllSubmatch(text, -1) {
				steps[string(m[1])] = true
			}
		}
	}
	if len(steps) < 15 {
		t.Fatalf("the cold tier names only %v", steps)
	}
	return slices.Sorted(maps.Keys(steps))
}

// tenant is the traffic of a broker whose cold tier is hurt: a topic that is kept whole, one whose log's start moves up
// behind its producer, and topics that come and go.
type tenant struct {
	t        testing.TB
	d        door
	kept     *ledger
	passing  *ledger
	trimmed  atomic.Int64 // times that the log's start was moved
	cancel   context.CancelFunc
	sending  []*sync.WaitGroup
	trimming sync.WaitGroup
	gone     int // topics that were made to be deleted
}

// moveIn begins the traffic.
func moveIn(t testing.TB, d door) *tenant {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	x := &tenant{t: t, d: d, kept: newLedger(), passing: newLedger(), cancel: cancel}
	x.sending = append(x.sending, x.kept.pour(ctx, t, d, brook{"kept", "k", 5}), x.passing.pour(ctx, t, d, brook{"passing", "p", 5}))
	x.trimming.Go(func() { x.trim(ctx) }) // returns when ctx ends
	t.Cleanup(x.stop)
	return x
}

func (x *tenant) stop() {
	x.cancel()
	for _, wg := range x.sending {
		wg.Wait()
	}
	x.trimming.Wait()
}

// flows waits until both topics took n more messages.
func (x *tenant) flows(n int) {
	x.t.Helper()
	for what, l := range map[string]*ledger{"kept": x.kept, "passing": x.passing} {
		want := l.count() + n
		eventually(x.t, readyWithin, fmt.Sprintf("%d more messages of %s are acknowledged", n, what), func() bool { return l.count() >= want })
	}
}

// trim gives up all but the newest few hundred messages of the topic that passes, as often as the broker lets it: while
// it is down, and when it dies of it, the next attempt counts.
func (x *tenant) trim(ctx context.Context) {
	admin := x.d.dial().Admin()
	const stay = 300
	for rest(ctx, 150*time.Millisecond) {
		described, err := admin.TopicDescribe(ctx, protocol.TopicArgs{Topic: "passing", Partition: 0})
		if err != nil || len(described.Partitions) == 0 || described.Partitions[0].CommittedEnd <= stay {
			continue
		}
		arg := protocol.Truncate{Topic: "passing", Before: described.Partitions[0].CommittedEnd - stay}
		if _, err := admin.TopicTruncate(ctx, arg); err == nil {
			x.trimmed.Add(1)
		}
	}
}

// born makes a topic with something in it and returns what has it deleted beside: the broker may die of that.
func (x *tenant) born() (bury func() *sync.WaitGroup) {
	x.t.Helper()
	x.gone++
	name := fmt.Sprintf("gone-%d", x.gone)
	sendEach(x.t, x.d.produce(name), 0, 20, 200)
	admin := x.d.dial().Admin()
	return func() *sync.WaitGroup {
		over := &sync.WaitGroup{}
		over.Go(func() { // returns when the topic is deleted: the client goes on over restarts
			ctx, cancel := context.WithTimeout(context.WithoutCancel(x.t.Context()), readyWithin)
			defer cancel()
			if err := admin.TopicDelete(ctx, protocol.TopicArgs{Topic: name, Partition: -1}); err != nil {
				x.t.Errorf("delete %s: %v", name, err)
			}
		})
		return over
	}
}

// proves ends the traffic and wants that nothing of it is lost or doubled, and that in the end the store holds what
// catalogs name, and nothing else.
func (x *tenant) proves() {
	x.t.Helper()
	x.stop()
	got, gaps := x.d.contents("kept")
	x.kept.check(x.t, got, gaps)
	if x.trimmed.Load() == 0 {
		x.t.Error("the log's start was never moved: nothing was garbage")
	}
	start := x.d.describe("passing").Partitions[0].LogStart
	got, gaps = x.d.contents("passing")
	x.passing.mu.Lock()
	maps.DeleteFunc(x.passing.acked, func(o uint64, _ string) bool { return o < start })
	x.passing.mu.Unlock()
	x.passing.check(x.t, got, gaps)
	admin := x.d.dial().Admin()
	for topic := range map[string]bool{"kept": true, "passing": true} {
		v, err := admin.TopicVerify(x.t.Context(), protocol.TopicArgs{Topic: topic, Partition: -1})
		if err != nil || len(v.Partitions) != 1 || len(v.Partitions[0].Findings) > 0 {
			x.t.Errorf("verified %s: %+v, %v", topic, v, err)
		}
	}
}

// tidy waits until the store holds what catalogs name and the cluster's own, and nothing else, and returns how many
// objects that are.
func (d door) tidy() (objects int64) {
	d.t.Helper()
	admin := d.dial().Admin()
	nothingMissing(d.t, readyWithin, func() string {
		a, err := admin.ClusterAudit(d.t.Context())
		if err != nil {
			return err.Error()
		}
		if len(a.Findings) > 0 {
			return fmt.Sprintf("%d findings: %+v", len(a.Findings), a.Findings[0])
		}
		objects = 0
		for _, tally := range a.Tallies {
			objects += tally.Objects
			if tally.Verdict != "catalogued" && tally.Verdict != "metadata" && tally.Objects > 0 {
				return fmt.Sprintf("%d objects are %s", tally.Objects, tally.Verdict)
			}
		}
		return ""
	})
	return objects
}

// filesIn counts the objects of a folder that is a cold tier, as the file system has them.
func filesIn(t testing.TB, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		hidden := err == nil && path != dir && strings.HasPrefix(d.Name(), ".danube-")
		switch {
		case hidden && d.IsDir():
			return filepath.SkipDir
		case err == nil && !hidden && !d.IsDir():
			n++
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestTierStepsKilled kills the process at each named step of export, merges, pages, collection and what is freed on the
// disk, under load, and starts it again: nothing is lost or doubled, and no object is left that no catalog names (A19).
func TestTierStepsKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := tiered("shared_fs", "file://"+dir, hurried)
	o.build = &build{tags: "faults"}
	b := startBroker(t, "n1", o)
	rnd := rand.New(rand.NewPCG(19, 19))
	x := moveIn(t, b.door)
	for _, step := range tierSteps(t) {
		for range scaled(20) {
			x.flows(20)
			bury := x.born()
			b.tell("kill %s %d", step, 1+rnd.IntN(3))
			buried := bury()
			if code, err := b.process.wait(readyWithin); err != nil || code != -1 {
				t.Fatalf("killed at %s it ended with %d, %v\n%s", step, code, err, lastLines(b.log.Name(), 5))
			}
			b.start()
			buried.Wait()
		}
	}
	x.flows(50)
	x.proves()
	if n := b.tidy(); n != filesIn(t, dir) {
		t.Errorf("the audit counts %d objects, the folder holds %d", n, filesIn(t, dir))
	}
	t.Logf("%d messages acknowledged over kills at %v", x.kept.count()+x.passing.count(), tierSteps(t))
}

// TestTierStepsAfterTheAnswer kills the process at the moment in which a real object server has said that it carried out
// a PUT or a DELETE, before the broker hears of it, whatever it was about (A19).
func TestTierStepsAfterTheAnswer(t *testing.T) {
	t.Parallel()
	s := objects.StartS3(t)
	proxy := objects.StartProxy(t, s)
	env := []string{hurried}
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	o := tiered("object_store", s.URL(proxy.Addr), env...)
	o.build = &build{tags: "faults"}
	b := startBroker(t, "n1", o)
	rnd := rand.New(rand.NewPCG(20, 20))
	x := moveIn(t, b.door)
	for i := range scaled(100) {
		x.flows(20)
		method := http.MethodPut
		if i%4 == 3 {
			method = http.MethodDelete
		}
		victim := b.process
		remove := proxy.Add(objects.Fault{
			Match: objects.On(method, "/bucket/"), Skip: rnd.IntN(6), Times: 1,
			Answered: func(*http.Request, int) {
				victim.signal(syscall.SIGKILL)
				<-victim.done
			},
		})
		if code, err := victim.wait(readyWithin); err != nil || code != -1 {
			t.Fatalf("killed after a %s it ended with %d, %v\n%s", method, code, err, lastLines(b.log.Name(), 5))
		}
		remove()
		b.start()
	}
	x.flows(50)
	x.proves()
	b.tidy()
	t.Logf("%d messages acknowledged over %d kills", x.kept.count()+x.passing.count(), scaled(100))
}

// TestTierStepsOfAMove kills the broker that gives a partition away, at each step that the move has because of the cold
// tier and at those of the export, with others ready to go on: nothing is lost or doubled, and the leader has collected
// what the run that died had put and not committed.
func TestTierStepsOfAMove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	o := tiered("shared_fs", "file://"+dir, hurried)
	o.build = &build{tags: "faults"}
	f := startCluster(t, 3, o)
	f.create("hurt", 1)
	tr := carry(t, f.door, "hurt", 500)
	for range scaled(20) {
		for _, step := range []string{"export.cut", "export.stored", "export.committed", "move.exported"} {
			from := f.owner("hurt", 0)
			from.tell("kill %s", step)
			to := f.others(from)[0]
			to.run(nil, "topic", "move", "hurt", "--to", to.name, "--timeout", "10s") // may fail, in words
			if _, err := from.process.wait(readyWithin); err != nil {
				t.Fatalf("the owner never got to %s: %v", step, err)
			}
			from.start()
			f.settled("hurt")
			tr.flows(50)
		}
	}
	tr.proves(f.door)
	if n := f.tidy(); n != filesIn(t, dir) {
		t.Errorf("the audit counts %d objects, the folder holds %d", n, filesIn(t, dir))
	}
}
