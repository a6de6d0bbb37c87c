package catalog

import (
	"bytes"
	"encoding/hex"
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/vmihailenco/msgpack/v5"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite testdata with what was observed")

var topic = [16]byte{1, 2, 3}

// model is a catalog as nobody would build one: the lists, and every question answered by looking at each offset.
type model struct {
	pages    []Page
	listed   map[uint64][]Segment // by the start of their page
	segments []Segment
}

const space = 160 // the model's offsets lie below

func (m *model) covers(n uint64) bool {
	return slices.ContainsFunc(m.pages, func(p Page) bool { return p.Start <= n && n < p.End }) ||
		slices.ContainsFunc(m.segments, func(s Segment) bool { return s.Start <= n && n < s.End })
}

func (m *model) bytes() (n int64) {
	for _, s := range m.segments {
		n += s.Bytes
	}
	for _, p := range m.pages {
		n += p.Bytes
	}
	return n
}

func (m *model) sort() {
	slices.SortFunc(m.segments, func(a, b Segment) int { return int(a.Start) - int(b.Start) })
	slices.SortFunc(m.pages, func(a, b Page) int { return int(a.Start) - int(b.Start) })
}

// segment makes one that looks like those of a broker: much is as in the one before.
func segment(start, end, n uint64) Segment {
	s := Segment{Start: start, End: end, Bytes: int64(1000 + n), CRC: uint32(n * 2654435761), FirstTime: int64(1700000000000 + start), LastTime: int64(1700000000000 + end)}
	s.Object = Object{Kind: Own, Epoch: 3<<48 | 7 + n/9, Incarnation: 5 + n/7, Unique: n * 0x9e3779b97f4a7c15}
	if n%3 == 0 {
		s.Object = Object{Kind: Cut, Store: [16]byte{9, byte(n / 12)}, Incarnation: 5 + n/7, Number: n, Unique: n}
		s.Position = int64(n * 77)
	}
	return s
}

func own(s Segment) Segment {
	s.Object, s.Position = Object{Kind: Own, Epoch: 1, Incarnation: 5, Unique: s.Object.Unique}, 0
	return s
}

// check compares everything that a catalog answers with the model, over an encoding too.
func (m *model) check(t *rapid.T, c *Catalog) {
	if got := slices.Collect(c.All()); !slices.Equal(got, m.segments) {
		t.Fatalf("segments %v, want %v", got, m.segments)
	}
	if !slices.Equal(c.Pages(), m.pages) || c.Len() != len(m.segments) || c.Bytes() != m.bytes() {
		t.Fatalf("pages %v, %d segments, %d bytes; want %v, %d, %d", c.Pages(), c.Len(), c.Bytes(), m.pages, len(m.segments), m.bytes())
	}
	gap, room := uint64(space), ^uint64(0)
	for n := uint64(space); n > 0; {
		n--
		if covered := m.covers(n); covered {
			room = n
		} else {
			gap = n
		}
		if c.Gap(n) != gap || c.Room(n) != room {
			t.Fatalf("at %d: gap %d, room %d; want %d, %d", n, c.Gap(n), c.Room(n), gap, room)
		}
		s, found := c.Find(n)
		if i := slices.IndexFunc(m.segments, func(s Segment) bool { return s.Start <= n && n < s.End }); found != (i >= 0) || found && s != m.segments[i] {
			t.Fatalf("found %v, %t at %d", s, found, n)
		}
		p, found := c.Page(n)
		if i := slices.IndexFunc(m.pages, func(p Page) bool { return p.Start <= n && n < p.End }); found != (i >= 0) || found && p != m.pages[i] {
			t.Fatalf("found page %v, %t at %d", p, found, n)
		}
	}
	if c == nil {
		return
	}
	b, err := msgpack.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	var back Catalog
	if err := msgpack.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	again, err := msgpack.Marshal(&back)
	if err != nil || !bytes.Equal(b, again) || !slices.Equal(back.cover, c.cover) {
		t.Fatalf("came back otherwise: %v\n%v\n%v", err, back.cover, c.cover)
	}
}

// free draws a run of offsets that nothing covers, empty if there is none where it looked.
func (m *model) free(t *rapid.T) (start, end uint64) {
	start = rapid.Uint64Range(0, space-2).Draw(t, "start")
	if n := len(m.segments); n > 0 && rapid.IntRange(0, 3).Draw(t, "at the end") > 0 {
		start = m.segments[n-1].End
	}
	for end = start; end < min(space, start+4) && !m.covers(end); {
		end++
	}
	return start, end
}

func TestCatalogAnswersAsItsListsSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c *Catalog
		m := &model{listed: map[uint64][]Segment{}}
		for n := range uint64(rapid.IntRange(1, 80).Draw(t, "steps")) {
			old, was := c, slices.Collect(c.All())
			switch rapid.IntRange(0, 12).Draw(t, "what") {
			case 0, 1:
				c = m.replace(t, c, n)
			case 2:
				c = m.fold(t, c, n)
			case 3:
				c = m.unfold(t, c)
			case 4:
				c = m.trim(t, c)
			default:
				if start, end := m.free(t); start < end {
					s := segment(start, end, n)
					c, m.segments = c.Add(s), append(m.segments, s)
				}
			}
			m.sort()
			m.check(t, c)
			if !slices.Equal(slices.Collect(old.All()), was) {
				t.Fatal("the catalog before has changed")
			}
		}
	})
}

// run draws segments that follow each other without a gap.
func (m *model) run(t *rapid.T) []Segment {
	if len(m.segments) == 0 {
		return nil
	}
	i := rapid.IntRange(0, len(m.segments)-1).Draw(t, "from")
	j := i + 1
	for most := i + rapid.IntRange(1, 70).Draw(t, "most"); j < min(most, len(m.segments)) && m.segments[j].Start == m.segments[j-1].End; {
		j++
	}
	return slices.Clone(m.segments[i:j])
}

func (m *model) replace(t *rapid.T, c *Catalog, n uint64) *Catalog {
	run := m.run(t)
	if run == nil {
		return c
	}
	merged := own(segment(run[0].Start, run[len(run)-1].End, n))
	m.segments = append(slices.DeleteFunc(m.segments, func(s Segment) bool { return slices.Contains(run, s) }), merged)
	return c.Replace(merged.Start, merged.End, []Segment{merged})
}

func (m *model) fold(t *rapid.T, c *Catalog, n uint64) *Catalog {
	run := m.run(t)
	if run == nil {
		return c
	}
	if got := c.Between(run[0].Start, run[len(run)-1].End); !slices.Equal(got, run) {
		t.Fatalf("between %v, want %v", got, run)
	}
	p, content := NewPage(topic, 3, run, Object{Kind: PageObject, Incarnation: 6, Unique: n})
	if back, err := DecodePage(content); err != nil || !p.Valid() || !p.Holds(content) || !slices.Equal(back.Segments, run) {
		t.Fatalf("page came back as %v, %v", back, err)
	}
	m.pages = append(m.pages, p)
	m.listed[p.Start] = run
	m.segments = slices.DeleteFunc(m.segments, func(s Segment) bool { return slices.Contains(run, s) })
	return c.Fold(p)
}

func (m *model) unfold(t *rapid.T, c *Catalog) *Catalog {
	if len(m.pages) == 0 {
		return c
	}
	p := m.pages[rapid.IntRange(0, len(m.pages)-1).Draw(t, "page")]
	m.pages = slices.DeleteFunc(m.pages, func(q Page) bool { return q == p })
	m.segments = append(m.segments, m.listed[p.Start]...)
	return c.Unfold(p, m.listed[p.Start])
}

func (m *model) trim(t *rapid.T, c *Catalog) *Catalog {
	start := rapid.Uint64Range(0, space/4).Draw(t, "start")
	rest, segments, pages := c.Trim(start)
	below := func(end uint64) bool { return end <= start }
	left := slices.DeleteFunc(slices.Clone(m.segments), func(s Segment) bool { return below(s.End) })
	if len(left)+len(segments) != len(m.segments) || slices.ContainsFunc(segments, func(s Segment) bool { return !below(s.End) }) {
		t.Fatalf("trimmed %v of %v at %d", segments, m.segments, start)
	}
	kept := slices.DeleteFunc(slices.Clone(m.pages), func(p Page) bool { return below(p.End) })
	if len(kept)+len(pages) != len(m.pages) {
		t.Fatalf("trimmed pages %v of %v at %d", pages, m.pages, start)
	}
	m.segments, m.pages = left, kept
	return rest
}

// TestManyMergesLeaveFewChunks: what copies a list of chunks must not grow with the merges there ever were.
func TestManyMergesLeaveFewChunks(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var c *Catalog
	at := uint64(0)
	for n := range uint64(6000) {
		c = c.Add(segment(at, at+5, n))
		at += 5
		if c.Len() > 900 {
			list := c.Between(0, at)
			i := rng.IntN(len(list) - 100)
			run := list[i : i+100]
			c = c.Replace(run[0].Start, run[99].End, []Segment{own(segment(run[0].Start, run[99].End, n))})
		}
	}
	if most := 4 * (c.Len()/chunkMost + 1); len(c.chunks) > most || len(c.cover) != 1 {
		t.Fatalf("%d segments lie in %d chunks, at most %d are expected; %d runs", c.Len(), len(c.chunks), most, len(c.cover))
	}
	size := 0
	for _, k := range c.chunks {
		size += len(k.b)
	}
	if per := size / c.Len(); per > 45 {
		t.Fatalf("%d bytes a segment", per)
	}
}

func TestUncoveredIsNarrowed(t *testing.T) {
	var c *Catalog
	for _, s := range [][2]uint64{{10, 20}, {30, 40}, {40, 50}} {
		c = c.Add(segment(s[0], s[1], 1))
	}
	for _, x := range [][4]uint64{{0, 60, 0, 60}, {10, 60, 20, 60}, {12, 45, 20, 30}, {10, 20, 20, 20}, {31, 50, 50, 50}, {0, 15, 0, 10}, {20, 30, 20, 30}, {55, 60, 55, 60}} {
		if from, to := c.Uncovered(x[0], x[1]); from != x[2] || to != x[3] {
			t.Errorf("of [%d, %d) [%d, %d) is not covered; want [%d, %d)", x[0], x[1], from, to, x[2], x[3])
		}
	}
	if from, to := (*Catalog)(nil).Uncovered(3, 9); from != 3 || to != 9 {
		t.Errorf("of nothing [%d, %d)", from, to)
	}
}

// frozen are bytes that must mean the same for ever: objects in buckets, and what metadata hold of them.
func frozen(t testing.TB) map[string][]byte {
	segments := []Segment{segment(0, 10, 1), segment(10, 1<<33, 2), segment(1<<33+5, 1<<33+6, 8)}
	p, content := NewPage(topic, 3, segments, Object{Kind: PageObject, Incarnation: 6, Unique: 0xfeedface})
	var c *Catalog
	for _, s := range []Segment{segment(1<<34, 1<<34+1, 3), segment(1<<34+1, 1<<34+2, 6), segment(1<<34+9, 1<<34+20, 15)} {
		c = c.Add(s)
	}
	c = c.Add(segment(1<<33+6, 1<<33+7, 10))
	for _, s := range segments {
		c = c.Add(s)
	}
	c = c.Fold(p)
	out := map[string][]byte{"page": content}
	for name, v := range map[string]any{"catalog": c, "segment": segment(5, 6, 3), "page-entry": p} {
		b, err := msgpack.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = b
	}
	return out
}

func TestBytesAreFrozen(t *testing.T) {
	const file = "testdata/catalog.golden"
	var got strings.Builder
	for _, name := range []string{"page", "catalog", "segment", "page-entry"} {
		got.WriteString(name + " " + hex.EncodeToString(frozen(t)[name]) + "\n")
	}
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("bytes changed: a new version is needed, and the old one must still be read\n%s", got.String())
	}
}

// TestDocumentHoldsTheGoldenBytes: the page that docs/format.md shows is one that this package writes.
func TestDocumentHoldsTheGoldenBytes(t *testing.T) {
	text, err := os.ReadFile("../../docs/format.md")
	if err != nil {
		t.Fatal(err)
	}
	if flat := strings.ReplaceAll(string(text), "\n", ""); !strings.Contains(flat, hex.EncodeToString(frozen(t)["page"])) {
		t.Error("docs/format.md shows another page than the golden one")
	}
}

func TestDamagedPagesAreRefused(t *testing.T) {
	good := frozen(t)["page"]
	for n := range len(good) {
		if _, err := DecodePage(good[:n]); err == nil {
			t.Fatalf("cut at %d of %d bytes it was read", n, len(good))
		}
	}
	for bit := range 8 * len(good) {
		bad := bytes.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		if _, err := DecodePage(bad); err == nil {
			t.Fatalf("with bit %d flipped it was read", bit)
		}
	}
	p, _ := NewPage(topic, 3, []Segment{segment(0, 10, 1)}, Object{Kind: PageObject, Incarnation: 6})
	if p.Holds(good) || p.Holds(nil) {
		t.Fatal("a page holds what is another's")
	}
}

// TestSumTellsPagesApart: two pages of the same length and number of segments.
func TestSumTellsPagesApart(t *testing.T) {
	of := func(crc uint32) []byte {
		s := segment(0, 10, 1)
		s.CRC = crc
		return EncodePage(topic, 3, []Segment{s})
	}
	if a, b := of(1), of(2); len(a) != len(b) || Sum(a) == Sum(b) || Sum(nil) != 0 {
		t.Errorf("%08x and %08x", Sum(a), Sum(b))
	}
}

func TestContentIsLookedUp(t *testing.T) {
	a, b := segment(100, 250, 1), segment(300, 301, 2)
	a.FirstTime, a.LastTime, b.FirstTime, b.LastTime = 1000, 2000, 3000, 3000
	c := &Content{Topic: topic, Segments: []Segment{a, b}}
	for n, want := range map[uint64]uint64{100: 100, 249: 100, 300: 300, 0: 0, 99: 0, 250: 0, 299: 0, 301: 0} {
		if s := c.At(n); want == 0 && s != nil || want > 0 && (s == nil || s.Start != want) {
			t.Errorf("offset %d lies in %+v", n, s)
		}
	}
	for ms, want := range map[int64]uint64{0: 100, 1500: 100, 2000: 100, 2001: 300, 3000: 300, 3001: 0} {
		if s := c.AtTime(ms); want == 0 && s != nil || want > 0 && (s == nil || s.Start != want) {
			t.Errorf("time %d lies in %+v", ms, s)
		}
	}
}

func TestNamesHaveWhatTheirKindNeeds(t *testing.T) {
	own := Object{Kind: Own, Epoch: 2, Incarnation: 1}
	cut := Object{Kind: Cut, Store: [16]byte{1}, Incarnation: 1, Number: 4}
	page := Object{Kind: PageObject, Incarnation: 1}
	for name, c := range map[string]struct {
		n    Name
		want bool
	}{
		"segment":                    {Name{own, topic, 1, 0, 5}, true},
		"page":                       {Name{page, topic, 1, 0, 5}, true},
		"cut":                        {Name{Object: cut}, true},
		"cut of a partition":         {Name{cut, topic, 1, 0, 5}, false},
		"segment without a topic":    {Name{own, [16]byte{}, 1, 0, 5}, false},
		"segment without offsets":    {Name{own, topic, 1, 5, 5}, false},
		"segment without an epoch":   {Name{Object{Kind: Own, Incarnation: 1}, topic, 1, 0, 5}, false},
		"segment without a run":      {Name{Object{Kind: Own, Epoch: 2}, topic, 1, 0, 5}, false},
		"page with an epoch":         {Name{Object{Kind: PageObject, Incarnation: 1, Epoch: 2}, topic, 1, 0, 5}, false},
		"cut without a store":        {Name{Object: Object{Kind: Cut, Incarnation: 1}}, false},
		"nothing":                    {Name{}, false},
		"a kind of a newer release":  {Name{Object{Kind: 9, Incarnation: 1}, topic, 1, 0, 5}, false},
		"offsets beyond every other": {Name{own, topic, 1, 0, 1 << 63}, false},
	} {
		if got := c.n.Valid(); got != c.want {
			t.Errorf("%s: valid is %t", name, got)
		}
		if m := NewName(c.n.Topic, c.n.Partition, c.n.Object, c.n.Start, c.n.End); c.want && (m != c.n || m.Compare(c.n) != 0 || m.String() == "") {
			t.Errorf("%s: made again it is %v", name, m)
		}
	}
	if a, b := (Name{own, topic, 1, 0, 5}), (Name{own, topic, 1, 5, 7}); a.Compare(b) >= 0 || b.Compare(a) <= 0 {
		t.Error("names are out of order")
	}
}

func FuzzPage(f *testing.F) {
	f.Add(frozen(f)["page"])
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := DecodePage(b)
		if err != nil {
			return
		}
		if len(c.Segments) == 0 || !bytes.Equal(EncodePage(c.Topic, c.Partition, c.Segments), b) {
			t.Fatalf("%d segments make another page", len(c.Segments))
		}
		if !build(nil, pack(nil, c.Segments)).disjoint() {
			t.Fatal("segments overlap")
		}
	})
}

func FuzzCatalog(f *testing.F) {
	f.Add(frozen(f)["catalog"])
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Catalog
		if err := msgpack.Unmarshal(b, &c); err != nil || c.Len()+len(c.Pages()) == 0 {
			return // the msgpack value nil is no catalog
		}
		b, err := msgpack.Marshal(&c)
		if err != nil {
			t.Fatal(err)
		}
		var again Catalog
		if err := msgpack.Unmarshal(b, &again); err != nil || !slices.Equal(slices.Collect(c.All()), slices.Collect(again.All())) {
			t.Fatalf("came back otherwise: %v", err)
		}
	})
}

// BenchmarkAdd is what a partition of level object does four times a second: its cost must not depend on how long the
// catalog is.
func BenchmarkAdd(b *testing.B) {
	for name, n := range map[string]uint64{"behind 10": 10, "behind 1000": 1000, "behind 10000": 10_000} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var c *Catalog
			for i := range n {
				c = c.Add(segment(i, i+1, i))
			}
			for i := n; b.Loop(); i++ {
				if c.Add(segment(n, n+1, i)).Gap(0) != n+1 {
					b.Fatal("it is not there")
				}
			}
		})
	}
}
