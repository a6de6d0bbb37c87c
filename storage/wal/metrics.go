package wal

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/storage/meters"
)

// metrics are the danube_storage_ series of a tier; none is per partition.
type metrics struct {
	append prometheus.Histogram
	sync   prometheus.Histogram
	bytes  prometheus.Counter
	parts  prometheus.Histogram
	full   prometheus.Counter
	files  prometheus.Counter
	all    meters.Set
}

func newMetrics(reg prometheus.Registerer, t *Tier) (*metrics, error) {
	seconds := prometheus.ExponentialBuckets(20e-6, 2, 18)
	m := &metrics{
		append: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "danube_storage_round_seconds", Help: "Time of a commit round, from gathering to durable.", Buckets: seconds,
		}),
		sync: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "danube_storage_sync_seconds", Help: "Time of the sync of a commit round.", Buckets: seconds,
		}),
		parts: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "danube_storage_round_bytes", Help: "Bytes of batches in a commit round.", Buckets: prometheus.ExponentialBuckets(256, 4, 10),
		}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "danube_storage_append_bytes_total", Help: "Bytes of batches made durable.",
		}),
		full: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "danube_storage_full_total", Help: "Writes that found no space on the disk.",
		}),
		files: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "danube_storage_segments_created_total", Help: "Segment files made.",
		}),
	}
	gauge := func(name, help string, get func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, get)
	}
	m.all = meters.Set{
		m.append, m.sync, m.parts, m.bytes, m.full, m.files,
		gauge("danube_storage_memory_bytes", "Memory of tails and read buffers.", func() float64 { return float64(t.memory.Used()) }),
		gauge("danube_storage_pending_bytes", "Bytes on their way to the disk.", func() float64 { return float64(t.pending.Load()) }),
		gauge("danube_storage_open_files", "Segment files open.", func() float64 { return float64(t.cache.Count()) }),
		gauge("danube_storage_journal_bytes", "Size of the journal.", func() float64 { size, _ := t.journalBytes(); return float64(size) }),
		gauge("danube_storage_journal_used_bytes", "Bytes of the journal that cover segment files which are not synced.", func() float64 { _, used := t.journalBytes(); return float64(used) }),
		gauge("danube_storage_disk_full", "1 while no messages are taken for want of space.", func() float64 { return flag(t.space.Full()) }),
		gauge("danube_storage_poisoned", "1 after a sync or write failed.", func() float64 { return flag(t.Err() != nil) }),
	}
	if err := m.all.Register(reg); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *metrics) round(parts, bytes int, took time.Duration) {
	if parts == 0 {
		return
	}
	m.append.Observe(took.Seconds())
	m.parts.Observe(float64(bytes))
	m.bytes.Add(float64(bytes))
}

func flag(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

func (t *Tier) journalBytes() (size, used int64) {
	t.mu.Lock()
	j := t.checkpoint.journal
	t.mu.Unlock()
	if j == nil {
		return 0, 0
	}
	return j.Bytes()
}
