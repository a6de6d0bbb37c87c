package segment

import (
	"bytes"
	"errors"
	"math"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
)

// newProduced is a stamped batch of one message.
func newProduced(t testing.TB, producer uint64, session uint32, sequence, base uint64) batch.Batch {
	t.Helper()
	var w batch.Builder
	w.Add(&batch.Message{Payload: []byte("x")})
	b, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: producer, Session: session, Sequence: sequence})
	if err != nil {
		t.Fatal(err)
	}
	batch.Batch(b).Stamp(batch.Stamp{Base: base, Epoch: 1<<48 | 7, AppendTime: int64(1000 + base)})
	return b
}

func TestProducersRememberTheLastBatches(t *testing.T) {
	var p Producers
	if p.Find(1, 1) != nil || p.Len() != 0 {
		t.Fatal("an empty table knows a session")
	}
	for i := range uint64(200) {
		p.Add(newProduced(t, 1, 1, i, 10+2*i))
		p.Add(newProduced(t, 1, 2, 1000+i, 11+2*i))
		s := p.Find(1, 1)
		if s.Last != i || s.Len() != int(min(i+1, remembered)) {
			t.Fatalf("after %d batches: last %d, %d remembered", i+1, s.Last, s.Len())
		}
		for k := range s.Len() {
			seq := i - uint64(s.Len()-1-k)
			if got := s.Sent(k); got.Sequence != seq || got.Base != 10+2*seq || got.AppendTime != int64(1010+2*seq) || got.Count != 1 {
				t.Fatalf("remembered %d is %+v, want sequence %d", k, got, seq)
			}
		}
	}
	p.Add(batch.AppendMark(nil, 1, 999, 1))
	if p.Len() != 2 {
		t.Fatalf("%d sessions after a mark", p.Len())
	}
}

func TestProducersExpire(t *testing.T) {
	var p Producers
	p.Add(newProduced(t, 1, 1, 0, 10))
	p.Add(newProduced(t, 2, 1, 0, 20))
	p.Add(newProduced(t, 1, 1, 1, 30))
	p.Expire(1030)
	if p.Find(1, 1) == nil || p.Find(2, 1) != nil {
		t.Fatal("the wrong session expired")
	}
	p.Expire(1031)
	if p.Len() != 0 {
		t.Fatal("a session is left")
	}
}

func TestProducersComeBack(t *testing.T) {
	var p Producers
	extremes := []uint64{0, 1, math.MaxUint64}
	for i, producer := range extremes {
		for _, session := range []uint32{0, math.MaxUint32} {
			for j := range uint64(70 * i) {
				p.Add(newProduced(t, producer, session, j*3, math.MaxUint64/2+j*1000))
			}
			p.Add(newProduced(t, producer, session, math.MaxUint64, math.MaxUint64-1))
		}
	}
	data := p.append(nil)
	got, err := parseProducers(data, p.Len())
	if err != nil {
		t.Fatal(err)
	}
	if again := got.append(nil); !bytes.Equal(again, data) {
		t.Fatal("the table came back as another")
	}
	// A table read back goes on as the one that was written.
	b := newProduced(t, 1, 0, 7, 8)
	p.Add(b)
	got.Add(b)
	if !bytes.Equal(got.append(nil), p.append(nil)) {
		t.Fatal("the tables parted")
	}
	for n := range len(data) {
		if _, err := parseProducers(data[:n], p.Len()); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
	}
	if _, err := parseProducers(append(data, 0), p.Len()); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("one byte too many: %v", err)
	}
}

func TestProducersNamedTwiceAreRefused(t *testing.T) {
	var p Producers
	p.Add(newProduced(t, 1, 1, 0, 10))
	data := p.append(nil)
	if _, err := parseProducers(append(data, data...), 2); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("read with %v", err)
	}
}

func TestFeedingAllocatesNothing(t *testing.T) {
	h := testHeader()
	header, err := h.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := NewSummary(header, 0)
	var p Producers
	b := newProduced(t, 1, 1, 0, 10)
	for range 2 * remembered {
		p.Add(b)
	}
	if n := testing.AllocsPerRun(1000, func() {
		sum.Add(b)
		p.Add(b)
	}); n != 0 {
		t.Fatalf("%.1f allocations a batch", n)
	}
}
