package segment

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
)

// build is a small segment as bytes, and what to expect of it.
type build struct {
	header  Header
	data    []byte
	sum     *Summary
	table   Producers
	builder batch.Builder
	next    uint64
}

func newBuild(t testing.TB, h Header) *build {
	t.Helper()
	data, err := h.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &build{header: h, data: data, sum: NewSummary(data, h.Base), next: h.Base}
}

func testHeader() Header {
	id := func(first byte) (a [16]byte) {
		for i := range a {
			a[i] = first + byte(i)
		}
		return a
	}
	return Header{
		Cluster: id(0x10), Store: id(0x30), TopicID: id(0x50), Topic: "/default/orders", History: 1,
		Partition: 3, Epoch: 1<<48 | 7, FirstEpoch: 1<<48 | 7, Base: 100, Created: 1_700_000_000_000,
	}
}

// add appends a batch with one message for each payload.
func (w *build) add(t testing.TB, payloads ...string) batch.Batch {
	t.Helper()
	ms := int64(1_700_000_000_000 + 10*w.next)
	for i, p := range payloads {
		w.builder.Add(&batch.Message{Key: []byte("k"), PublishTime: ms + int64(i), Payload: []byte(p)})
	}
	b, err := w.builder.AppendTo(nil, batch.None, batch.Identity{Producer: 42, Session: 5, Sequence: w.next})
	if err != nil {
		t.Fatal(err)
	}
	batch.Batch(b).Stamp(batch.Stamp{Base: w.next, Epoch: w.header.Epoch, AppendTime: ms, Synced: w.next})
	w.put(b)
	return b
}

func (w *build) mark() {
	w.put(batch.AppendMark(nil, w.header.Epoch, w.next, int64(1_700_000_000_000+10*w.next)))
}

func (w *build) put(b batch.Batch) {
	w.data = append(w.data, b...)
	w.sum.Add(b)
	w.table.Add(b)
	w.next = b.End()
}

func (w *build) seal() []byte { return w.sum.Footer().Append(bytes.Clone(w.data), &w.table) }

func small(t testing.TB) *build {
	w := newBuild(t, testHeader())
	w.add(t, "first")
	w.add(t, "second", "third")
	w.mark()
	w.add(t, "fourth")
	return w
}

// placed is a stretch of a built segment: where a batch stands, and its offsets.
type placed struct {
	at, end  int64
	from, to uint64
	bytes    batch.Batch
}

// places are the batches of a segment that is known to be whole.
func places(t testing.TB, data []byte) (header int, list []placed) {
	t.Helper()
	h, n, err := ReadHeader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range scanAll(t, data, h.Origin(n)) {
		switch st.Kind {
		case Whole:
			list = append(list, placed{st.At, st.At + st.Len, st.From, st.To, st.Batch})
		case Sealed:
		default:
			t.Fatalf("a whole segment has %+v", st)
		}
	}
	return n, list
}

// scanAll returns all stretches with their batches copied. It fails unless they
// cover the file without a hole.
func scanAll(t testing.TB, data []byte, from Origin) []Stretch {
	t.Helper()
	var list []Stretch
	at := from.At
	for s := NewScanner(bytes.NewReader(data), int64(len(data)), from); ; {
		st, err := s.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if st.At != at || st.Len < 0 || st.From > st.To || (st.Kind == Whole) != (st.Batch != nil) {
			t.Fatalf("stretch %+v at %d", st, at)
		}
		at += st.Len
		st.Batch = bytes.Clone(st.Batch)
		list = append(list, st)
	}
	if at < int64(len(data)) {
		t.Fatalf("the stretches end at %d of %d", at, len(data))
	}
	return list
}

// byName is where a reader that knows only the name of the file begins.
func (h Header) byName() Origin { return Origin{Base: h.Base, FirstEpoch: h.Epoch, Epoch: h.Epoch} }
