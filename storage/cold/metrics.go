package cold

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/storage/meters"
)

// metrics are the danube_cold_ series of a store; none is per topic or key.
type metrics struct {
	seconds   *prometheus.HistogramVec // its count is the number of requests, as package cold makes them
	failures  *prometheus.CounterVec
	http      *prometheus.CounterVec
	bytes     *prometheus.CounterVec
	inFlight  prometheus.Gauge
	exhausted prometheus.Counter
	all       meters.Set
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "danube_cold_request_seconds", Help: "Time of a request to the cold tier, failed ones included, by kind.",
			Buckets: prometheus.ExponentialBuckets(1e-3, 2, 17),
		}, []string{"op"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "danube_cold_request_failures_total", Help: "Requests to the cold tier that failed, by kind and cause; those that were tried again included.",
		}, []string{"op", "cause"}),
		http: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "danube_cold_http_requests_total", Help: "HTTP requests sent to the object store, as its bill counts them.",
		}, []string{"method"}),
		bytes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "danube_cold_bytes_total", Help: "Bytes of objects sent to and received from the cold tier, repetitions included.",
		}, []string{"direction"}),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "danube_cold_requests_in_flight", Help: "Requests to the cold tier that wait for their end.",
		}),
		exhausted: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "danube_cold_retries_refused_total", Help: "Retries not made because too many requests failed of late.",
		}),
	}
	m.all = meters.Set{m.seconds, m.failures, m.http, m.bytes, m.inFlight, m.exhausted}
	if err := m.all.Register(reg); err != nil {
		return nil, err
	}
	return m, nil
}

func (m *metrics) request(method string) { m.http.WithLabelValues(strings.ToLower(method)).Inc() }

func (m *metrics) failed(op string, c Cause) {
	m.failures.WithLabelValues(op, strings.ReplaceAll(c.Error(), " ", "_")).Inc()
}

func (m *metrics) sent(n int64) { m.bytes.WithLabelValues("sent").Add(float64(n)) }

func (m *metrics) received(n int) { m.bytes.WithLabelValues("received").Add(float64(n)) }
