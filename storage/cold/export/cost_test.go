package export

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	metacatalog "github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/cold/plan"
	"github.com/danubemq/danube/storage/cold/upkeep"
	"github.com/danubemq/danube/storage/excerpt"
	"github.com/danubemq/danube/storage/segment"
)

// rewrite makes `go test -update` write the table of docs/operations.md anew.
var rewrite = flag.Bool("update", false, "rewrite the table in docs/operations.md")

// What S3 Standard costs in us-east-1, in USD.
const (
	perThousandPuts = 0.005
	perThousandGets = 0.0004
	perGBMonth      = 0.023
)

const (
	rate  = 1e6 // bytes a second that are produced, in all partitions together
	month = 30 * 24 * time.Hour
)

// scaled is by how much lengths and limits are smaller than those that the test speaks of: how many objects there are depends
// on their ratio alone.
func scaled(partitions int) int64 { return 200 / int64(partitions) }

// meter is a partition into which a message comes twenty times a second.
type meter struct {
	id     ID
	object bool
	began  time.Time
	bytes  int   // of a message
	file   int64 // bytes of a whole file

	mu   sync.Mutex
	next uint64 // end of the catalog
}

const beat = 50 * time.Millisecond

// end is how many messages there are by now.
func (m *meter) end() uint64 { return uint64(time.Since(m.began) / beat) }

func (m *meter) ID() ID { return m.id }

func (m *meter) Facts() (Facts, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := Facts{Epoch: 1, Next: m.next, End: m.end(), Sealed: m.next, Object: m.object}
	f.Bytes = int64(f.End-f.Next) * int64(m.bytes)
	f.Oldest = m.began.Add(time.Duration(f.Next+1) * beat)
	file := uint64(min(m.file/int64(m.bytes), int64(time.Minute/beat))) // messages of a file: it is closed by length or by age
	if sealed := (f.Next/file + 1) * file; sealed <= f.End {
		f.Sealed, f.SealedBytes = sealed, int64(sealed-f.Next)*int64(m.bytes)
	}
	return f, nil
}

func (m *meter) Cut(_ context.Context, from, to uint64, most int64) (*excerpt.Segment, error) {
	h := segment.Header{TopicID: m.id.Topic, Partition: m.id.Partition, Epoch: 1, FirstEpoch: 1, Base: from}
	data, err := h.Append(nil)
	if err != nil {
		return nil, err
	}
	sum := segment.NewSummary(data, from)
	for n := from; n < to && (n == from || int64(n+1-from)*int64(m.bytes) <= most); n++ {
		var w batch.Builder
		w.Add(&batch.Message{Payload: make([]byte, max(0, m.bytes-batch.HeaderSize-12))})
		b, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: 1, Session: 1, Sequence: n})
		if err != nil {
			return nil, err
		}
		batch.Batch(b).Stamp(batch.Stamp{Base: n, Epoch: 1, AppendTime: int64(n)})
		data = append(data, b...)
		sum.Add(b)
	}
	data = sum.Footer().Append(data, nil)
	return excerpt.Whole(excerpt.Bytes(data), int64(len(data)))
}

// exported runs an exporter for a while and returns its own counters: puts, and segments by partition and second.
func exported(t *testing.T, partitions int, object bool, during time.Duration) (puts, segments float64) {
	t.Helper()
	reg := prometheus.NewRegistry()
	b := newBucket(t)
	meters, scale := map[ID]*meter{}, scaled(partitions)
	e, err := Open(Config{
		Store: b.store, Metrics: reg,
		Plan: plan.Config{CutBytes: 4 << 20 / scale, BundleMost: 64 << 20 / scale},
		Commit: func(_ context.Context, entries []Entry) []error {
			for _, x := range entries {
				m := meters[x.ID]
				m.mu.Lock()
				m.next = x.Segment.End
				m.mu.Unlock()
			}
			return make([]error, len(entries))
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for n := range partitions {
		m := &meter{id: named(n), object: object, began: time.Now(), file: 64 << 20 / scale, bytes: int(rate / float64(scale) / float64(partitions) * beat.Seconds())}
		meters[m.id] = m
		e.Add(m)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.Run(ctx) }) // returns when ctx ends
	for range during / beat {
		wait(beat)
		for id := range meters {
			e.Changed(id)
		}
	}
	families, err := reg.Gather()
	cancel()
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			switch f.GetName() {
			case "danube_export_step_seconds":
				if m.Label[0].GetValue() == "put" {
					puts = float64(m.Histogram.GetSampleCount())
				}
			case "danube_export_segments_total":
				segments += m.Counter.GetValue()
			}
		}
	}
	_ = b.store.Close()
	return puts, segments
}

// compacted is what upkeep asks for while what was exported becomes large segments.
type compacted struct{ puts, gets float64 }

// compact lets segments come in as the exporter made them and merges as a keeper does, for so long.
func compact(partitions int, object bool, every, during time.Duration) (out compacted) {
	bytes := int64(rate / float64(partitions) * every.Seconds())
	list := make([]upkeep.Partition, partitions)
	for n := range list {
		list[n] = upkeep.Partition{Topic: [16]byte{byte(n), 1}, Mine: true, Epoch: 1, Ranges: []upkeep.Range{{End: 1 << 60, Epochs: []upkeep.Epoch{{Epoch: 1}}}}}
	}
	const chunk = 8 << 20 // of a read
	ceil := func(n int64) float64 { return float64((n + chunk - 1) / chunk) }
	limits, unique := upkeep.Limits{}, uint64(0)
	round := time.Minute
	for at := every; at <= during; at += every {
		unique++
		for n := range list {
			o := metacatalog.Object{Kind: metacatalog.Own, Epoch: 1, Incarnation: 1, Unique: unique}
			s := metacatalog.Segment{Start: unique, End: unique + 1, Bytes: bytes, FirstTime: at.Milliseconds(), LastTime: at.Milliseconds()}
			if object && partitions > 1 {
				o = metacatalog.Object{Kind: metacatalog.Cut, Store: [16]byte{1}, Incarnation: 1, Number: unique, Unique: 1}
				s.Position = int64(n) * bytes
			}
			s.Object = o
			list[n].Catalog = list[n].Catalog.Add(s)
		}
		if at%round >= every {
			continue
		}
		var merges []upkeep.Merge
		for _, p := range list {
			merges = append(merges, limits.Merges(p, at.Milliseconds(), func(metacatalog.Segment) bool { return false })...)
		}
		for _, job := range limits.Jobs(merges) {
			read := map[metacatalog.Object]bool{}
			for i := range job.Merges {
				m := &job.Merges[i]
				for _, s := range m.Inputs {
					if s.Object.Kind == metacatalog.Cut && read[s.Object] {
						continue // another of the job has read it for this one too
					}
					read[s.Object] = true
					out.gets += ceil(s.Bytes)
				}
				out.puts++
				out.gets += ceil(m.Bytes) // read back
				unique++
				p := &list[m.Partition.Topic[0]]
				p.Catalog = p.Catalog.Replace(m.Start(), m.End(), []metacatalog.Segment{{
					Start: m.Start(), End: m.End(), Bytes: m.Bytes, FirstTime: m.Inputs[0].FirstTime, LastTime: m.Inputs[len(m.Inputs)-1].LastTime,
					Object: metacatalog.Object{Kind: metacatalog.Own, Epoch: 1, Incarnation: 1, Unique: unique},
				}})
			}
		}
	}
	return out
}

// TestCostOfAMegabyteASecond: what a month of 1 MB/s costs at each level, counted by the exporter's own counters and by what upkeep
// plans, is what docs/operations.md says.
func TestCostOfAMegabyteASecond(t *testing.T) {
	var b strings.Builder
	b.WriteString("| level | partitions | PUT by export, a GiB | PUT, GET by compaction, a GiB | requests a month | USD a month |\n|---|---|---|---|---|---|\n")
	for _, object := range []bool{false, true} {
		for _, partitions := range []int{1, 10} {
			level, during, upkeepFor := "`local`", 10*time.Minute+time.Second, 4*time.Hour
			if object {
				level, during, upkeepFor = "`object`", time.Minute, 65*time.Minute
			}
			var puts, segments float64
			synctest.Test(t, func(t *testing.T) { puts, segments = exported(t, partitions, object, during) })
			every := time.Duration(float64(during) / (segments / float64(partitions))).Round(10 * time.Millisecond)
			c := compact(partitions, object, every, upkeepFor)
			gib := func(d time.Duration) float64 { return rate * d.Seconds() / (1 << 30) }
			p, cp, cg := puts/gib(during), c.puts/gib(upkeepFor), c.gets/gib(upkeepFor)
			monthly := gib(month)
			usd := monthly / 1000 * ((p+cp)*perThousandPuts + cg*perThousandGets)
			fmt.Fprintf(&b, "| %s | %d | %s | %s, %s | %s | %.2f |\n", level, partitions, number(p), number(cp), number(cg), number(monthly*(p+cp+cg)), usd)
		}
	}
	stored := rate * (24 * time.Hour).Seconds() / 1e9 * perGBMonth
	fmt.Fprintf(&b, "\nStorage comes on top: what is kept of a day of 1 MB/s is 86.4 GB, %.2f USD a month.\n", stored)
	checkPage(t, b.String())
}

// number is rounded to two digits.
func number(n float64) string {
	unit := 1.0
	for ; n/unit >= 100; unit *= 10 {
	}
	for ; n > 0 && n/unit < 10 && unit > 0.01; unit /= 10 {
	}
	s := fmt.Sprintf("%.2f", float64(int64(n/unit+0.5))*unit)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

const (
	pageBegin = "<!-- cost: made by `go test ./storage/cold/export -run Cost -update` -->\n"
	pageEnd   = "<!-- end of cost -->\n"
)

func checkPage(t *testing.T, want string) {
	t.Helper()
	name := filepath.Join("..", "..", "..", "docs", "operations.md")
	page, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(page), pageBegin)
	is, after, whole := strings.Cut(rest, pageEnd)
	if !found || !whole {
		t.Fatalf("%s has no place for the table", name)
	}
	if *rewrite {
		if err := os.WriteFile(name, []byte(before+pageBegin+want+pageEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	says, counted := strings.Fields(is), strings.Fields(want)
	same := len(says) == len(counted)
	for i := range counted {
		same = same && alike(says[i], counted[i])
	}
	if !same {
		t.Errorf("docs/operations.md says\n%sit is\n%s", is, want)
	}
}

// alike says whether two words are the same, or numbers within a tenth: which of two things that happen at one moment
// comes first is not settled.
func alike(a, b string) bool {
	x, errX := strconv.ParseFloat(strings.Trim(a, ","), 64)
	y, errY := strconv.ParseFloat(strings.Trim(b, ","), 64)
	if errX != nil || errY != nil {
		return a == b
	}
	return math.Abs(x-y) <= math.Max(x, y)/10
}
