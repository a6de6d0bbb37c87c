package meta

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/danubemq/danube/meta/state"
)

// benchmarkPropose runs callers that each have one proposal in flight.
func benchmarkPropose(b *testing.B, callers int) {
	cfg := testConfig(b.TempDir())
	cfg.SnapshotThreshold, cfg.TrailingLogs = 0, 0
	n := openNode(b, cfg)
	c := &state.SetNamespace{Name: state.DefaultNamespace}
	stats := n.store.Stats().TxStats
	before := stats.GetWrite()
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := n.Propose(b.Context(), c); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	stats = n.store.Stats().TxStats
	b.ReportMetric(float64(stats.GetWrite()-before)/float64(b.N), "writes/op")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "proposals/s")
}

func BenchmarkProposeAlone(b *testing.B)    { benchmarkPropose(b, 1) }
func BenchmarkProposeThousand(b *testing.B) { benchmarkPropose(b, 1000) }
