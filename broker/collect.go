package broker

import (
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/danubemq/danube/broker/served"
)

// Collect sends the series of the partitions this broker serves, or their sums
// by namespace when there are many.
func (c *topicCollector) Collect(ch chan<- prometheus.Metric) {
	b := c.b
	if !b.ready.Load() {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descTopics, float64(b.Topics()))
	gauge(descMemory, float64(b.cfg.tailBytes()), "tails")
	gauge(descMemory, float64(b.cfg.frameBytes()), "frames")
	gauge(descMemory, float64(b.cfg.Memory-b.cfg.tailBytes()-b.cfg.frameBytes()), "other")
	parts := b.reliable()
	if len(parts) > byTopic {
		c.sums(parts, gauge)
		return
	}
	for _, p := range parts {
		n := strconv.Itoa(int(p.Key.N))
		gauge(descNext, float64(p.Log.Next()), p.Topic, n)
		gauge(descStart, float64(p.Log.Start()), p.Topic, n)
		_, bytes := p.Log.Bytes()
		gauge(descBytes, float64(bytes), p.Topic, n)
		for _, s := range p.Subscriptions() {
			lag, flight, skipped := s.Numbers()
			gauge(descLag, float64(lag), p.Topic, n, s.Name)
			gauge(descFlight, float64(flight), p.Topic, n, s.Name)
			gauge(descSkipped, float64(skipped), p.Topic, n, s.Name)
		}
	}
}

func (c *topicCollector) sums(parts []*served.Partition, gauge func(*prometheus.Desc, float64, ...string)) {
	bytes, lags := map[string]int64{}, map[string]uint64{}
	for _, p := range parts {
		namespace, _, _ := strings.Cut(strings.TrimPrefix(p.Topic, "/"), "/")
		_, n := p.Log.Bytes()
		bytes[namespace] += n
		for _, s := range p.Subscriptions() {
			lag, _, _ := s.Numbers()
			lags[namespace] += lag
		}
	}
	for n, v := range bytes {
		gauge(descSumB, float64(v), n)
		gauge(descSumLag, float64(lags[n]), n)
	}
}
