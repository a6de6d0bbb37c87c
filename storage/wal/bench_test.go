package wal

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
)

// diskTier opens a tier with its default sizes over a real directory.
func diskTier(b *testing.B, change func(*Config)) *Tier {
	b.Helper()
	c := Config{FS: disk.OS(), Dir: b.TempDir()}
	if change != nil {
		change(&c)
	}
	t, err := Open(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := t.Close(); err != nil {
			b.Error(err)
		}
	})
	return t
}

func benchLog(b *testing.B, t *Tier, n int) *Log {
	b.Helper()
	l, _ := openLog(b, t, Opening{ID: topic(n), Topic: "/default/bench"})
	if err := l.Begin(1, 0, 1<<60); err != nil {
		b.Fatal(err)
	}
	if _, _, err := l.OpenSession(1, 1, 0); err != nil {
		b.Fatal(err)
	}
	return l
}

// resequence gives a batch the next sequence, as a producer would have.
func resequence(b batch.Batch, seq uint64) {
	for i := range 8 {
		b[48+i] = byte(seq >> (8 * i))
	}
}

// BenchmarkAppend is the durable rate of one partition by the size of a batch of
// 1 KiB messages, with a window of appends in flight.
func BenchmarkAppend(b *testing.B) {
	for _, kib := range []int{1, 16, 64, 256, 1024} {
		b.Run(fmt.Sprintf("%dKiB", kib), func(b *testing.B) {
			t := diskTier(b, nil)
			l := benchLog(b, t, 1)
			s := sender{producer: 1, session: 1}
			x := s.batch(b, kib, 1000)
			window := make([]Pending, max(8, 4096/kib))
			b.SetBytes(int64(len(x)))
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if i >= len(window) {
					if err := window[i%len(window)].Wait(); err != nil {
						b.Fatal(err)
					}
				}
				resequence(x, uint64(i*kib))
				p, err := l.Append(x)
				if err != nil {
					b.Fatal(err)
				}
				window[i%len(window)] = p
				i++
			}
			if err := window[(i-1)%len(window)].Wait(); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// BenchmarkAppendOneInFlight is the latency of a commit: append, wait, again.
func BenchmarkAppendOneInFlight(b *testing.B) {
	l := benchLog(b, diskTier(b, nil), 1)
	s := sender{producer: 1, session: 1}
	x := s.batch(b, 1, 1000)
	b.ReportAllocs()
	i := uint64(0)
	for b.Loop() {
		resequence(x, i)
		p, err := l.Append(x)
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			b.Fatal(err)
		}
		i++
	}
}

// BenchmarkAppendManyPartitions is the durable rate of a thousand partitions at
// once, 64 producers with a window each, in batches of four 1 KiB messages.
func BenchmarkAppendManyPartitions(b *testing.B) {
	const partitions, producers, window = 1000, 64, 64
	t := diskTier(b, nil)
	logs := make([]*Log, partitions)
	for i := range logs {
		logs[i] = benchLog(b, t, i)
	}
	s := sender{producer: 1, session: 1}
	x := s.batch(b, 4, 1000)
	b.SetBytes(int64(len(x)))
	var first Pending
	for _, l := range logs { // makes the files
		var err error
		if first, err = l.Append(x); err != nil {
			b.Fatal(err)
		}
	}
	if err := first.Wait(); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	b.ResetTimer()
	began := time.Now()
	for w := range producers {
		wg.Go(func() {
			own := append(batch.Batch(nil), x...)
			var flight [window]Pending
			next := make([]uint64, partitions)
			for i := 0; i*producers < b.N; i++ {
				if i >= window {
					if err := flight[i%window].Wait(); err != nil {
						b.Error(err)
						return
					}
				}
				n := (w + i*producers) % partitions
				resequence(own, next[n])
				next[n] += 4
				l := logs[n]
				id := uint64(w + 2)
				for j := range 8 {
					own[40+j] = byte(id >> (8 * j))
				}
				if next[n] == 4 {
					if _, _, err := l.OpenSession(id, 1, 0); err != nil {
						b.Error(err)
						return
					}
				}
				p, err := l.Append(own)
				if err != nil {
					b.Error(err)
					return
				}
				flight[i%window] = p
			}
			for _, p := range flight {
				if p.log != nil {
					if err := p.Wait(); err != nil {
						b.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)*float64(len(x))/time.Since(began).Seconds()/1e6, "MB/s-all")
}
