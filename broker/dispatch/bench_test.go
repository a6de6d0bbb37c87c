package dispatch

import "testing"

// bench is a subscription with one consumer and room for everything.
func bench(b *testing.B, cfg Config) *Subscription {
	b.Helper()
	s, err := New(cfg, Cursor{})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.Join(Consumer{ID: 1, Name: "c"}, 0); err != nil {
		b.Fatal(err)
	}
	return s
}

// pump delivers count messages to consumer 1 in one batch.
func pump(b *testing.B, s *Subscription, count uint32, ds []Delivery) []Delivery {
	if err := s.Grant(1, count); err != nil {
		b.Fatal(err)
	}
	st := s.Next(0)
	ds = s.Offer(st, Batch{Base: st.From, Count: count}, 0, ds[:0])
	if len(ds) != 1 || ds[0].End-ds[0].Start != uint64(count) {
		b.Fatalf("%+v gives %+v", st, ds)
	}
	return ds
}

func rate(b *testing.B, messages uint64) {
	b.ReportMetric(float64(messages)/b.Elapsed().Seconds(), "msgs/s")
}

// BenchmarkStreamCoalesced is the usual road: batches of 100, receipts and
// acks come back as ranges, a delta every few thousand messages.
func BenchmarkStreamCoalesced(b *testing.B) {
	b.ReportAllocs()
	s := bench(b, Config{})
	var ds []Delivery
	var d Delta
	rs := make([]Range, 1)
	var n uint64
	for b.Loop() {
		ds = pump(b, s, 100, ds)
		rs[0] = ds[0].Range
		a := Settle{Consumer: 1, Ranges: rs}
		if _, err := s.Received(a, int64(n)*1000); err != nil {
			b.Fatal(err)
		}
		if r, err := s.Ack(a); err != nil || r.Done != 100 {
			b.Fatal(r, err)
		}
		if n += 100; n%5000 == 0 && s.TakeDelta(&d, 0) {
			s.DeltaCommitted()
		}
	}
	rate(b, n)
}

// BenchmarkStreamSingle acknowledges each message by a call of its own.
func BenchmarkStreamSingle(b *testing.B) {
	b.ReportAllocs()
	s := bench(b, Config{})
	var ds []Delivery
	rs := make([]Range, 1)
	var n uint64
	for b.Loop() {
		ds = pump(b, s, 100, ds)
		for off := ds[0].Start; off < ds[0].End; off++ {
			rs[0] = Range{off, off + 1}
			if r, err := s.Ack(Settle{Consumer: 1, Ranges: rs}); err != nil || r.Done != 1 {
				b.Fatal(r, err)
			}
		}
		n += 100
	}
	rate(b, n)
}

// benchmarkAcks acknowledges 200,000 delivered messages one by one in the
// order that place gives, again and again; an op is one message.
func benchmarkAcks(b *testing.B, place func(i uint64) uint64) {
	b.ReportAllocs()
	const width = 200_000
	s := bench(b, Config{MaxUnacked: width, RangeLimit: width})
	var ds []Delivery
	rs := make([]Range, 1)
	var n uint64
	for b.Loop() {
		if n%width == 0 {
			ds = pump(b, s, width, ds)
		}
		off := ds[0].Start + place(n%width)
		rs[0] = Range{off, off + 1}
		if r, err := s.Ack(Settle{Consumer: 1, Ranges: rs}); err != nil || r.Done != 1 {
			b.Fatal(r, err)
		}
		n++
	}
	rate(b, n)
}

// BenchmarkAckScattered takes the odd places first and then the even ones:
// 100,000 ranges stand at the height of it.
func BenchmarkAckScattered(b *testing.B) {
	benchmarkAcks(b, func(i uint64) uint64 {
		if i < 100_000 {
			return 2*i + 1
		}
		return 2 * (i - 100_000)
	})
}

// BenchmarkAckShuffled jumps about; 7919 shares no factor with 200,000.
func BenchmarkAckShuffled(b *testing.B) {
	benchmarkAcks(b, func(i uint64) uint64 { return (i*7919 + 3) % 200_000 })
}

// BenchmarkDeltaScattered takes and commits a delta over 100,000 ranges of
// which a hundred are new.
func BenchmarkDeltaScattered(b *testing.B) {
	b.ReportAllocs()
	const width = 400_000
	s := bench(b, Config{MaxUnacked: width, RangeLimit: width})
	ds := pump(b, s, width, nil)
	rs := make([]Range, 1)
	for off := ds[0].Start + 1; off < 200_000; off += 2 {
		rs[0] = Range{off, off + 1}
		if _, err := s.Ack(Settle{Consumer: 1, Ranges: rs}); err != nil {
			b.Fatal(err)
		}
	}
	var d Delta
	if !s.TakeDelta(&d, 0) || len(d.Acked) != 100_000 {
		b.Fatal(len(d.Acked))
	}
	s.DeltaCommitted()
	for b.Loop() {
		// A failed delta is dirt again, so the same hundred can serve.
		for n := range s.runs.nodes[:2] {
			for i := range s.runs.nodes[n].runs {
				s.runs.nodes[n].runs[i].flags |= dirty
			}
			s.runs.nodes[n].flags |= dirty
		}
		if !s.TakeDelta(&d, 0) {
			b.Fatal("nothing is dirty")
		}
		s.DeltaCommitted()
	}
}

// BenchmarkNackRedeliver refuses every tenth message and gets it again.
func BenchmarkNackRedeliver(b *testing.B) {
	b.ReportAllocs()
	s := bench(b, Config{Policy: Shared})
	var ds []Delivery
	rs := make([]Range, 1)
	var n uint64
	for b.Loop() {
		ds = pump(b, s, 100, ds)
		first := ds[0].Start
		for off := first; off < first+100; off += 10 {
			rs[0] = Range{off, off + 1}
			if _, err := s.Nack(Settle{Consumer: 1, Ranges: rs}, 0, 0); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Grant(1, 10); err != nil {
			b.Fatal(err)
		}
		ds = s.Offer(s.Next(0), Batch{Base: first, Count: 100}, 0, ds[:0])
		if len(ds) != 10 {
			b.Fatal(ds)
		}
		rs[0] = Range{first, first + 100}
		if r, err := s.Ack(Settle{Consumer: 1, Ranges: rs}); err != nil || r.Done != 100 {
			b.Fatal(r, err)
		}
		n += 100
	}
	rate(b, n)
}
