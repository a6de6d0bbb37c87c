package fetch

import (
	"fmt"
	"testing"
)

// BenchmarkRead reads from a store in memory: what is left is the reader's own work,
// above all the CRC of each byte.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{1_000, 16_000, 250_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w := newWorld(b, Config{})
			for i := range 4 {
				w.quick(fmt.Sprint("segment-", i), 16<<20/size, size)
			}
			total := int64(0)
			for _, p := range w.catalog.pieces {
				total += p.Bytes
			}
			w.truth = nil // nobody compares
			b.SetBytes(total)
			b.ReportAllocs()
			for b.Loop() {
				r := w.part.Reader(0)
				for r.Offset() < w.next {
					v, err := r.Next(b.Context(), 1<<20)
					if err != nil {
						b.Fatal(err)
					}
					v.Release()
				}
				r.Close()
			}
		})
	}
}
