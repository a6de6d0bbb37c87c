package cluster

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/cluster/plan"
)

// controllerMetrics are the danube_controller_ series.
type controllerMetrics struct {
	leading   prometheus.Gauge
	suspects  prometheus.Gauge
	ownerless prometheus.Gauge
	planTime  prometheus.Histogram
	decisions *prometheus.CounterVec

	registered []prometheus.Collector
	registerer prometheus.Registerer
}

func newControllerMetrics(r prometheus.Registerer) (*controllerMetrics, error) {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "danube_controller_" + name, Help: help})
	}
	m := &controllerMetrics{
		registerer: r,
		leading:    gauge("leading", "1 while this broker leads the cluster."),
		suspects:   gauge("suspected_brokers", "Brokers whose probes by this leader fail."),
		ownerless:  gauge("ownerless_partitions", "Partitions whose owner cannot serve them, as this leader sees it."),
		planTime: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "danube_controller_plan_seconds", Help: "Time to find out what the leader has to do.",
			Buckets: prometheus.ExponentialBuckets(0.00001, 4, 10),
		}),
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "danube_controller_decisions_total", Help: "Decisions of this leader, by kind and outcome.",
		}, []string{"kind", "outcome"}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.leading, m.suspects, m.ownerless, m.planTime, m.decisions} {
		if err := r.Register(c); err != nil {
			m.unregister()
			return nil, err
		}
		m.registered = append(m.registered, c)
	}
	return m, nil
}

func (m *controllerMetrics) unregister() {
	for _, c := range m.registered {
		m.registerer.Unregister(c)
	}
}

func (m *controllerMetrics) decided(a plan.Action, err error) {
	outcome := "done"
	if err != nil {
		outcome = "failed"
	}
	m.decisions.WithLabelValues(string(a.Kind), outcome).Inc()
}
