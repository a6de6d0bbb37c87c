package keeper

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/meters"
)

// metrics are the danube_upkeep_ series; none is per topic or key.
type metrics struct {
	segments prometheus.Counter
	output   prometheus.Counter
	bytes    *prometheus.CounterVec
	folded   prometheus.Counter
	deleted  *prometheus.CounterVec
	failures *prometheus.CounterVec
	waiting  prometheus.Gauge
	all      meters.Set
}

func newMetrics(reg prometheus.Registerer, k *Keeper) (*metrics, error) {
	m := &metrics{
		segments: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "danube_upkeep_merged_segments_total", Help: "Segments of the cold tier whose place merged ones took.",
		}),
		output: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "danube_upkeep_merged_bytes_total", Help: "Bytes of the merged segments that came into a catalog.",
		}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "danube_upkeep_bytes_total", Help: "Bytes that merging has read and written, reading back and merges in vain included.",
		}, []string{"direction"}),
		folded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "danube_upkeep_pages_total", Help: "Pages of catalogs that were made.",
		}),
		deleted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "danube_upkeep_deleted_objects_total", Help: "Objects deleted from the cold tier, by why nobody needed them.",
		}, []string{"reason"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "danube_upkeep_failures_total", Help: "Merges, pages, condemnations and deletions that failed, by cause; they are tried again.",
		}, []string{"what", "cause"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "danube_upkeep_garbage_objects", Help: "Objects that wait for the end of their grace or of an audit, as the collector saw last.",
		}),
	}
	m.all = meters.Set{
		m.segments, m.output, m.bytes, m.folded, m.deleted, m.failures, m.waiting,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "danube_upkeep_damaged_segments", Help: "Segments and pages of the cold tier that were found damaged or missing of late.",
		}, func() float64 { return float64(len(k.Problems())) }),
	}
	if err := m.all.Register(reg); err != nil {
		return nil, err
	}
	return m, nil
}

// moved counts bytes unless moving them failed.
func (m *metrics) moved(err error, direction string, n int64) {
	if err == nil {
		m.bytes.WithLabelValues(direction).Add(float64(n))
	}
}

func (m *metrics) merged(segments int, bytes int64) {
	m.segments.Add(float64(segments))
	m.output.Add(float64(bytes))
}

func (m *metrics) failed(what string, err error) {
	m.failures.WithLabelValues(what, causeOf(err)).Inc()
}

func causeOf(err error) string {
	if e, ok := errors.AsType[*cold.Error](err); ok {
		return strings.ReplaceAll(e.Cause.Error(), " ", "_")
	}
	if _, ok := errors.AsType[*Damage](err); ok {
		return "damaged"
	}
	switch {
	case errors.Is(err, ErrRefused):
		return "refused"
	case errors.Is(err, errUnwanted):
		return "unwanted"
	}
	return "other"
}
