package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/broker/delivery"
)

// metrics are the broker's own numbers; log and Raft register theirs.
type metrics struct {
	connections  prometheus.Gauge
	publishedN   prometheus.Counter
	publishedB   prometheus.Counter
	deliveredN   prometheus.Counter
	redeliveredN prometheus.Counter
	staleAcks    prometheus.Counter
	liveDropped  prometheus.Counter
	sentBytes    prometheus.Counter
	ackSeconds   prometheus.Histogram

	appended atomic.Int64 // bytes taken from producers of reliable topics

	mu     sync.Mutex // guards the rate of the disk
	at     time.Time
	amount int64
	rate   float64
}

func newMetrics(b *Broker) (*metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "danube", Name: name, Help: help})
	}
	m := &metrics{
		connections:  prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "danube", Name: "connections", Help: "Client connections open now."}),
		publishedN:   counter("published_messages_total", "Messages taken from producers."),
		publishedB:   counter("published_bytes_total", "Bytes of batches taken from producers."),
		deliveredN:   counter("delivered_messages_total", "Messages handed to consumers, redeliveries included."),
		redeliveredN: counter("redelivered_messages_total", "Messages handed to consumers again."),
		staleAcks:    counter("stale_acks_total", "Messages acknowledged by a consumer that no longer held them."),
		liveDropped:  counter("live_dropped_messages_total", "Messages of non-reliable topics that a slow consumer did not get."),
		sentBytes:    counter("sent_bytes_total", "Bytes written to client connections."),
		ackSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: "danube", Name: "ack_seconds", Help: "From the arrival of a produce request to its acknowledgement.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 18),
		}),
	}
	for _, c := range []prometheus.Collector{m.connections, m.publishedN, m.publishedB, m.deliveredN, m.redeliveredN, m.staleAcks, m.liveDropped, m.sentBytes, m.ackSeconds, &topicCollector{b: b}} {
		if err := b.cfg.Metrics.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) published(messages, bytes int) {
	m.publishedN.Add(float64(messages))
	m.publishedB.Add(float64(bytes))
	m.appended.Add(int64(bytes))
}

// deliveries are those that package delivery counts.
func (m *metrics) deliveries() delivery.Metrics {
	return delivery.Metrics{Delivered: m.deliveredN, Redelivered: m.redeliveredN, StaleAcks: m.staleAcks, LiveDropped: m.liveDropped}
}

// diskRate is how many bytes a second were appended of late.
func (m *metrics) diskRate(now time.Time, appended int64) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if since := now.Sub(m.at); since > 5*time.Second {
		if !m.at.IsZero() {
			m.rate = float64(appended-m.amount) / since.Seconds()
		}
		m.at, m.amount = now, appended
	}
	return m.rate
}

// byTopic is the number of topics above which series are summed by namespace.
const byTopic = 1000

// topicCollector makes the series by topic when they are asked for, so that
// idle topics cost nothing between.
type topicCollector struct{ b *Broker }

var (
	descTopics  = prometheus.NewDesc("danube_topics", "Topics of the cluster.", nil, nil)
	descMemory  = prometheus.NewDesc("danube_memory_limit_bytes", "Shares of the memory budget.", []string{"share"}, nil)
	descNext    = prometheus.NewDesc("danube_partition_next_offset", "Offset the next message gets.", []string{"topic", "partition"}, nil)
	descStart   = prometheus.NewDesc("danube_partition_log_start_offset", "First offset kept.", []string{"topic", "partition"}, nil)
	descBytes   = prometheus.NewDesc("danube_partition_log_bytes", "Bytes of the log.", []string{"topic", "partition"}, nil)
	descLag     = prometheus.NewDesc("danube_subscription_lag_messages", "Messages that can be read and are not acknowledged yet.", []string{"topic", "partition", "subscription"}, nil)
	descFlight  = prometheus.NewDesc("danube_subscription_in_flight_messages", "Messages delivered and not acknowledged.", []string{"topic", "partition", "subscription"}, nil)
	descSkipped = prometheus.NewDesc("danube_subscription_skipped_messages", "Messages passed over because they are lost, damaged or trimmed.", []string{"topic", "partition", "subscription"}, nil)
	descSumB    = prometheus.NewDesc("danube_namespace_log_bytes", "Bytes of the logs of a namespace.", []string{"namespace"}, nil)
	descSumLag  = prometheus.NewDesc("danube_namespace_lag_messages", "Messages not acknowledged yet, of all subscriptions in use in a namespace.", []string{"namespace"}, nil)
)

// Describe says nothing: the series come and go with the topics.
func (c *topicCollector) Describe(chan<- *prometheus.Desc) {}
