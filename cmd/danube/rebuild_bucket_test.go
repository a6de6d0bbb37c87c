package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/cmd/danube/fail"
	"github.com/danubemq/danube/cmd/danube/offline"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/manifest"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/bundle"
	"github.com/danubemq/danube/storage/cold/fetch"
	"github.com/danubemq/danube/storage/cold/keys"
	"github.com/danubemq/danube/storage/disk"
	"github.com/danubemq/danube/storage/segment"
)

// lost is a cluster of which only the bucket is left, a folder here, and what was written to it.
type lost struct {
	t     *testing.T
	dir   string
	store *cold.Store
	s     *state.State
	owner state.Owner
	topic state.TopicID
	next  []uint64            // offset, by partition
	said  map[string]string   // partition and offset → payload
	sent  []segment.Producers // by partition
	uniq  uint64
}

func (l *lost) url() string { return "file://" + l.dir + "?prefix=danube/" }

func newLost(t *testing.T) *lost {
	l := &lost{t: t, dir: t.TempDir(), s: state.New(), topic: state.TopicID{7, 7}, next: make([]uint64, 2), said: map[string]string{}, sent: make([]segment.Producers, 2)}
	var err error
	if l.store, err = cold.Open(t.Context(), cold.Config{URL: l.url()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.store.Close() })
	l.must(&state.InitCluster{ID: [16]byte{1, 2}, Name: "lost"})
	l.register()
	l.must(&state.CreateNamespace{Name: "shop"})
	l.must(&state.CreateTopic{ID: l.topic, Name: "/shop/orders", At: 5, Owners: []state.Owner{l.owner, l.owner}, Settings: state.TopicSettings{
		Partitions: 2, Reliable: true, Durability: state.LevelObject, RetentionTime: 100 * time.Hour, Limits: state.Limits{Producers: 3},
	}})
	l.must(&state.CreateTopic{ID: state.TopicID{8}, Name: "/shop/empty", Settings: state.TopicSettings{Partitions: 1, Reliable: true, Durability: state.LevelLocal}})
	l.must(&state.CreateTopic{ID: state.TopicID{9}, Name: "/shop/gone", Settings: state.TopicSettings{Partitions: 1, Reliable: true, Durability: state.LevelLocal}})
	l.must(&state.DeleteTopic{ID: state.TopicID{9}, At: 9})
	l.must(&state.CreateSubscription{Topic: l.topic, Name: "audit", Type: state.Shared, Start: []uint64{0, 0}, Options: state.SubscriptionOptions{MaxUnacked: 17}})
	return l
}

func (l *lost) must(c state.Command) state.Result {
	l.t.Helper()
	r := l.s.Apply(l.s.Index()+1, c)
	if r.Err != nil || r.Entry(0) != nil {
		l.t.Fatalf("%T: %v %v", c, r.Err, r.Entry(0))
	}
	return r
}

func (l *lost) register() {
	l.uniq++
	r := l.must(&state.RegisterStore{Store: state.StoreID{3}, Broker: "n1", Nonce: [16]byte{byte(l.uniq)}})
	l.owner = state.Owner{Store: state.StoreID{3}, Incarnation: r.Incarnation}
}

// restart begins the next epoch of both partitions.
func (l *lost) restart() {
	l.register()
	for n := range uint32(2) {
		p := l.s.Partition(l.topic, n)
		l.must(&state.OpenPartitions{Owner: l.owner, Entries: []state.PartitionOpen{{Topic: l.topic, Partition: n, Epoch: p.Epoch, End: l.next[n]}}})
	}
}

// segment is the next one of a partition, of so many batches of two messages. Of what is not kept nothing is remembered.
func (l *lost) segment(n uint32, batches int, keep bool) ([]byte, catalog.Segment) {
	l.t.Helper()
	p, base := l.s.Partition(l.topic, n), l.next[n]
	h := segment.Header{
		Cluster: [16]byte{1, 2}, Store: l.owner.Store, TopicID: l.topic, Topic: "/shop/orders", Partition: n, Epoch: p.Epoch, FirstEpoch: p.Epoch, Base: base,
		Created: noon().UnixMilli(),
	}
	data, err := h.Append(nil)
	if err != nil {
		l.t.Fatal(err)
	}
	sum, next := segment.NewSummary(data, base), base
	for range batches {
		var w batch.Builder
		for i := range uint64(2) {
			text := fmt.Sprintf("partition %d offset %d epoch %d", n, next+i, p.Epoch)
			if keep {
				l.said[fmt.Sprintf("%d:%d", n, next+i)] = text
			}
			w.Add(&batch.Message{Payload: []byte(text)})
		}
		b, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: 42, Session: 1, Sequence: next})
		if err != nil {
			l.t.Fatal(err)
		}
		batch.Batch(b).Stamp(batch.Stamp{Base: next, Epoch: p.Epoch, AppendTime: int64(1000 + next)})
		data = append(data, b...)
		sum.Add(b)
		l.sent[n].Add(b)
		next += 2
	}
	data = sum.Footer().Append(data, &l.sent[n])
	f := sum.Facts()
	if keep {
		l.next[n] = next
	}
	return data, catalog.Segment{Start: f.First, End: f.End, Bytes: int64(len(data)), CRC: segment.Sum(data), FirstTime: f.FirstTime, LastTime: f.LastTime}
}

func (l *lost) put(key string, data []byte) {
	l.t.Helper()
	if _, err := l.store.Put(l.t.Context(), key, cold.Bytes(data)); err != nil {
		l.t.Fatal(err)
	}
}

// own puts a segment under a name of its own.
func (l *lost) own(n uint32, data []byte, seg *catalog.Segment) {
	l.uniq++
	seg.Object = catalog.Object{Kind: catalog.Own, Epoch: l.s.Partition(l.topic, n).Epoch, Incarnation: l.owner.Incarnation, Unique: l.uniq}
	l.put(keys.Of(catalog.NewName(l.topic, n, seg.Object, seg.Start, seg.End)), data)
}

func (l *lost) commit(n uint32, seg catalog.Segment) {
	l.t.Helper()
	p := l.s.Partition(l.topic, n)
	l.must(&state.UpdatePartitions{Entries: []state.PartitionUpdate{{Topic: l.topic, Partition: n, Epoch: p.Epoch, Ceiling: seg.End, Floor: seg.End}}})
	l.must(&state.CommitSegments{Owner: l.owner, Entries: []state.SegmentCommit{{
		Topic: l.topic, Partition: n, Epoch: p.Epoch, Epochs: p.Epochs(seg.Start, seg.End), Segment: seg,
	}}})
}

func (l *lost) export(n uint32, batches int) (data []byte, seg catalog.Segment) {
	data, seg = l.segment(n, batches, true)
	l.own(n, data, &seg)
	l.commit(n, seg)
	return data, seg
}

// cut exports a segment of each partition in one object.
func (l *lost) cut() {
	l.uniq++
	o := catalog.Object{Kind: catalog.Cut, Store: l.owner.Store, Incarnation: l.owner.Incarnation, Number: l.uniq, Unique: 99}
	x := bundle.Index{Cluster: [16]byte{1, 2}, Store: o.Store, Incarnation: o.Incarnation, Number: o.Number}
	var data []byte
	var segs []catalog.Segment
	for n := range uint32(2) {
		b, seg := l.segment(n, 2, true)
		seg.Object, seg.Position = o, int64(len(data))
		x.Pieces = append(x.Pieces, bundle.Piece{
			Topic: l.topic, Partition: n, CRC: seg.CRC, Start: seg.Start, End: seg.End, Epoch: l.s.Partition(l.topic, n).Epoch, Position: seg.Position, Bytes: seg.Bytes,
		})
		data, segs = append(data, b...), append(segs, seg)
	}
	l.put(keys.Of(catalog.Name{Object: o}), x.Append(data))
	for n, seg := range segs {
		l.commit(uint32(n), seg)
	}
}

// tell writes what the cluster's leader writes beside the data, so long ago.
func (l *lost) tell(ago time.Duration) {
	l.t.Helper()
	v := l.s.Freeze()
	at := time.Now().Add(-ago)
	data, err := manifest.Of(v, at.UnixMilli()).Encode()
	if err != nil {
		l.t.Fatal(err)
	}
	l.put(keys.Manifest{History: v.Cluster().History, Index: v.Index()}.String(), data)
	l.beat(ago)
}

func (l *lost) beat(ago time.Duration) {
	c := l.s.Cluster()
	if err := l.store.Replace(l.t.Context(), keys.Cluster, manifest.Beat{Cluster: c.ID, Name: c.Name, History: c.History, Time: time.Now().Add(-ago)}.Encode()); err != nil {
		l.t.Fatal(err)
	}
}

// filledLost is a cluster with all that a bucket may hold: epochs, a cut, an object that replaced two, one that was never
// committed, one that is torn, one of another cluster, a manifest in the middle of it all.
func filledLost(t *testing.T) *lost {
	l := newLost(t)
	one, a := l.export(0, 2)
	two, b := l.export(0, 1)
	l.export(1, 3)
	l.merge(one, two, a, b)
	l.restart()
	l.cut()
	l.must(&state.MoveCursors{Entries: []state.CursorDelta{{Subscription: 1, Partition: 0, Epoch: 2, Prefix: 3, Acked: state.Offsets{{Start: 5, End: 7}}}}})
	l.tell(time.Hour)
	l.export(0, 2)
	data, seg := l.segment(1, 1, false)
	seg.Object = catalog.Object{Kind: catalog.Own, Epoch: 2, Incarnation: 1, Unique: 555}
	l.put(keys.Of(catalog.NewName(l.topic, 1, seg.Object, seg.Start, seg.End)), data[:len(data)-5]) // torn
	l.export(1, 1)
	other := bytes.Clone(data)
	h, n, err := segment.ParseHeader(other)
	if err != nil {
		t.Fatal(err)
	}
	h.Cluster, h.TopicID = [16]byte{0xee}, [16]byte{0xdd}
	head, err := h.Append(nil)
	if err != nil || len(head) != n {
		t.Fatal(err)
	}
	foreign := segment.NewSummary(head, seg.Start)
	_, err = segment.Dump(bytes.NewReader(other), int64(len(other)), func(st segment.Stretch) error {
		if st.Kind == segment.Whole {
			foreign.Add(st.Batch)
			head = append(head, st.Batch...)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	l.put(keys.Segment{Topic: [16]byte{0xdd}, Partition: 1, Start: seg.Start, End: seg.End, Epoch: 2, Incarnation: 1, Unique: 1}.String(), foreign.Footer().Append(head, nil))
	return l
}

// merge puts one object in the place of the first two of partition 0, which stay in the bucket.
func (l *lost) merge(one, two []byte, a, b catalog.Segment) {
	l.t.Helper()
	h, n, err := segment.ParseHeader(one)
	if err != nil {
		l.t.Fatal(err)
	}
	out := bytes.Clone(one[:n])
	sum := segment.NewSummary(out, h.Base)
	for _, data := range [][]byte{one, two} {
		_, err := segment.Dump(bytes.NewReader(data), int64(len(data)), func(st segment.Stretch) error {
			if st.Kind == segment.Whole {
				sum.Add(st.Batch)
				out = append(out, st.Batch...)
			}
			return nil
		})
		if err != nil {
			l.t.Fatal(err)
		}
	}
	out = sum.Footer().Append(out, &l.sent[0])
	made := catalog.Segment{Start: a.Start, End: b.End, Bytes: int64(len(out)), CRC: segment.Sum(out), FirstTime: a.FirstTime, LastTime: b.LastTime}
	l.own(0, out, &made)
	l.must(&state.SwapSegments{Owner: l.owner, At: 1, Entries: []state.SegmentSwap{{
		Topic: l.topic, Epoch: 1, Inputs: []catalog.Input{{Start: a.Start, Object: a.Object}, {Start: b.Start, Object: b.Object}}, Outputs: []catalog.Segment{made},
	}}})
}

// viewCatalog is a partition's catalog as fetch asks for it.
type viewCatalog struct {
	v *state.View
	p *state.Partition
}

func (c viewCatalog) piece(s catalog.Segment) fetch.Piece {
	piece := fetch.Piece{
		Start: s.Start, End: s.End, Key: keys.Of(catalog.NewName(c.p.Topic, c.p.Number, s.Object, s.Start, s.End)), Position: s.Position, Bytes: s.Bytes,
		CRC: s.CRC, FirstTime: s.FirstTime, LastTime: s.LastTime,
	}
	for _, e := range c.p.Epochs(max(s.Start, c.p.LogStart), s.End) {
		piece.Epochs = append(piece.Epochs, segment.EpochStart(e))
	}
	return piece
}

func (c viewCatalog) At(n uint64) (fetch.Piece, uint64, error) {
	if s, ok := c.p.Catalog.Find(n); ok {
		return c.piece(s), c.v.Index(), nil
	}
	return fetch.Piece{}, c.v.Index(), fetch.ErrUncovered
}

func (c viewCatalog) AtTime(ms int64) (fetch.Piece, uint64, error) {
	for s := range c.p.Catalog.All() {
		if s.LastTime >= ms {
			return c.piece(s), c.v.Index(), nil
		}
	}
	return fetch.Piece{}, c.v.Index(), fetch.ErrUncovered
}

// rebuiltView opens the metadata of a data directory as its broker does.
func rebuiltView(t *testing.T, dir string) *state.View {
	t.Helper()
	store, err := storage.Identity(disk.OS(), dir)
	if err != nil {
		t.Fatal(err)
	}
	n, err := meta.Open(t.Context(), meta.Config{Dir: filepath.Join(dir, "meta"), Store: store, Bootstrapped: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	}()
	return n.View()
}

// read reads all of a topic that the catalogs of a view name, payloads by partition and offset.
func (l *lost) read(v *state.View) map[string]string {
	t := l.t
	t.Helper()
	tier, err := fetch.Open(fetch.Config{Store: l.store})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := tier.Close(); err != nil {
			t.Error(err)
		}
	}()
	got := map[string]string{}
	for p := range v.Partitions(l.topic) {
		r := tier.Partition(fetch.ID{Topic: l.topic, Partition: p.Number}, viewCatalog{v, p}).Reader(p.LogStart)
		for {
			view, err := r.Next(t.Context(), 1<<20)
			if errors.Is(err, fetch.ErrUncovered) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for data := view.Data; len(data) > 0; {
				b, err := batch.Check(data, segment.Limits())
				if err != nil {
					t.Fatal(err)
				}
				d := batch.NewDecoder(segment.Limits())
				if err := d.Reset(b); err != nil {
					t.Fatal(err)
				}
				for n := b.Base(); n < b.End(); n++ {
					var m batch.Message
					if more, err := d.Next(&m); err != nil || !more {
						t.Fatalf("offset %d: %v, %v", n, more, err)
					}
					got[fmt.Sprintf("%d:%d", p.Number, n)] = string(m.Payload)
				}
				data = data[b.Len():]
			}
			view.Release()
		}
		r.Close()
	}
	return got
}

// TestRebuildFromTheBucketAlone: all metadata are gone, and every disk. Every message that was exported is read again at its offset,
// topics have their settings and subscriptions what they had acknowledged.
func TestRebuildFromTheBucketAlone(t *testing.T) {
	l := filledLost(t)
	dir := filepath.Join(t.TempDir(), "new")
	dry, _ := offlineCommand(t, fail.Done, "cluster", "rebuild", "--from", l.url(), "--data-dir", dir, "--dry-run", "-o", "json")
	var rep offline.Rebuilt
	if err := json.Unmarshal([]byte(dry), &rep); err != nil || rep.History != 1 || len(rep.Partitions) != 2 || len(rep.Problems) != 2 || rep.Subscriptions != 1 || !rep.DryRun {
		t.Errorf("%v, a dry run says\n%s", err, dry)
	}
	if entries, err := os.ReadDir(dir); err == nil {
		t.Errorf("a dry run made %v", entries)
	}
	objects := l.listed()
	offlineCommand(t, fail.Usage, "cluster", "rebuild", "--from", l.url(), "--data-dir", dir) // nobody confirms
	if !slices.Equal(l.listed(), objects) {
		t.Error("nothing was confirmed, and the bucket has changed")
	}
	said, _ := offlineCommand(t, fail.Done, "cluster", "rebuild", "--from", l.url(), "--data-dir", dir, "--yes")
	for _, want := range []string{"made anew from " + "file://" + l.dir, "in history 1", "2 objects: held by others", "of another cluster: ee", "no footer", "as of "} {
		if !strings.Contains(said, want) {
			t.Errorf("says\n%swithout %q", said, want)
		}
	}
	v := rebuiltView(t, dir)
	if got := l.read(v); !reflect.DeepEqual(got, l.said) {
		t.Errorf("read %d messages of %d:\n%v\n%v", len(got), len(l.said), got, l.said)
	}
	was, is := l.s.Topic("/shop/orders"), v.Topic("/shop/orders")
	if is == nil || is.ID != was.ID || is.Settings != was.Settings || is.CreatedAt != was.CreatedAt {
		t.Errorf("topic %+v, was %+v", is, was)
	}
	if v.Topic("/shop/empty") == nil || v.Topic("/shop/gone") != nil || v.Namespace("shop") == nil || v.Cluster().ID != l.s.Cluster().ID || v.Cluster().Name != "lost" || !v.Auditing() {
		t.Errorf("cluster %+v", v.Cluster())
	}
	sub := v.Subscription(l.topic, "audit")
	if sub == nil || sub.Type != state.Shared || sub.Options.MaxUnacked != 17 || sub.Cursors[0].Prefix != 3 || !sub.Cursors[0].Acknowledged(6) || sub.Cursors[0].Acknowledged(7) {
		t.Errorf("subscription %+v", sub)
	}
	for n := range uint32(2) {
		p := v.Partition(l.topic, n)
		if p.ColdEnd() != p.OpenRange().Start || p.OpenRange().Start < l.next[n]+state.HistoryGap || p.Epoch != 1<<48|1 {
			t.Errorf("partition %+v", p)
		}
	}
	// The bucket has a new owner.
	if _, says := offlineCommand(t, fail.Failed, "cluster", "rebuild", "--from", l.url(), "--data-dir", t.TempDir(), "--yes"); !strings.Contains(says, "was heard of") {
		t.Errorf("a second rebuild says %s", says)
	}
	if after := l.listed(); !slices.Equal(slices.DeleteFunc(after, func(k string) bool { return k == keys.History(1) }), objects) {
		t.Errorf("the bucket holds\n%q, held\n%q", after, objects)
	}
}

func (l *lost) listed() (all []string) {
	l.t.Helper()
	page, err := l.store.List(l.t.Context(), "", nil)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, o := range page.Objects {
		all = append(all, o.Key)
	}
	return all
}

// TestRebuildWithoutManifest goes by the objects: every message again, and what objects do not say is named.
func TestRebuildWithoutManifest(t *testing.T) {
	l := filledLost(t)
	dir := t.TempDir()
	said, _ := offlineCommand(t, fail.Done, "cluster", "rebuild", "--from", l.url(), "--data-dir", dir, "--yes", "--without-manifest")
	if !strings.Contains(said, "subscriptions and what they acknowledged: there are none") {
		t.Errorf("says %s", said)
	}
	v := rebuiltView(t, dir)
	if got := l.read(v); !reflect.DeepEqual(got, l.said) {
		t.Errorf("read %d messages of %d", len(got), len(l.said))
	}
	if topic := v.Topic("/shop/orders"); topic == nil || topic.Settings.Partitions != 2 || topic.Settings.Durability != state.LevelLocal {
		t.Errorf("topic %+v", topic)
	}
}

// TestRebuildGoesOnWithANewerHistory: what a rebuilt cluster lost again is rebuilt again, in the history after.
func TestRebuildGoesOnWithANewerHistory(t *testing.T) {
	l := filledLost(t)
	for history := 1; history <= 2; history++ {
		said, _ := offlineCommand(t, fail.Done, "cluster", "rebuild", "--from", l.url(), "--data-dir", t.TempDir(), "--yes")
		if !strings.Contains(said, fmt.Sprintf("in history %d", history)) {
			t.Errorf("rebuild %d says %s", history, said)
		}
		l.beat(time.Hour) // of a cluster that does not know of the rebuild
	}
}

// TestRebuildRefusesBuckets that it must leave alone.
func TestRebuildRefusesBuckets(t *testing.T) {
	l := newLost(t)
	l.export(0, 1)
	dir := t.TempDir()
	for name, c := range map[string]struct {
		do   func()
		code int
		says string
	}{
		"a cluster that lives":  {func() { l.beat(4 * time.Minute) }, fail.Failed, `("lost"), which was heard of 4m`},
		"a clock that is wrong": {func() { l.beat(-time.Hour) }, fail.Failed, "one of two clocks is wrong"},
		"a rebuild under way": {func() {
			l.beat(time.Hour)
			l.put(keys.History(1), []byte("x"))
		}, fail.Done, "in history 2"},
	} {
		c.do()
		out, says := offlineCommand(t, c.code, "cluster", "rebuild", "--from", l.url(), "--data-dir", dir, "--dry-run")
		if !strings.Contains(out+says, c.says) {
			t.Errorf("%s: says %s%s", name, out, says)
		}
	}
	empty, unused := t.TempDir(), t.TempDir()
	if s, err := cold.Open(t.Context(), cold.Config{URL: "file://" + empty}); err != nil {
		t.Fatal(err)
	} else if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{
		"file://" + empty: "holds no segments that can be read", "file://" + unused: "is its file system mounted?", "s4://bucket": "no driver for s4", "s3://key:secret@bucket": "holds credentials",
	} {
		code := fail.Usage
		if strings.HasSuffix(from, empty) {
			code = fail.Failed
		}
		_, says := offlineCommand(t, code, "cluster", "rebuild", "--from", from, "--data-dir", dir, "--yes")
		if !strings.Contains(says, want) || strings.Contains(says, "secret@") {
			t.Errorf("%s: says %s", from, says)
		}
	}
	if entries, err := os.ReadDir(unused); err != nil || len(entries) > 0 {
		t.Errorf("in a folder that is no store there are %v, %v", entries, err)
	}
	b := &offline.Bucket{Store: l.store}
	if err := b.Unchanged(context.Background()); err == nil || !strings.Contains(err.Error(), "it has written there meanwhile") {
		t.Errorf("of a cluster that wrote meanwhile: %v", err)
	}
	b.History = 0
	if err := b.Claim(t.Context(), offline.Broker{}, noon()); !errors.Is(err, cold.Exists) {
		t.Errorf("a history was begun twice: %v", err)
	}
}
