package batch

import (
	"bytes"
	"testing"
)

const benchMessages = 4096

func benchBatch(b *testing.B, key []byte, c Codec) Batch {
	b.Helper()
	var w Builder
	m := Message{Key: key, Payload: bytes.Repeat([]byte("payload."), 16), PublishTime: 1_700_000_000_000}
	for range benchMessages {
		w.Add(&m)
	}
	out, err := w.AppendTo(nil, c, Identity{Producer: 1, Session: 2, Sequence: 3})
	if err != nil {
		b.Fatal(err)
	}
	return out
}

// perMessage reports ns for one message where an iteration is a batch.
func perMessage(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/benchMessages, "ns/msg")
}

func BenchmarkAdd(b *testing.B) {
	keys := map[string][]byte{"plain": nil, "key": []byte("customer-48069")}
	for name, key := range keys {
		b.Run(name, func(b *testing.B) {
			var w Builder
			m := Message{Key: key, Payload: bytes.Repeat([]byte("payload."), 16), PublishTime: 1_700_000_000_000}
			b.ReportAllocs()
			for b.Loop() {
				for range benchMessages {
					w.Add(&m)
				}
				w.Reset()
			}
			perMessage(b)
		})
	}
}

func BenchmarkAddAndAppendTo(b *testing.B) {
	for _, c := range []Codec{None, S2, Zstd} {
		b.Run(c.String(), func(b *testing.B) {
			var w Builder
			var dst []byte
			m := Message{Payload: bytes.Repeat([]byte("payload."), 16), PublishTime: 1_700_000_000_000}
			b.ReportAllocs()
			for b.Loop() {
				for range benchMessages {
					w.Add(&m)
				}
				out, err := w.AppendTo(dst[:0], c, Identity{})
				if err != nil {
					b.Fatal(err)
				}
				dst = out
			}
			perMessage(b)
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, c := range []Codec{None, S2, Zstd} {
		b.Run(c.String(), func(b *testing.B) {
			batch := benchBatch(b, nil, c)
			d := NewDecoder(Limits{})
			var m Message
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Reset(batch); err != nil {
					b.Fatal(err)
				}
				for range benchMessages {
					if ok, err := d.Next(&m); !ok || err != nil {
						b.Fatal(ok, err)
					}
				}
			}
			perMessage(b)
		})
	}
}

func BenchmarkCheckTable(b *testing.B) {
	keys := map[string][]byte{"plain": nil, "key": []byte("customer-48069")}
	for name, key := range keys {
		b.Run(name, func(b *testing.B) {
			batch := benchBatch(b, key, None)
			b.ReportAllocs()
			for b.Loop() {
				if err := batch.CheckTable(Limits{}); err != nil {
					b.Fatal(err)
				}
			}
			perMessage(b)
		})
	}
}

func BenchmarkCheck(b *testing.B) {
	batch := benchBatch(b, nil, None)
	b.SetBytes(int64(len(batch)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Check(batch, Limits{}); err != nil {
			b.Fatal(err)
		}
	}
	perMessage(b)
}

// One message at a time of a whole batch: what a shared subscription with many consumers costs.
func BenchmarkParts(b *testing.B) {
	for _, c := range []Codec{None, S2, Zstd} {
		b.Run(c.String(), func(b *testing.B) {
			batch := benchBatch(b, nil, c)
			var p Parts
			dst := make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				p.Forget()
				for i := range benchMessages {
					if _, err := p.Append(dst, batch, i, 1); err != nil {
						b.Fatal(err)
					}
				}
			}
			perMessage(b)
		})
	}
}
