package wal

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/journal"
	"github.com/danubemq/danube/storage/memory"
	"github.com/danubemq/danube/storage/segment"
)

// image is a log at the moment of a kill: files, what was acknowledged, and
// which files there are.
type image struct {
	t     testing.TB
	fsys  *disk.Memory
	files []string // segment files, in order
	want  []string // payloads by offset
	ends  []int64  // of the last file: where its header and each batch end
	floor uint64
	start uint64
}

// record appends n batches of one message to a new log, waits for each, and kills.
func record(t testing.TB, n int, segmentBytes int64) *image {
	t.Helper()
	m := disk.NewMemory(1)
	tier := openTier(t, m, func(c *Config) { c.SegmentBytes = segmentBytes })
	l, _ := openLog(t, tier, Opening{ID: topic(1), Topic: "/default/t"})
	if err := l.Begin(1, 0, 1<<40); err != nil {
		t.Fatal(err)
	}
	if _, _, err := l.OpenSession(5, 1, 0); err != nil {
		t.Fatal(err)
	}
	im := &image{t: t}
	s := sender{producer: 5, session: 1}
	for i := range n {
		p, err := l.Append(s.batch(t, 1, 40+i%7))
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		im.want = append(im.want, string(payload(5, uint64(i), 40+i%7)))
	}
	tier.work.Wait() // the mark behind the last batch is written
	for _, f := range l.files.list {
		im.files = append(im.files, f.Handle.Name)
	}
	im.fsys = m.Kill()
	tier.Close()
	raw := im.read(im.last())
	_, at, err := segment.ParseHeader(raw)
	if err != nil {
		t.Fatal(err)
	}
	for im.ends = append(im.ends, int64(at)); at < len(raw); im.ends = append(im.ends, int64(at)) {
		at += batch.Batch(raw[at:]).Len()
	}
	return im
}

// copies returns a function that puts the files of the image on a new disk.
func (im *image) copies() func(t testing.TB) *image {
	files := make(map[string][]byte)
	var walk func(dir string)
	walk = func(dir string) {
		list, err := im.fsys.ReadDir(dir)
		if err != nil {
			im.t.Fatal(err)
		}
		for _, e := range list {
			if name := path.Join(dir, e.Name); e.Dir {
				walk(name)
			} else {
				files[name] = im.read(name)
			}
		}
	}
	walk("/data")
	return func(t testing.TB) *image {
		c := *im
		c.t, c.fsys = t, disk.NewMemory(1)
		for name, data := range files {
			if err := disk.MkdirAll(c.fsys, path.Dir(name)); err != nil {
				t.Fatal(err)
			}
			c.write(name, data)
		}
		return &c
	}
}

func (im *image) last() string { return im.files[len(im.files)-1] }

func (im *image) read(name string) []byte {
	im.t.Helper()
	b, err := disk.ReadFile(im.fsys, name)
	if err != nil {
		im.t.Fatal(err)
	}
	return b
}

// write replaces a file; nil removes it.
func (im *image) write(name string, b []byte) {
	im.t.Helper()
	err := im.fsys.Remove(name)
	if err != nil && !isNotExist(err) {
		im.t.Fatal(err)
	}
	if b == nil {
		return
	}
	f, err := im.fsys.Open(name, disk.Create)
	if err == nil {
		_, err = f.WriteAt(b, 0)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		im.t.Fatal(err)
	}
}

func (im *image) flip(name string, at int64) {
	im.t.Helper()
	b := im.read(name)
	b[at] ^= 4
	im.write(name, b)
}

func (im *image) cut(name string, size int64) { im.write(name, im.read(name)[:size]) }

func (im *image) dropJournal() { im.write("/data/journal", nil) }

// outcome is what a start makes of an image.
type outcome struct {
	found Found
	got   map[uint64]string
	bad   []Damage // met by a reader that goes over them
}

// open starts over the image and reads everything.
func (im *image) open() outcome {
	im.t.Helper()
	tier := openTier(im.t, im.fsys, nil)
	l, found := openLog(im.t, tier, Opening{
		ID: topic(1), Topic: "/default/t", Extents: []Extent{{Epoch: 1, Start: 0, End: openEnd}}, Floor: im.floor, Start: im.start,
	})
	out := outcome{found: found, got: make(map[uint64]string)}
	r := l.Reader(im.start)
	d := batch.NewDecoder(limits)
	for {
		v, err := r.Next(300)
		if errors.Is(err, ErrEnd) {
			break
		}
		if bad, ok := errors.AsType[*Damage](err); ok {
			if bad.From >= bad.To || bad.From < r.Offset() {
				im.t.Fatalf("at %d: damage that leads nowhere: %v", r.Offset(), err)
			}
			out.bad = append(out.bad, *bad)
			r.Seek(bad.To)
			continue
		}
		if err != nil {
			im.t.Fatalf("read at %d: %v", r.Offset(), err)
		}
		for rest := v.Data; len(rest) > 0; {
			b, err := batch.Check(rest, limits)
			if err == nil {
				err = d.Reset(b)
			}
			if err != nil {
				im.t.Fatal(err)
			}
			var m batch.Message
			for ok, err := d.Next(&m); ok || err != nil; ok, err = d.Next(&m) {
				if err != nil {
					im.t.Fatal(err)
				}
				out.got[m.Offset] = string(m.Payload)
			}
			rest = rest[len(b):]
		}
		v.Release()
	}
	r.Close()
	if err := tier.Close(); err != nil {
		im.t.Fatal(err)
	}
	for o, text := range out.got {
		if o >= uint64(len(im.want)) || text != im.want[o] {
			im.t.Fatalf("offset %d reads %q, which was never stored there", o, text)
		}
	}
	return out
}

// missing lists the offsets of [start, end) that were not read.
func (o outcome) missing(start uint64, end int) string {
	var list []string
	for i := start; i < uint64(end); i++ {
		if _, ok := o.got[i]; !ok {
			list = append(list, fmt.Sprint(i))
		}
	}
	return strings.Join(list, " ")
}

// TestRecover names how a log of twelve acknowledged messages, in files of four
// or so, is damaged while the broker is down, and what must come of it.
func TestRecover(t *testing.T) {
	tests := map[string]struct {
		journal bool // it is still there
		floor   uint64
		damage  func(im *image)
		class   Class
		missing string // offsets that cannot be read
		end     uint64
	}{
		"nothing, after a kill":   {journal: true, damage: func(*image) {}, end: 12},
		"nothing, and no journal": {damage: func(*image) {}, end: 12},
		"last batch torn, the journal has it": {
			journal: true, damage: func(im *image) { im.cut(im.last(), im.ends[len(im.ends)-2]-7) }, end: 12,
		},
		"last file gone, the journal has it": {
			journal: true, damage: func(im *image) { im.write(im.last(), nil) }, end: 12,
		},
		"every file gone, the journal has them": {
			journal: true, damage: func(im *image) {
				for _, f := range im.files {
					im.write(f, nil)
				}
			}, end: 12,
		},
		"last file of zeros, the journal has it": {
			journal: true, damage: func(im *image) { im.write(im.last(), make([]byte, len(im.read(im.last())))) }, class: Torn, end: 12,
		},
		"last batch torn, not known to be acknowledged": {
			damage: func(im *image) { im.cut(im.last(), im.ends[len(im.ends)-2]-7) }, class: Torn, missing: "11", end: 11,
		},
		"last batch torn below the floor": {
			floor: 12, damage: func(im *image) { im.cut(im.last(), im.ends[len(im.ends)-2]-7) }, class: Damaged, missing: "11", end: 11,
		},
		"garbage behind the last batch": {
			damage: func(im *image) {
				im.write(im.last(), append(im.read(im.last()), "twenty bytes of junk"...))
			}, class: Torn, end: 12,
		},
		"an unfinished write with a whole batch in it": {
			damage: func(im *image) {
				x := (&sender{producer: 6, session: 1}).batch(im.t, 1, 30)
				x.Stamp(batch.Stamp{Base: 13, Epoch: 1, AppendTime: 1, Synced: 12})
				im.write(im.last(), append(append(im.read(im.last()), make([]byte, 40)...), x...))
			}, class: Torn, end: 12,
		},
		"batch of another epoch in a closed file": {
			damage: func(im *image) {
				raw := im.read(im.files[0])
				_, at, err := segment.ParseHeader(raw)
				if err != nil {
					im.t.Fatal(err)
				}
				x := batch.Batch(raw[at+batch.Batch(raw[at:]).Len():])
				x = x[:x.Len()]
				x.Stamp(batch.Stamp{Base: x.Base(), Epoch: 9, AppendTime: x.AppendTime(), Synced: x.Synced()})
				im.write(im.files[0], raw)
			}, missing: "one", end: 12,
		},
		"zeros behind the last batch": {
			damage: func(im *image) { im.write(im.last(), append(im.read(im.last()), make([]byte, 5000)...)) }, class: Torn, end: 12,
		},
		"last batch rotten in front of its mark": {
			damage: func(im *image) { im.flip(im.last(), im.ends[len(im.ends)-2]-3) }, class: Damaged, missing: "11", end: 12,
		},
		"batch in the midst of the last file rotten": {
			damage: func(im *image) { im.flip(im.last(), im.ends[1]-3) }, class: Damaged, missing: "first of last", end: 12,
		},
		"bit of a closed file flipped": {
			journal: true, damage: func(im *image) { im.dropJournal(); im.flip(im.files[0], int64(len(im.read(im.files[0])))/3) }, missing: "one", end: 12,
		},
		"header of a closed file rotten": {
			damage: func(im *image) { im.flip(im.files[1], 20) }, end: 12,
		},
		"footer of a closed file rotten": {
			damage: func(im *image) { im.flip(im.files[1], int64(len(im.read(im.files[1])))-20) }, end: 12,
		},
		"closed file missing": {
			damage: func(im *image) { im.write(im.files[1], nil) }, class: Damaged, missing: "second file", end: 12,
		},
		"first file missing": {
			damage: func(im *image) { im.write(im.files[0], nil) }, class: Damaged, missing: "first file", end: 12,
		},
		"last file missing, below the floor": {
			floor: 12, damage: func(im *image) { im.write(im.last(), nil) }, class: Damaged, missing: "last file", end: 8,
		},
		"last file holds only its header": {
			floor: 8, damage: func(im *image) { im.cut(im.last(), im.ends[0]) }, missing: "last file", end: 8,
		},
		"last file empty": {
			floor: 8, damage: func(im *image) { im.cut(im.last(), 0) }, missing: "last file", end: 8,
		},
		"journal of three random bytes": {
			journal: true, damage: func(im *image) { im.write("/data/journal", []byte{7, 1, 9}) }, end: 12,
		},
		"journal empty": {
			journal: true, damage: func(im *image) { im.write("/data/journal", []byte{}) }, end: 12,
		},
		"clean marker of random bytes": {
			damage: func(im *image) { im.write("/data/wal/clean", []byte{7, 1, 9}) }, end: 12,
		},
		"strange files beside": {
			damage: func(im *image) {
				im.write(path.Join(path.Dir(im.last()), "00000000000000000000-0000000000000001.seg.bak"), []byte("x"))
				im.write(path.Join(path.Dir(im.last()), "core"), []byte("x"))
			}, end: 12,
		},
		"hint of another file": {
			damage: func(im *image) { im.write(segment.HintName(im.last()), []byte("no hint")) }, end: 12,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			im := record(t, 12, 700)
			if len(im.files) != 3 {
				t.Fatalf("%d files, the table is made for 3", len(im.files))
			}
			im.floor = test.floor
			if !test.journal {
				im.dropJournal()
			}
			want := test.missing
			switch want {
			case "first file":
				want = "0 1 2 3"
			case "second file":
				want = "4 5 6 7"
			case "last file":
				want = "8 9 10 11"
			case "first of last":
				want = "8"
			case "one":
				want = "1"
			}
			test.damage(im)
			first := im.open()
			if first.found.End != test.end || first.found.Class != test.class {
				t.Errorf("found %+v, want %v with end %d", first.found, test.class, test.end)
			}
			if got := first.missing(0, len(im.want)); got != want {
				t.Errorf("cannot read %q, want %q; %v", got, want, first.bad)
			}
			second := im.open()
			if second.found.End != first.found.End || second.missing(0, len(im.want)) != want {
				t.Errorf("the second start found %+v, the first %+v", second.found, first.found)
			}
		})
	}
}

// stride is how many bytes the tests below go on by: all of them, or with the
// race detector, which has nothing to find here, a sample.
func stride() int64 {
	if memory.Poison {
		return 13
	}
	return 1
}

// TestRecoverEveryTruncation cuts the only file of a log at every byte.
func TestRecoverEveryTruncation(t *testing.T) {
	const n = 5
	im := record(t, n, 1<<20)
	fresh := im.copies()
	for size := int64(0); size < int64(len(im.read(im.last()))); size += stride() {
		whole := uint64(0) // batches in front of the cut
		for whole < n && im.ends[whole+1] <= size {
			whole++
		}
		c := fresh(t)
		c.cut(c.last(), size)
		if out := c.open(); out.missing(0, n) != "" || out.found.Class == Damaged || !out.found.Proven {
			t.Fatalf("cut at %d with the journal: %+v, missing %q", size, out.found, out.missing(0, n))
		}
		for _, floor := range []uint64{0, whole, n} {
			c := fresh(t)
			c.dropJournal()
			c.cut(c.last(), size)
			c.floor = floor
			out := c.open()
			if out.found.End != whole || len(out.got) != int(whole) || (out.found.Class == Damaged) != (floor > whole) {
				t.Fatalf("cut at %d, floor %d: %+v, %d messages, want %d", size, floor, out.found, len(out.got), whole)
			}
			if again := c.open(); again.found.End != whole || len(again.got) != int(whole) {
				t.Fatalf("cut at %d, floor %d: the second start found %+v", size, floor, again.found)
			}
		}
	}
}

// TestRecoverEveryFlip flips a bit of every byte of the only file of a log.
func TestRecoverEveryFlip(t *testing.T) {
	const n = 5
	im := record(t, n, 1<<20)
	fresh := im.copies()
	for at := int64(0); at < int64(len(im.read(im.last()))); at += stride() {
		hit := "" // the message that the bit belongs to
		class := Clean
		for i := range n {
			if at >= im.ends[i] && at < im.ends[i+1] {
				hit, class = fmt.Sprint(i), Damaged
			}
		}
		if at >= im.ends[n] {
			class = Torn // the mark
		}
		c := fresh(t)
		c.flip(c.last(), at)
		if out := c.open(); out.missing(0, n) != "" || out.found.Class == Damaged {
			t.Fatalf("bit of byte %d, with the journal: %+v, missing %q", at, out.found, out.missing(0, n))
		}
		c = fresh(t)
		c.dropJournal()
		c.flip(c.last(), at)
		for range 2 {
			out := c.open()
			if out.missing(0, n) != hit || out.found.Class != class || out.found.End != n {
				t.Fatalf("bit of byte %d: %+v, missing %q, want %q and %v", at, out.found, out.missing(0, n), hit, class)
			}
			class = min(class, 2*(class/2)) // a torn mark was cut off by the first start
		}
	}
}

// TestRecoverEveryFlipOfTheJournal flips a bit of every byte that the journal
// has written, after a power loss that took the segment file.
func TestRecoverEveryFlipOfTheJournal(t *testing.T) {
	const n = 4
	im := record(t, n, 1<<20)
	fresh := im.copies()
	raw := im.read("/data/journal")
	size := len(raw)
	for size > 0 && raw[size-1] == 0 {
		size--
	}
	for at := int64(0); at < int64(size); at += stride() {
		if raw[at] == 0 && at%64 != 0 {
			continue // padding, most of it
		}
		c := fresh(t)
		c.write(c.last(), nil)
		c.flip("/data/journal", at)
		out := c.open()
		lost := len(strings.Fields(out.missing(0, n)))
		if lost > 1 && at >= journal.Block || lost > 0 && out.found.Proven && out.found.Class != Damaged && out.found.End == n {
			t.Fatalf("bit of byte %d of the journal: %+v, missing %q", at, out.found, out.missing(0, n))
		}
	}
}
