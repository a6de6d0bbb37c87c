package fetch

import (
	"bytes"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/recovery"
	"github.com/danubemq/danube/storage/segment"
)

// paged moves the first n segments of a world into a page of its catalog, with
// objects named as the catalog names them.
func (w *world) paged(n int) (key string, page *catalog.Content) {
	w.t.Helper()
	page = &catalog.Content{Topic: testID().Topic, Partition: testID().Partition}
	w.bucket.set(func() {
		for i, p := range w.catalog.pieces[:n] {
			s := catalog.Segment{
				Start: p.Start, End: p.End, Object: catalog.Object{Kind: catalog.Own, Epoch: 7, Incarnation: 1, Unique: uint64(i)},
				Bytes: p.Bytes, CRC: p.CRC, FirstTime: p.FirstTime, LastTime: p.LastTime,
			}
			w.bucket.objects[keyOf(page, s)] = w.bucket.objects[p.Key]
			delete(w.bucket.objects, p.Key)
			page.Segments = append(page.Segments, s)
		}
	})
	w.putPage("page", page)
	return "page", page
}

func keyOf(page *catalog.Content, s catalog.Segment) string {
	return keys.Of(catalog.NewName(page.Topic, page.Partition, s.Object, s.Start, s.End))
}

func encoded(page *catalog.Content) []byte {
	return catalog.EncodePage(page.Topic, page.Partition, page.Segments)
}

// putPage makes a page an object, in place of the pieces it names. What epochs
// they were of the metadata still say, of all of them together.
func (w *world) putPage(key string, page *catalog.Content) {
	w.t.Helper()
	data := encoded(page)
	first, last := page.Segments[0], page.Segments[len(page.Segments)-1]
	w.bucket.set(func() { w.bucket.objects[key] = data })
	w.catalog.change(func() {
		rest := w.catalog.pieces
		var epochs []segment.EpochStart
		for len(rest) > 0 && rest[0].Start < last.End {
			for _, e := range rest[0].Epochs {
				if n := len(epochs); n == 0 || epochs[n-1].Epoch != e.Epoch {
					epochs = append(epochs, e)
				}
			}
			rest = rest[1:]
		}
		w.catalog.pieces = append([]Piece{{
			Start: first.Start, End: last.End, Key: key, Bytes: int64(len(data)), CRC: catalog.Sum(data), Page: true, Epochs: epochs,
			FirstTime: first.FirstTime, LastTime: last.LastTime,
		}}, rest...)
	})
}

// What a page names is read like what the catalog names itself, and the page once.
func TestReadsThroughPages(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(12, 10, 50_000)
	w.paged(9)
	for _, from := range []uint64{0, 5, w.next / 2, w.next - 3} {
		r := w.part.Reader(from)
		w.readTo(r, w.next, 1<<20)
		r.Close()
	}
	pages := 0
	for _, q := range w.bucket.asked() {
		if q.key == "page" {
			pages++
		}
	}
	if pages != 1 {
		t.Errorf("the page was read %d times", pages)
	}
}

// R19: a page that is gone is looked up again like any object, and so is what a page
// names; a page that the newest version names must be there.
func TestMissingPage(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(6, 3, 10_000)
	_, page := w.paged(4)
	data := w.bucket.objects["page"]
	w.bucket.set(func() { delete(w.bucket.objects, "page") })
	r := w.part.Reader(0)
	defer r.Close()
	_, err := r.Next(t.Context(), 1)
	if m, ok := errors.AsType[*Missing](err); !ok || m.Key != "page" {
		t.Fatal(err)
	}
	w.catalog.change(func() {}) // a version that names it still changes nothing
	_, err = r.Next(t.Context(), 1)
	if m, ok := errors.AsType[*Missing](err); !ok || m.Version != w.catalog.version {
		t.Fatal(err)
	}
	w.bucket.set(func() { w.bucket.objects["page"] = data })
	w.nextFrom(r)

	key := keyOf(page, page.Segments[1])
	lost := w.bucket.objects[key]
	w.bucket.set(func() { delete(w.bucket.objects, key) })
	w.readTo(r, page.Segments[1].Start, 1)
	_, err = r.Next(t.Context(), 1)
	if m, ok := errors.AsType[*Missing](err); !ok || m.Key != key {
		t.Fatal(err)
	}
	merged := *page
	merged.Segments = append([]catalog.Segment(nil), page.Segments...)
	merged.Segments[1].Object.Unique = 99
	w.bucket.set(func() { w.bucket.objects[keyOf(&merged, merged.Segments[1])] = lost })
	w.putPage("page-2", &merged)
	w.readTo(r, w.next, 1)
}

// R19: a page does not say which epoch gives an offset its value, the metadata do,
// of all that it lists: what they give to another epoch by now is not read.
func TestEpochsOfWhatAPageLists(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(3, 4, 10_000)
	mixed := []batch.Batch{w.batch(3, 10_000), w.batch(3, 10_000)}
	w.epoch++
	turn := w.next
	mixed = append(mixed, w.batch(3, 10_000), w.batch(3, 10_000))
	w.export("mixed", mixed...)
	w.export("after", w.batch(3, 10_000), w.batch(3, 10_000))
	w.export("last", w.batch(3, 10_000))
	w.paged(5)
	page := &w.catalog.pieces[0]
	if len(page.Epochs) != 2 || page.Epochs[1].Start != turn {
		t.Fatalf("%+v", page.Epochs)
	}
	for _, from := range []uint64{0, turn - 1, turn, turn + 3, w.next - 7} {
		r := w.part.Reader(from)
		w.readTo(r, w.next, 1<<20)
		r.Close()
	}
	start := turn - 2 // of the log, in the middle of a batch: what lies below it no range has
	page.Epochs = []segment.EpochStart{{Epoch: page.Epochs[0].Epoch, Start: start}, page.Epochs[1]}
	r := w.part.Reader(start)
	w.readTo(r, w.next, 1<<20)
	r.Close()

	page.Epochs = []segment.EpochStart{page.Epochs[0], {Epoch: w.epoch, Start: turn - 3}}
	r = w.part.Reader(turn - 6)
	defer r.Close()
	w.readTo(r, turn-3, 1)
	v, err := r.Next(t.Context(), 1)
	if d, ok := errors.AsType[*recovery.Damage](err); !ok || d.From != turn-3 || d.To != turn {
		t.Fatalf("offsets %d to %d, %v", v.Base, v.End, err)
	}
}

// What is not the page that the metadata mean is not believed.
func TestDamagedPage(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(4, 3, 10_000)
	_, page := w.paged(4)
	good := w.bucket.objects["page"]
	other := *page
	other.Partition++
	for name, change := range map[string]func(){
		"flipped": func() { w.bucket.objects["page"] = bytes.Clone(good); w.bucket.objects["page"][40] ^= 1 },
		"short":   func() { w.bucket.objects["page"] = good[:len(good)-1] },
		"foreign": func() {
			w.bucket.objects["page"] = encoded(&other)
			w.catalog.pieces[0].CRC = catalog.Sum(w.bucket.objects["page"])
		},
		"another": func() {
			p := *page
			p.Segments = append([]catalog.Segment(nil), page.Segments...)
			p.Segments[0].CRC++
			w.bucket.objects["page"] = encoded(&p)
		},
		"range": func() { w.catalog.pieces[0].End++ },
		"large": func() { w.catalog.pieces[0].Bytes = 1 << 40 },
	} {
		t.Run(name, func(t *testing.T) {
			before := w.catalog.pieces[0]
			change()
			if _, err := w.part.Reader(0).Next(t.Context(), 1); !errors.Is(err, catalog.ErrDamaged) && !errors.Is(err, cold.Corrupt) {
				t.Error(err)
			}
			w.catalog.pieces[0], w.bucket.objects["page"] = before, good
		})
	}
	r := w.part.Reader(0)
	defer r.Close()
	w.readTo(r, w.next, 1)
}

// The offset of a time is that of the first message at or after it, in whatever the
// catalog has.
func TestOffsetAt(t *testing.T) {
	w := newWorld(t, Config{})
	w.fill(5, 40, 50_000)
	check := func() {
		t.Helper()
		for i := 0; i < len(w.truth); i += 7 {
			b := w.truth[i]
			for _, late := range []int64{0, -1} {
				if got, err := w.part.OffsetAt(t.Context(), b.AppendTime()+late); got != b.Base() || err != nil {
					t.Fatalf("time of offset %d%+d: %d, %v", b.Base(), late, got, err)
				}
			}
		}
		_, err := w.part.OffsetAt(t.Context(), timeOf(w.next))
		wantErr(t, err, ErrUncovered)
		if got, err := w.part.OffsetAt(t.Context(), 0); got != 0 || err != nil {
			t.Fatal(got, err)
		}
	}
	check()
	w.catalog.pieces[4].CRC++ // its footer is that of another segment: it is not believed
	bad := testutil.ToFloat64(w.tier.m.footers)
	w.tier.notes.forget(noteOf(&w.catalog.pieces[4]))
	r := w.part.Reader(w.next - 3)
	w.readTo(r, w.next, 1)
	r.Close()
	if n := testutil.ToFloat64(w.tier.m.footers); n != bad+1 {
		t.Errorf("%v footers were found bad", n-bad)
	}
	w.catalog.pieces[4].CRC--
	whole := w.bucket.objects["segment-4"]
	hurt := bytes.Clone(whole)
	hurt[len(hurt)-20] ^= 1 // a footer
	w.bucket.set(func() { w.bucket.objects["segment-4"] = hurt })
	w.tier.notes.forget(noteOf(&w.catalog.pieces[4]))
	check()
	w.bucket.set(func() { w.bucket.objects["segment-4"] = whole })
	w.paged(3)
	check()
	w.bucket.set(func() { delete(w.bucket.objects, "segment-3") })
	w.tier.notes.forget(noteOf(&w.catalog.pieces[1]))
	_, err := w.part.OffsetAt(t.Context(), w.catalog.pieces[1].LastTime)
	if m, ok := errors.AsType[*Missing](err); !ok || m.Key != "segment-3" {
		t.Fatal(err)
	}
	w.compact("merged")
	if got, err := w.part.OffsetAt(t.Context(), w.truth[130].AppendTime()); got != w.truth[130].Base() || err != nil {
		t.Fatal(got, err)
	}
}
