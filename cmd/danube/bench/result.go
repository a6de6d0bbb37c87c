package bench

import (
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what every run measures. Times are microseconds.
type Result struct {
	Messages int64   `json:"messages"`
	Bytes    int64   `json:"bytes"`
	Seconds  float64 `json:"seconds"`
	Rate     float64 `json:"rate"` // messages a second
	P50      float64 `json:"p50_us"`
	P99      float64 `json:"p99_us"`
	P999     float64 `json:"p999_us"`
	Max      float64 `json:"max_us"`
	Errors   int64   `json:"errors"`
}

// messages is "1 message", "2 messages".
func messages(n int64) string {
	if n == 1 {
		return "1 message"
	}
	return fmt.Sprintf("%d messages", n)
}

// newHistogram holds nanoseconds from a microsecond to two minutes with three digits.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(int64(time.Microsecond), int64(2*time.Minute), 3)
}

// record adds a time; what lies outside is counted at the edge, never dropped.
func record(h *hdrhistogram.Histogram, d time.Duration) {
	v := min(max(int64(d), int64(time.Microsecond)), int64(2*time.Minute))
	// It fails only for values outside.
	_ = h.RecordValue(v)
}

// measured makes the result of a run.
func measured(h *hdrhistogram.Histogram, messages, size int64, took time.Duration) Result {
	us := func(ns int64) float64 { return float64(ns/100) / 10 }
	r := Result{Messages: messages, Bytes: messages * size, Seconds: float64(took.Microseconds()) / 1e6}
	if took > 0 {
		r.Rate = float64(int64(float64(messages)/took.Seconds()*10)) / 10
	}
	if h.TotalCount() > 0 {
		r.P50, r.P99, r.P999 = us(h.ValueAtQuantile(50)), us(h.ValueAtQuantile(99)), us(h.ValueAtQuantile(99.9))
		r.Max = us(h.Max())
	}
	return r
}
