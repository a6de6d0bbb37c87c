package gather

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"gocloud.dev/blob"
	"gocloud.dev/blob/memblob"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/bundle"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func cluster() [16]byte { return [16]byte{0xc1} }
func topicID() [16]byte { return [16]byte{7} }

// made is a segment of two-message batches from base on, one batch an epoch of the list.
type made struct {
	base   uint64
	epochs []uint64
}

func (m made) end() uint64 { return m.base + 2*uint64(len(m.epochs)) }

func (m made) last() uint64 { return m.epochs[len(m.epochs)-1] }

func (m made) bytes(t testing.TB) []byte {
	t.Helper()
	h := segment.Header{
		Cluster: cluster(), Store: [16]byte{3}, TopicID: topicID(), Topic: "/default/t", Partition: 2,
		FirstEpoch: m.epochs[0], Epoch: m.last(), Base: m.base, Created: 1000,
	}
	data, err := h.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	sum := segment.NewSummary(data, m.base)
	var table segment.Producers
	for i, epoch := range m.epochs {
		var w batch.Builder
		for j := range 2 {
			w.Add(&batch.Message{Payload: fmt.Appendf(nil, "message %d", m.base+uint64(2*i+j))})
		}
		b, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: 9, Session: 1, Sequence: m.base + uint64(2*i)})
		if err != nil {
			t.Fatal(err)
		}
		batch.Batch(b).Stamp(batch.Stamp{Base: m.base + uint64(2*i), Epoch: epoch, AppendTime: 5000 + int64(i)})
		data = append(data, b...)
		sum.Add(b)
		table.Add(b)
	}
	return sum.Footer().Append(data, &table)
}

func (m made) key() string {
	return keys.Segment{Topic: topicID(), Partition: 2, Start: m.base, End: m.end(), Epoch: m.last(), Incarnation: 4, Unique: m.base}.String()
}

// place is a bucket in memory whose reads may fail.
type place struct {
	*cold.Store
	t    testing.TB
	blob *blob.Bucket
}

func newPlace(t testing.TB) *place {
	t.Helper()
	p := &place{t: t, blob: memblob.OpenBucket(nil)}
	store, err := cold.Open(t.Context(), cold.Config{URL: "test://bucket", Attempts: 1, Drivers: func(context.Context, *url.URL, cold.Hooks) (*cold.Bucket, error) {
		return &cold.Bucket{Blob: p.blob}, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	p.Store = store
	t.Cleanup(func() { _ = store.Close() })
	return p
}

func (p *place) put(key string, data []byte) {
	p.t.Helper()
	if err := p.blob.WriteAll(p.t.Context(), key, data, nil); err != nil {
		p.t.Fatal(err)
	}
}

func (p *place) found() *Found {
	p.t.Helper()
	f, err := Bucket(p.t.Context(), p.Store, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return f
}

// cutOf puts segments into one object with an index.
func cutOf(t testing.TB, parts ...made) (key string, data []byte) {
	t.Helper()
	x := bundle.Index{Cluster: cluster(), Store: [16]byte{3}, Incarnation: 4, Number: 5}
	for _, m := range parts {
		b := m.bytes(t)
		x.Pieces = append(x.Pieces, bundle.Piece{
			Topic: topicID(), Partition: 2, CRC: segment.Sum(b), Start: m.base, End: m.end(), Epoch: m.last(), Position: int64(len(data)), Bytes: int64(len(b)),
		})
		data = append(data, b...)
	}
	return keys.Cut{Store: x.Store, Incarnation: 4, Number: 5, Unique: 6}.String(), x.Append(data)
}

// What is in a bucket is told whole: segments, the pieces of cuts, and what is beside them.
func TestBucketTellsWhatIsThere(t *testing.T) {
	p := newPlace(t)
	whole, one, two := made{10, []uint64{1, 1, 2}}, made{20, []uint64{2}}, made{30, []uint64{2, 2}}
	p.put(whole.key(), whole.bytes(t))
	cut, data := cutOf(t, one, two)
	p.put(cut, data)
	for _, key := range []string{
		keys.Cluster, keys.History(3), keys.Manifest{History: 1, Index: 9}.String(), keys.Manifest{History: 2, Index: 1}.String(), keys.Manifest{History: 1, Index: 10}.String(),
		keys.Page{Topic: topicID(), Start: 1, End: 2, Incarnation: 1}.String(), "readme.txt",
	} {
		p.put(key, []byte("x"))
	}
	calls := 0
	f, err := Bucket(t.Context(), p.Store, func(n int) { calls = max(calls, n) })
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Problems) > 0 || f.Objects != 2 || calls != 2 || f.Bytes != int64(len(data)+len(whole.bytes(t))) || !slices.Equal(f.Histories, []uint16{3}) || !slices.Equal(f.Others, []string{"readme.txt"}) {
		t.Errorf("found %+v", f)
	}
	if want := []keys.Manifest{{History: 2, Index: 1}, {History: 1, Index: 10}, {History: 1, Index: 9}}; !slices.Equal(f.Manifests, want) {
		t.Errorf("manifests %v, want %v", f.Manifests, want)
	}
	if len(f.Segments) != 3 {
		t.Fatalf("segments %+v", f.Segments)
	}
	for i, m := range []made{one, two, whole} {
		s, raw := f.Segments[i], m.bytes(t)
		if c := s.Catalog; c.Start != m.base || c.End != m.end() || c.CRC != segment.Sum(raw) || c.Bytes != int64(len(raw)) || c.FirstTime != 5000 || !c.Valid() {
			t.Errorf("segment %d: %+v", i, c)
		}
		if s.Header.Topic != "/default/t" || s.Header.Cluster != cluster() || s.Epochs[0].Epoch != m.epochs[0] || keys.Of(nameOf(s)) != s.Key {
			t.Errorf("segment %d: %+v", i, s)
		}
	}
	if s := f.Segments[1]; s.Catalog.Position != int64(len(one.bytes(t))) || len(f.Segments[2].Epochs) != 2 {
		t.Errorf("the second piece of the cut is %+v", s)
	}
}

// Whatever is wrong with an object is its own problem, named with place; the others are told.
func TestDamageIsAProblemOfOneObject(t *testing.T) {
	good, m := made{0, []uint64{1}}, made{10, []uint64{1, 1}}
	cut, bundled := cutOf(t, made{20, []uint64{1}}, made{30, []uint64{1}})
	first := int64(len(made{20, []uint64{1}}.bytes(t)))
	other := m
	other.epochs = []uint64{1, 2}
	change := func(data []byte, at int64) []byte {
		data = bytes.Clone(data)
		data[at] ^= 1
		return data
	}
	for name, c := range map[string]struct {
		key  string
		data []byte
		at   int64
		says string
	}{
		"torn":                     {m.key(), m.bytes(t)[:100], 0, "no footer"},
		"empty":                    {m.key(), nil, 0, "no footer"},
		"header":                   {m.key(), change(m.bytes(t), 20), 0, "header CRC"},
		"footer":                   {m.key(), change(m.bytes(t), int64(len(m.bytes(t))-30)), 0, "corrupt"},
		"another's name":           {made{12, []uint64{1, 1}}.key(), m.bytes(t), 0, "under the name of"},
		"another epoch's name":     {m.key(), other.bytes(t), 0, "under the name of 1"},
		"text":                     {m.key(), []byte(strings.Repeat("no segment\n", 100)), 0, "no footer"},
		"index of a cut":           {cut, change(bundled, int64(len(bundled)-20)), 0, "index of a cut is corrupt"},
		"piece of a cut":           {cut, change(bundled, first+20), first, "header CRC"},
		"cut under another's name": {strings.Replace(cut, "/4-", "/5-", 1), bundled, 0, "under another name"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.put(good.key(), good.bytes(t))
			p.put(c.key, c.data)
			f := p.found()
			if len(f.Problems) != 1 || f.Problems[0].Key != c.key || f.Problems[0].At != c.at || !strings.Contains(f.Problems[0].Error(), c.says) {
				t.Errorf("problems %v", f.Problems)
			}
			want := 1
			if c.at > 0 {
				want = 2 // the other piece of the cut
			}
			if len(f.Segments) != want {
				t.Errorf("segments %+v", f.Segments)
			}
		})
	}
}

// A store that does not answer has no damaged objects: nothing is told.
func TestStoreThatFailsIsAnError(t *testing.T) {
	m := made{0, []uint64{1}}
	dir := t.TempDir()
	p, err := cold.Open(t.Context(), cold.Config{URL: "file://" + dir, Attempts: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Put(t.Context(), m.key(), cold.Bytes(m.bytes(t))); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if f, err := Bucket(ctx, p, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("found %+v, %v", f, err)
	}
	if f, err := Bucket(t.Context(), p, nil); err != nil || len(f.Segments) != 1 {
		t.Errorf("found %+v, %v", f, err)
	}
	gone := &object{p, cold.Info{Key: made{50, []uint64{1}}.key(), Size: 700}, nameOf(Segment{})}
	b := &bucket{store: p}
	if err := b.read(t.Context(), *gone); err == nil || !strings.Contains(err.Error(), "somebody is at work") || len(b.found.Problems) > 0 {
		t.Errorf("of an object that is gone: %v, %+v", err, b.found)
	}
}

func TestNewerFormatStopsEverything(t *testing.T) {
	m := made{0, []uint64{1}}
	data := m.bytes(t)
	h, n, err := segment.ParseHeader(data)
	if err != nil {
		t.Fatal(err)
	}
	head, err := h.Append(nil)
	if err != nil || n != len(head) {
		t.Fatal(err)
	}
	head[8] = 9
	head = append(head[:n-4], crcBytes(head[:n-4])...)
	p := newPlace(t)
	p.put(m.key(), append(head, data[n:]...))
	_, err = Bucket(t.Context(), p.Store, nil)
	if v, ok := errors.AsType[*segment.VersionError](err); !ok || v.Found != 9 || !strings.Contains(err.Error(), m.key()) {
		t.Errorf("says %v", err)
	}
}

// A part of a segment becomes a whole one, batch by batch as it was.
func TestCutOutOfAnother(t *testing.T) {
	p := newPlace(t)
	m := made{10, []uint64{1, 1, 2, 3}}
	p.put(m.key(), m.bytes(t))
	s := p.found().Segments[0]
	file := filepath.Join(t.TempDir(), "cut")
	r := Recut{Store: p.Store, FS: disk.OS(), File: file, Self: [16]byte{8}, History: 1, Incarnation: 1 << 32, Unique: func() uint64 { return 77 }, Now: 9000}
	for _, c := range []struct{ start, end uint64 }{{12, 16}, {14, 18}, {10, 12}} {
		out, err := r.Cut(t.Context(), s, c.start, c.end)
		if err != nil {
			t.Fatal(err)
		}
		data, err := Read(t.Context(), p.Store, out.Key, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		rep, err := segment.Verify(bytes.NewReader(data), int64(len(data)))
		if err != nil || len(rep.Problems) > 0 || rep.Header.Store != r.Self || rep.Header.Cluster != cluster() || rep.Facts.First != c.start || rep.Facts.End != c.end {
			t.Errorf("[%d, %d): %v, %+v", c.start, c.end, err, rep)
		}
		was, is := batches(t, m.bytes(t), c.start, c.end), batches(t, data, 0, 1<<62)
		if !bytes.Equal(was, is) || !out.Catalog.Valid() || out.Catalog.Start != c.start || out.Catalog.Object.Incarnation != 1<<32 {
			t.Errorf("[%d, %d): other bytes, or %+v", c.start, c.end, out)
		}
	}
	for _, c := range []struct{ start, end uint64 }{{11, 16}, {12, 15}, {12, 20}} {
		if out, err := r.Cut(t.Context(), s, c.start, c.end); !errors.Is(err, segment.ErrCorrupt) {
			t.Errorf("[%d, %d): %+v, %v", c.start, c.end, out, err)
		}
	}
	if f, err := disk.OS().Open(file, 0); err == nil {
		t.Errorf("the temporary file stayed: %v", f.Close())
	}
}

func nameOf(s Segment) catalog.Name {
	return catalog.NewName(s.Header.TopicID, s.Header.Partition, s.Catalog.Object, s.Catalog.Start, s.Catalog.End)
}

func crcBytes(b []byte) []byte { return binary.LittleEndian.AppendUint32(nil, batch.Checksum(b)) }

// batches are the bytes of those of a segment that hold [from, to).
func batches(t testing.TB, data []byte, from, to uint64) (out []byte) {
	t.Helper()
	_, err := segment.Dump(bytes.NewReader(data), int64(len(data)), func(st segment.Stretch) error {
		if st.Kind == segment.Whole && st.From >= from && st.To <= to {
			out = append(out, st.Batch...)
		}
		return nil
	})
	if err != nil && !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return out
}
