package meta

import (
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the danube_raft_ series that are counted as things happen; what Raft knows itself is read at scrape.
type metrics struct {
	proposals     *prometheus.CounterVec
	proposeTime   prometheus.Histogram
	storeTime     prometheus.Histogram
	storeEntries  prometheus.Counter
	storeBytes    prometheus.Counter
	storeErrors   prometheus.Counter
	applied       prometheus.Counter
	snapshotBytes prometheus.Gauge
	reserve       prometheus.Gauge

	registered []prometheus.Collector
}

func newMetrics() *metrics {
	buckets := prometheus.ExponentialBuckets(0.0001, 2, 16) // 100 µs to 3.3 s
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "danube_raft_" + name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "danube_raft_" + name, Help: help})
	}
	histogram := func(name, help string) prometheus.Histogram {
		return prometheus.NewHistogram(prometheus.HistogramOpts{Name: "danube_raft_" + name, Help: help, Buckets: buckets})
	}
	return &metrics{
		proposals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "danube_raft_proposals_total", Help: "Metadata commands proposed, by outcome.",
		}, []string{"outcome"}),
		proposeTime:   histogram("propose_seconds", "Time from proposing a metadata command to its result."),
		storeTime:     histogram("log_store_seconds", "Time to append a batch of entries to the Raft log and sync it."),
		storeEntries:  counter("log_entries_total", "Entries appended to the Raft log."),
		storeBytes:    counter("log_bytes_total", "Bytes of the entries appended to the Raft log."),
		storeErrors:   counter("log_store_errors_total", "Writes to the Raft database that ended in an error."),
		applied:       counter("applied_commands_total", "Commands applied to the metadata state."),
		snapshotBytes: gauge("snapshot_bytes", "Size of the latest snapshot taken by this process."),
		reserve:       gauge("reserve_bytes", "Disk space held in reserve for the Raft database."),
	}
}

// register registers all series; on an error none stay registered.
func (m *metrics) register(r prometheus.Registerer, n *Node) error {
	if r == nil {
		return nil
	}
	all := []prometheus.Collector{
		m.proposals, m.proposeTime, m.storeTime, m.storeEntries, m.storeBytes, m.storeErrors, m.applied,
		m.snapshotBytes, m.reserve,
	}
	read := func(name, help string, f func(Status) float64) {
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "danube_raft_" + name, Help: help},
			func() float64 { return f(n.Status()) }))
	}
	read("leader", "Whether this broker is the leader: 1 or 0.", func(s Status) float64 {
		if s.IsLeader {
			return 1
		}
		return 0
	})
	read("term", "Current term.", func(s Status) float64 { return float64(s.Term) })
	read("last_index", "Index of the last entry in the log.", func(s Status) float64 { return float64(s.LastIndex) })
	read("commit_index", "Highest index known to be committed.", func(s Status) float64 { return float64(s.CommitIndex) })
	read("applied_index", "Index of the last command applied.", func(s Status) float64 { return float64(s.AppliedIndex) })
	all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "danube_raft_oldest_write_seconds", Help: "Age of the oldest unfinished write of the Raft database.",
	}, func() float64 { return n.store.writes.oldest().Seconds() }))
	for _, c := range all {
		if err := r.Register(c); err != nil {
			m.unregister(r)
			return err
		}
		m.registered = append(m.registered, c)
	}
	return nil
}

func (m *metrics) unregister(r prometheus.Registerer) {
	for _, c := range m.registered {
		r.Unregister(c)
	}
	m.registered = nil
}
