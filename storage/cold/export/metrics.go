package export

import (
	"errors"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/plan"
	"github.com/danubemq/danube/storage/meters"
)

// metrics are the danube_export_ series; none is per topic or key.
type metrics struct {
	segments *prometheus.CounterVec
	bytes    prometheus.Counter
	failures *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	all      meters.Set
}

func newMetrics(reg prometheus.Registerer, e *Exporter) (*metrics, error) {
	gauge := func(name, help string, value func(Stats) float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return value(e.Stats()) })
	}
	m := &metrics{
		segments: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "danube_export_segments_total", Help: "Segments that came into a catalog, by why they were exported.",
		}, []string{"reason"}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "danube_export_bytes_total", Help: "Bytes of the segments that came into a catalog.",
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "danube_export_failures_total", Help: "Attempts to export that failed, by cause; those that are tried again included.",
		}, []string{"cause"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "danube_export_step_seconds", Help: "Time of a put with its repetitions, and of a commit.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 2, 17),
		}, []string{"step"}),
	}
	m.all = meters.Set{
		m.segments, m.bytes, m.failures, m.seconds,
		gauge("danube_export_backlog_bytes", "Bytes that the cold tier does not have yet.", func(s Stats) float64 { return float64(s.Bytes) }),
		gauge("danube_export_oldest_seconds", "Age of the oldest message that the cold tier does not have.", func(s Stats) float64 { return s.Age.Seconds() }),
		gauge("danube_export_running", "Attempts to export that are under way.", func(s Stats) float64 { return float64(s.Running) }),
		gauge("danube_export_failing", "Partitions whose export has failed and not succeeded since.", func(s Stats) float64 { return float64(s.Failing) }),
	}
	if err := m.all.Register(reg); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *metrics) exported(r plan.Reason, bytes int64) {
	m.segments.WithLabelValues(r.String()).Inc()
	m.bytes.Add(float64(bytes))
}

func (m *metrics) step(name string, d time.Duration) {
	m.seconds.WithLabelValues(name).Observe(d.Seconds())
}

// failed counts by the store's cause, or by the step that failed.
func (m *metrics) failed(err error) {
	cause := "catalog"
	if e, ok := errors.AsType[*cold.Error](err); ok {
		cause = strings.ReplaceAll(e.Cause.Error(), " ", "_")
	} else if errors.Is(err, ErrRefused) {
		cause = "refused"
	}
	m.failures.WithLabelValues(cause).Inc()
}
