package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/spf13/cobra"
)

// bench is `danube bench`.
func (a *app) bench() *cobra.Command {
	cmd := group("bench", "Measure a broker, honestly", a.benchProduce(), a.benchConsume(), a.benchLatency())
	cmd.Long = "Every message carries the number of the run, a sequence and a CRC; everything is read back and checked,\n" +
		"outside the time that is measured. What was wrong is counted in errors, and makes the exit code 1."
	return cmd
}

// benchResult is what every bench prints. Times are microseconds.
type benchResult struct {
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
func measured(h *hdrhistogram.Histogram, messages, size int64, took time.Duration) benchResult {
	us := func(ns int64) float64 { return float64(ns/100) / 10 }
	r := benchResult{Messages: messages, Bytes: messages * size, Seconds: float64(took.Microseconds()) / 1e6}
	if took > 0 {
		r.Rate = float64(int64(float64(messages)/took.Seconds()*10)) / 10
	}
	if h.TotalCount() > 0 {
		r.P50, r.P99, r.P999 = us(h.ValueAtQuantile(50)), us(h.ValueAtQuantile(99)), us(h.ValueAtQuantile(99.9))
		r.Max = us(h.Max())
	}
	return r
}

// printBench prints a result; errors in it make the exit code 1.
func (a *app) printBench(r benchResult, what string, asJSON bool) error {
	var err error
	if asJSON {
		err = printJSON(a.out, r)
	} else {
		err = benchTable(a.out, r, what)
	}
	if err == nil && r.Errors > 0 {
		return fmt.Errorf("bench: %s in what was read back", plural(r.Errors, "error"))
	}
	return err
}

func benchTable(w io.Writer, r benchResult, what string) error {
	us := func(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) + " µs" }
	t := table{header: []string{"messages", "size", "seconds", "messages/s", "p50", "p99", "p99.9", "max", "errors"}}
	t.add(grouped(r.Messages), roughSize(r.Bytes), strconv.FormatFloat(r.Seconds, 'f', 3, 64), grouped(int64(r.Rate)),
		us(r.P50), us(r.P99), us(r.P999), us(r.Max), strconv.FormatInt(r.Errors, 10))
	if err := t.print(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "times are %s\n", what)
	return err
}
