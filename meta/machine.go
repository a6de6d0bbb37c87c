package meta

import (
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/danubemq/danube/meta/state"
)

// machine is the state machine as Raft sees it: a thin shell around state.State. Raft calls it from one goroutine at a
// time, so the state needs no lock; views are published for everybody else.
type machine struct {
	state   *state.State
	bytes   int // of commands since the last snapshot
	metrics *metrics
	large   chan<- struct{} // room for one: the log has grown by snapshotBytes
	after   func()          // called when a batch was applied; nil if nobody wants to know

	view   atomic.Pointer[state.View]
	failed atomic.Pointer[error] // why nothing more is applied
	busy   atomic.Int64          // Unix nanoseconds since when a batch is being applied; zero if none is

	mu   sync.Mutex
	wake chan struct{} // closed at the next publication; nil if nobody waits
}

func newMachine(m *metrics, large chan<- struct{}) *machine {
	f := &machine{state: state.New(), metrics: m, large: large}
	f.publish()
	return f
}

// publish shows the state as it is now to readers, and wakes those who wait.
func (f *machine) publish() {
	f.view.Store(f.state.Freeze())
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wake != nil {
		close(f.wake)
		f.wake = nil
	}
}

// changed returns a channel that is closed at the next publication.
func (f *machine) changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.wake == nil {
		f.wake = make(chan struct{})
	}
	return f.wake
}

// applying returns how long the present batch has been worked on, zero if there is none.
func (f *machine) applying() time.Duration {
	if began := f.busy.Load(); began != 0 {
		return time.Since(time.Unix(0, began))
	}
	return 0
}

func (f *machine) err() error {
	if p := f.failed.Load(); p != nil {
		return *p
	}
	return nil
}

// fail remembers the first error that ends applying.
func (f *machine) fail(err error) { f.failed.CompareAndSwap(nil, &err) }

// Apply implements raft.FSM.
func (f *machine) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. The view is published before Raft answers the proposals, so a proposer finds
// in it what it proposed.
func (f *machine) ApplyBatch(logs []*raft.Log) []any {
	f.busy.Store(time.Now().UnixNano())
	defer f.busy.Store(0)
	results := make([]any, len(logs))
	applied := 0
	for i, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		results[i] = f.state.ApplyBytes(l.Index, l.Data)
		f.bytes += len(l.Data)
		applied++
	}
	if err := f.state.Stopped(); err != nil {
		f.fail(err)
	}
	if applied > 0 {
		f.publish()
		f.metrics.applied.Add(float64(applied))
	}
	if f.after != nil {
		f.after()
	}
	if f.bytes >= snapshotBytes {
		f.bytes = 0
		select {
		case f.large <- struct{}{}:
		default:
		}
	}
	return results
}

// Snapshot implements raft.FSM. A state machine that has stopped must not be snapshotted: the log behind the snapshot
// would be cut off, and with it what a newer release could still read.
func (f *machine) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	f.bytes = 0
	return &snapshot{f.view.Load(), f.metrics}, nil
}

// Restore implements raft.FSM. After one failure it fails for good, or Raft would go on to an older snapshot whose log
// is gone.
func (f *machine) Restore(r io.ReadCloser) error {
	if err := f.err(); err != nil {
		return err
	}
	s, err := state.Restore(r)
	if err != nil {
		f.fail(err)
		return err
	}
	f.state, f.bytes = s, 0
	f.publish()
	return nil
}

type snapshot struct {
	view    *state.View
	metrics *metrics
}

// Persist implements raft.FSMSnapshot; it runs beside Apply.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	n, err := s.view.WriteTo(sink)
	if err != nil {
		// The sink's own error adds nothing: what could not be written is what Raft reports.
		_ = sink.Cancel()
		return err
	}
	s.metrics.snapshotBytes.Set(float64(n))
	return sink.Close()
}

// Release implements raft.FSMSnapshot.
func (s *snapshot) Release() {}
