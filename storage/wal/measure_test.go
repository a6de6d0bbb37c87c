package wal

import (
	"fmt"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danubemq/danube/storage/disk"
)

// The benchmarks below are the ways to make a commit round durable that were
// compared before the format was frozen; DESIGN.md has what they gave.

func open(b *testing.B, name string) disk.File {
	b.Helper()
	f, err := disk.OS().Open(name, disk.Create)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := f.Close(); err != nil {
			b.Error(err)
		}
	})
	return f
}

func fill(b *testing.B, f disk.File, size int64) {
	b.Helper()
	zeros := make([]byte, 1<<20)
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros, at); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.Datasync(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkWays writes and syncs rounds of one size into a growing file, and
// into one that was zero-filled and is used again and again.
func BenchmarkWays(b *testing.B) {
	const recycled = 128 << 20
	for _, kib := range []int64{4, 64, 256, 1024} {
		round := make([]byte, kib<<10)
		for _, way := range []string{"growing", "recycled"} {
			b.Run(fmt.Sprintf("%s/%dKiB", way, kib), func(b *testing.B) {
				f := open(b, path.Join(b.TempDir(), "file"))
				if way == "recycled" {
					fill(b, f, recycled)
				}
				var times []time.Duration
				at := int64(0)
				b.SetBytes(int64(len(round)))
				for b.Loop() {
					began := time.Now()
					if way == "recycled" && at+int64(len(round)) > recycled {
						at = 0
					}
					if _, err := f.WriteAt(round, at); err != nil {
						b.Fatal(err)
					}
					if err := f.Datasync(); err != nil {
						b.Fatal(err)
					}
					at += int64(len(round))
					times = append(times, time.Since(began))
				}
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
				b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
			})
		}
	}
}

// BenchmarkManyFiles makes 4 KiB in each of a thousand files durable: one file
// after the other, sixteen at once, and all in one zero-filled file.
func BenchmarkManyFiles(b *testing.B) {
	const files = 1000
	page := make([]byte, 4<<10)
	for _, at := range []int{1, 16} {
		b.Run(fmt.Sprintf("%d-at-once", at), func(b *testing.B) {
			dir := b.TempDir()
			list := make([]disk.File, files)
			for i := range list {
				list[i] = open(b, path.Join(dir, fmt.Sprint(i)))
			}
			end := int64(0)
			for b.Loop() {
				for _, f := range list {
					if _, err := f.WriteAt(page, end); err != nil {
						b.Fatal(err)
					}
				}
				end += int64(len(page))
				var wg sync.WaitGroup
				var next atomic.Int64
				for range at {
					wg.Go(func() {
						for i := next.Add(1) - 1; i < files; i = next.Add(1) - 1 {
							if err := list[i].Datasync(); err != nil {
								b.Error(err)
							}
						}
					})
				}
				wg.Wait()
			}
		})
	}
	b.Run("one-journal", func(b *testing.B) {
		f := open(b, path.Join(b.TempDir(), "journal"))
		fill(b, f, 64<<20)
		bufs := make([][]byte, files)
		for i := range bufs {
			bufs[i] = page
		}
		at := int64(0)
		for b.Loop() {
			if at+files*int64(len(page)) > 64<<20 {
				at = 0
			}
			if err := f.WriteVec(bufs, at); err != nil {
				b.Fatal(err)
			}
			if err := f.Datasync(); err != nil {
				b.Fatal(err)
			}
			at += files * int64(len(page))
		}
	})
}

// BenchmarkSustained is how many bytes a second go through: segments of 64 MiB
// that grow, synced with each MiB or once each; and rounds that go to the
// journal, synced, and to a segment, not synced until it is full.
func BenchmarkSustained(b *testing.B) {
	const segmentBytes = 64 << 20
	for name, test := range map[string]struct {
		round   int
		journal bool
		every   int64 // bytes between two syncs of the segment
	}{
		"segment/sync-each-MiB":   {1 << 20, false, 1 << 20},
		"segment/sync-each-64MiB": {1 << 20, false, segmentBytes},
		"journal+segment/64KiB":   {64 << 10, true, segmentBytes},
		"journal+segment/1024KiB": {1 << 20, true, segmentBytes},
	} {
		b.Run(name, func(b *testing.B) {
			dir := b.TempDir()
			round := make([]byte, test.round)
			journal := open(b, path.Join(dir, "journal"))
			if test.journal {
				fill(b, journal, 128<<20)
			}
			var f disk.File
			at, lap, n := int64(segmentBytes), int64(0), 0
			must := func(_ int, err error) {
				if err != nil {
					b.Fatal(err)
				}
			}
			b.SetBytes(int64(len(round)))
			for b.Loop() {
				if at == segmentBytes {
					f, at, n = open(b, path.Join(dir, fmt.Sprint(n%8))), 0, n+1
					must(0, f.Truncate(0))
				}
				must(f.WriteAt(round, at))
				at += int64(len(round))
				if test.journal {
					must(journal.WriteAt(round, lap))
					must(0, journal.Datasync())
					lap = (lap + int64(len(round))) % (128 << 20)
				}
				if at%test.every == 0 {
					must(0, f.Datasync())
				}
			}
		})
	}
}
