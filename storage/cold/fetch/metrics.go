package fetch

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/storage/meters"
)

// metrics are the danube_cold_read_ series; none is per topic or key.
type metrics struct {
	requests  prometheus.Counter
	store     prometheus.Counter // bytes
	disk      prometheus.Counter // bytes
	shared    prometheus.Counter
	abandoned prometheus.Counter
	shed      prometheus.Counter
	moved     prometheus.Counter
	doubts    prometheus.Counter
	damages   prometheus.Counter
	footers   prometheus.Counter
	spilled   prometheus.Counter
	all       meters.Set
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "danube_cold_read_" + name, Help: help})
	}
	m := &metrics{
		requests:  counter("requests_total", "Reads of ranges of objects by readers of the cold tier, those of footers and catalog pages included."),
		shared:    counter("shared_blocks_total", "Blocks of 256 KiB that a reader found in memory or on their way."),
		abandoned: counter("abandoned_total", "Reads given up because nobody wanted them any more."),
		shed:      counter("shed_total", "Times that what was read ahead of a reader at rest was given up for others."),
		moved:     counter("moved_total", "Times that an object was gone and its offsets were looked up again."),
		doubts:    counter("doubts_total", "Times that bytes of an object made no sense and were read anew."),
		damages:   counter("damages_total", "Times that bytes of an object made no sense a second time."),
		footers:   counter("bad_footers_total", "Footers of objects that were damaged and done without."),
		spilled:   counter("disk_writes_total", "Blocks written to the disk cache."),
	}
	bytes := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "danube_cold_read_bytes_total", Help: "Bytes of objects that readers of the cold tier got, by where from: store or disk.",
	}, []string{"from"})
	m.store, m.disk = bytes.WithLabelValues("store"), bytes.WithLabelValues("disk")
	m.all = meters.Set{
		m.requests, bytes, m.shared, m.abandoned, m.shed, m.moved, m.doubts, m.damages, m.footers, m.spilled,
	}
	if err := m.all.Register(reg); err != nil {
		return nil, err
	}
	return m, nil
}

// loaded counts a block that became readable.
func (m *metrics) loaded(n int, fromDisk bool) {
	from := m.store
	if fromDisk {
		from = m.disk
	}
	from.Add(float64(n))
}
