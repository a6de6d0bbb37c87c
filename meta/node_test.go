package meta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/danubemq/danube/meta/state"
)

const testTimeout = 100 * time.Millisecond

func testConfig(dir string) Config {
	return Config{Dir: dir, Store: state.StoreID{1}, ElectionTimeout: testTimeout, SnapshotThreshold: 64, TrailingLogs: 16}
}

// openNode opens a node that closes with the test, and waits until it leads.
func openNode(t testing.TB, cfg Config) *Node {
	t.Helper()
	n, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := n.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if err := n.Barrier(ctx); err != nil {
		t.Fatal(err)
	}
	return n
}

func closeNode(t testing.TB, n *Node) {
	t.Helper()
	if err := n.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

func propose(t testing.TB, n *Node, c state.Command) state.Result {
	t.Helper()
	r, err := n.Propose(t.Context(), c)
	if err != nil {
		t.Fatalf("propose %T: %v", c, err)
	}
	return r
}

func createTopic(i int) *state.CreateTopic {
	return &state.CreateTopic{
		ID: state.TopicID{byte(i), byte(i >> 8), 1}, Name: fmt.Sprintf("/default/t%05d", i),
		Settings: state.TopicSettings{Partitions: 1, Reliable: true, Durability: state.LevelLocal},
	}
}

// eventually polls until ok or half a minute has passed.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("never happened: %s", what)
		}
	}
}

func TestProposerSeesWhatItProposed(t *testing.T) {
	t.Parallel()
	n := openNode(t, testConfig(t.TempDir()))
	before := n.View()
	changed := n.Changed()
	r := propose(t, n, createTopic(1))
	if !r.Created || n.View().Topic("/default/t00001") == nil || n.View().Index() < r.Index {
		t.Fatalf("view at %d does not show %+v", n.View().Index(), r)
	}
	if before.Topic("/default/t00001") != nil {
		t.Fatal("a view changed")
	}
	select {
	case <-changed:
	default:
		t.Fatal("no wake-up")
	}
	if err := n.WaitIndex(t.Context(), r.Index); err != nil {
		t.Fatal(err)
	}
	other := createTopic(1)
	other.Settings.Partitions = 2
	if r, err := n.Propose(t.Context(), other); !errors.Is(err, state.ErrExists) || !errors.Is(r.Err, state.ErrExists) {
		t.Fatalf("refusal came as %v, %v", r.Err, err)
	}
}

func TestWaitIndexWakes(t *testing.T) {
	t.Parallel()
	n := openNode(t, testConfig(t.TempDir()))
	next := n.View().Index() + 1
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := n.WaitIndex(t.Context(), next); err != nil {
			t.Error(err)
		}
	})
	propose(t, n, createTopic(1))
	wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := n.WaitIndex(ctx, 1<<40); !errors.Is(err, context.Canceled) {
		t.Fatalf("wait for ever: %v", err)
	}
}

func TestLoneVoterLeadsSoonAfterEveryStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var sum time.Duration
	const starts = 20
	for i := range starts {
		start := time.Now()
		n := openNode(t, testConfig(dir))
		sum += time.Since(start)
		for j := range i {
			if n.View().Topic(createTopic(j).Name) == nil {
				t.Fatalf("start %d: topic %d is gone", i, j)
			}
		}
		if st := n.Status(); !st.IsLeader || st.Leader != n.cfg.Store.String() || st.Term == 0 || !n.Ready() {
			t.Fatalf("status %+v", st)
		}
		propose(t, n, createTopic(i))
		closeNode(t, n)
	}
	t.Logf("mean of %d starts: %v", starts, sum/starts)
	if sum/starts > time.Second {
		t.Errorf("a start takes %v", sum/starts)
	}
}

func TestRestartAfterLogCompactionFindsEverything(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	n := openNode(t, cfg)
	for i := range 300 {
		propose(t, n, createTopic(i))
		if i%100 == 99 {
			if err := n.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	first, err := n.store.FirstIndex()
	if err != nil || first < 200 {
		t.Fatalf("log begins at %d, was not cut: %v", first, err)
	}
	if n.Status().SnapshotIndex == 0 {
		t.Fatal("no snapshot in the status")
	}
	hash := n.View().Hash()
	closeNode(t, n)
	n = openNode(t, cfg)
	if n.View().Hash() != hash || n.View().TopicCount() != 300 {
		t.Fatalf("%d topics came back", n.View().TopicCount())
	}
	if err := n.Snapshot(t.Context()); err != nil {
		t.Fatalf("snapshot of nothing new: %v", err)
	}
}

func TestSnapshotsWhileApplying(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	n := openNode(t, cfg)
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 50 {
				if _, err := n.Propose(t.Context(), createTopic(w*50+i)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 10 {
		if err := n.Snapshot(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	hash := n.View().Hash()
	closeNode(t, n)
	if n = openNode(t, cfg); n.View().Hash() != hash || n.View().TopicCount() != 400 {
		t.Fatal("another state came back")
	}
}

func TestManyBytesLeadToASnapshot(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.SnapshotThreshold = 1 << 40
	n := openNode(t, cfg)
	n.machine.bytes = snapshotBytes // the machine is idle
	propose(t, n, createTopic(1))
	eventually(t, "a snapshot", func() bool { return n.Status().SnapshotIndex > 0 })
}

// TestStoppedStateMachineIsNotSnapshotted: a snapshot of it would cut off the log that a newer release can read (A55c).
func TestStoppedStateMachineIsNotSnapshotted(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	n := openNode(t, cfg)
	propose(t, n, createTopic(1))
	good := n.View().Hash()
	newer := []byte{2, 1, 0, 0, 0, 0}
	copy(newer[2:], crcOf(newer))
	if _, err := n.propose(t.Context(), newer); !errors.Is(err, state.ErrNewerCommand) {
		t.Fatalf("a command of a newer release: %v", err)
	}
	if !errors.Is(n.Err(), state.ErrNewerCommand) || n.Ready() {
		t.Fatalf("goes on with %v", n.Err())
	}
	if _, err := n.Propose(t.Context(), createTopic(2)); !errors.Is(err, state.ErrNewerCommand) {
		t.Fatalf("the next command: %v", err)
	}
	if err := n.Snapshot(t.Context()); !errors.Is(err, state.ErrNewerCommand) {
		t.Fatalf("a snapshot: %v", err)
	}
	if _, err := n.machine.Snapshot(); !errors.Is(err, state.ErrNewerCommand) {
		t.Fatalf("a snapshot of Raft's own accord: %v", err)
	}
	if err := n.WaitReady(t.Context()); !errors.Is(err, state.ErrNewerCommand) {
		t.Fatalf("wait for ready: %v", err)
	}
	if n.View().Hash() != good {
		t.Fatal("the state changed")
	}
	closeNode(t, n)
	// The next start of this release says so before it touches anything.
	if _, err := Open(t.Context(), cfg); !errors.Is(err, state.ErrNewerCommand) || !strings.Contains(err.Error(), "version 2, this release knows 1") {
		t.Fatalf("restart: %v", err)
	}
}

func TestProposalsEndWhenTheNodeDoes(t *testing.T) {
	t.Parallel()
	n := openNode(t, testConfig(t.TempDir()))
	var wg sync.WaitGroup
	started := make(chan struct{}, 1)
	for w := range 50 {
		wg.Go(func() {
			for i := 0; ; i++ {
				_, err := n.Propose(t.Context(), createTopic(w*1000+i))
				if errors.Is(err, ErrClosed) || errors.Is(err, ErrUnknown) {
					return
				}
				if err != nil {
					t.Errorf("ended with %v", err)
					return
				}
				select {
				case started <- struct{}{}:
				default:
				}
			}
		})
	}
	<-started
	closeNode(t, n)
	wg.Wait()
	if _, err := n.Propose(t.Context(), createTopic(1)); !errors.Is(err, ErrClosed) {
		t.Fatalf("after close: %v", err)
	}
	if err := n.Barrier(t.Context()); !errors.Is(err, ErrClosed) {
		t.Fatalf("barrier after close: %v", err)
	}
	if err := n.WaitIndex(t.Context(), 1<<40); !errors.Is(err, ErrClosed) {
		t.Fatalf("wait after close: %v", err)
	}
	closeNode(t, n)
}

// TestUnansweredProposalIsUnknown: without a majority a proposal stays open until ctx ends, and may still be applied.
func TestUnansweredProposalIsUnknown(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.ElectionTimeout = 500 * time.Millisecond
	n := openNode(t, cfg) // which forwards nothing
	// A second voter that nobody reaches takes the majority away.
	if err := n.raft.AddVoter("nobody", "nowhere", 0, 0).Error(); err != nil {
		t.Log(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := n.Propose(ctx, createTopic(1)); !errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("proposal: %v", err)
	}
	if _, err := n.Propose(ctx, createTopic(1)); errors.Is(err, ErrUnknown) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("proposal under a done context: %v", err)
	}
	eventually(t, "the leader steps down", func() bool { return !n.Status().IsLeader })
	if _, err := n.Propose(t.Context(), createTopic(1)); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("proposal to a follower: %v", err)
	}
}

func TestErrorsSayWhetherSomethingMayBeApplied(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ in, want error }{
		"not the leader":     {raft.ErrNotLeader, ErrNotLeader},
		"leadership moves":   {raft.ErrLeadershipTransferInProgress, ErrNotLeader},
		"queue is full":      {raft.ErrEnqueueTimeout, ErrBusy},
		"leadership lost":    {raft.ErrLeadershipLost, ErrUnknown},
		"shut down":          {raft.ErrRaftShutdown, ErrUnknown},
		"restored meanwhile": {raft.ErrAbortedByRestore, ErrUnknown},
		"disk error":         {errors.New("write raft.db"), ErrUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			if err := translate(c.in); !errors.Is(err, c.want) {
				t.Fatalf("%v", err)
			}
		})
	}
	if translate(nil) != nil {
		t.Fatal("success became an error")
	}
}

func TestLargeBatchesAreProposedInParts(t *testing.T) {
	t.Parallel()
	n := openNode(t, testConfig(t.TempDir()))
	var c state.UpdatePartitions
	for i := range 30_000 {
		c.Entries = append(c.Entries, state.PartitionUpdate{Topic: createTopic(i).ID, Epoch: 1, Ceiling: 2000})
	}
	r := propose(t, n, &c)
	for i := range c.Entries {
		if !errors.Is(r.Entry(i), state.ErrNotFound) {
			t.Fatalf("entry %d: %v", i, r.Entry(i))
		}
	}
}

func TestMetricsFollowTheNode(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	reg := prometheus.NewPedanticRegistry()
	cfg.Registerer = reg
	n := openNode(t, cfg)
	propose(t, n, createTopic(1))
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Fatalf("lint: %v %v", problems, err)
	}
	got := map[string]float64{}
	for _, f := range families {
		m := f.GetMetric()[0]
		got[f.GetName()] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	for _, name := range []string{"leader", "proposals_total", "applied_commands_total", "propose_seconds"} {
		if got["danube_raft_"+name] != 1 {
			t.Errorf("danube_raft_%s is %v", name, got["danube_raft_"+name])
		}
	}
	for _, name := range []string{"term", "last_index", "commit_index", "applied_index", "log_store_seconds", "log_entries_total", "log_bytes_total", "reserve_bytes"} {
		if got["danube_raft_"+name] < 1 {
			t.Errorf("danube_raft_%s is %v", name, got["danube_raft_"+name])
		}
	}
	closeNode(t, n)
	if got, err := reg.Gather(); err != nil || len(got) > 0 {
		t.Fatalf("%d series stay after close: %v", len(got), err)
	}
}

func TestRaftLogsAtDebug(t *testing.T) {
	t.Parallel()
	var b syncBuffer
	cfg := testConfig(t.TempDir())
	cfg.Logger = slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug}))
	n := openNode(t, cfg)
	closeNode(t, n)
	for line := range strings.Lines(b.String()) {
		if !strings.Contains(line, "level=DEBUG") || !strings.Contains(line, "raft_level=") {
			t.Fatalf("logged %s", line)
		}
	}
	if !strings.Contains(b.String(), "entering leader state") {
		t.Fatal("raft's output is missing")
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestSecondProcessIsRefused(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	openNode(t, cfg)
	if _, err := Open(t.Context(), cfg); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), filepath.Join("raft", "raft.db")) {
		t.Fatalf("opened twice: %v", err)
	}
}

func TestConfigWithoutDirectoryOrStoreIsRefused(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]Config{
		"no directory": {Store: state.StoreID{1}},
		"no store":     {Dir: t.TempDir()},
	} {
		t.Run(name, func(t *testing.T) {
			if n, err := Open(t.Context(), cfg); err == nil {
				n.Close()
				t.Fatal("opened")
			}
		})
	}
}

// TestConcurrentProposalsShareSyncs: a thousand at once take far fewer writes of the log than there are commands.
func TestConcurrentProposalsShareSyncs(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t.TempDir())
	cfg.Registerer = prometheus.NewPedanticRegistry()
	n := openNode(t, cfg)
	before := storeCalls(t, cfg.Registerer)
	const callers = 1000
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			<-start
			if _, err := n.Propose(t.Context(), createTopic(i)); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	calls := storeCalls(t, cfg.Registerer) - before
	t.Logf("%d proposals took %d writes of the log", callers, calls)
	if calls > callers/4 {
		t.Errorf("%d proposals took %d writes of the log", callers, calls)
	}
}

// storeCalls returns how often the log was written and synced.
func storeCalls(t *testing.T, r prometheus.Registerer) uint64 {
	t.Helper()
	families, err := r.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "danube_raft_log_store_seconds" {
			return f.GetMetric()[0].GetHistogram().GetSampleCount()
		}
	}
	t.Fatal("no danube_raft_log_store_seconds")
	return 0
}
