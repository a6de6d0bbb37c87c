package herald

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/danubemq/danube/meta/manifest"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/keys"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// place is a bucket that several clusters may come to.
type place struct {
	t   *testing.T
	dir string
	now time.Time
}

func newPlace(t *testing.T) *place {
	return &place{t: t, dir: t.TempDir(), now: time.Unix(1_700_000_000, 0)}
}

func (p *place) store() *cold.Store {
	p.t.Helper()
	s, err := cold.Open(p.t.Context(), cold.Config{URL: "file://" + p.dir})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			p.t.Error(err)
		}
	})
	return s
}

// broker is one of a cluster, with its herald.
type broker struct {
	*Herald
	p       *place
	s       *state.State
	leading bool
}

func (p *place) broker(cluster byte) *broker {
	p.t.Helper()
	b := &broker{p: p, s: state.New(), leading: true}
	h, err := New(Config{
		Store: p.store(), View: func() *state.View { return b.s.Freeze() }, Leading: func() bool { return b.leading },
		Self: state.StoreID{cluster}, Now: func() time.Time { return p.now },
	})
	if err != nil {
		p.t.Fatal(err)
	}
	b.Herald = h
	b.apply(&state.InitCluster{ID: [16]byte{cluster}, Name: "danube"})
	return b
}

func (b *broker) apply(c state.Command) {
	b.p.t.Helper()
	if r := b.s.Apply(b.s.Index()+1, c); r.Err != nil {
		b.p.t.Fatal(r.Err)
	}
}

// beat is a round that comes a minute later.
func (b *broker) beat() {
	b.p.t.Helper()
	b.p.now = b.p.now.Add(time.Minute)
	if err := b.Beat(b.p.t.Context()); err != nil {
		b.p.t.Fatal(err)
	}
}

// manifests are the names of those in the bucket.
func (p *place) manifests() []string {
	p.t.Helper()
	page, err := p.store().List(p.t.Context(), keys.Manifests, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	var names []string
	for _, o := range page.Objects {
		names = append(names, strings.TrimPrefix(o.Key, keys.Manifests))
	}
	return names
}

func (p *place) cluster() manifest.Beat {
	p.t.Helper()
	data, err := read(p.t.Context(), p.store(), keys.Cluster)
	if err != nil {
		p.t.Fatal(err)
	}
	b, err := manifest.DecodeBeat(data)
	if err != nil {
		p.t.Fatal(err)
	}
	return b
}

// The leader writes a manifest when something has changed, and that the cluster lives each time.
func TestLeaderWritesWhatHasChanged(t *testing.T) {
	p := newPlace(t)
	b := p.broker(1)
	b.beat()
	b.apply(&state.Tick{}) // another index, and nothing else
	b.beat()
	if got := p.manifests(); !slices.Equal(got, []string{"00000-00000000000000000001"}) {
		t.Errorf("manifests %q", got)
	}
	if got := p.cluster(); got.Cluster != [16]byte{1} || !got.Time.Equal(p.now) || got.Index != 2 || got.Store != [16]byte{1} {
		t.Errorf("cluster %+v", got)
	}
	for range 4 {
		b.apply(&state.CreateNamespace{Name: "n" + string(rune('a'+b.s.Index()))})
		b.beat()
	}
	if got := p.manifests(); !slices.Equal(got, []string{"00000-00000000000000000004", "00000-00000000000000000005", "00000-00000000000000000006"}) {
		t.Errorf("manifests %q: the newest three stay", got)
	}
	data, err := read(t.Context(), p.store(), keys.Manifests+p.manifests()[2])
	if err != nil {
		t.Fatal(err)
	}
	if m, err := manifest.Decode(data); err != nil || m.Index != 6 || len(m.Namespaces) != 5 || m.Time != p.now.UnixMilli() {
		t.Errorf("%+v, %v", m, err)
	}
}

// Another leader takes over: what the one before wrote is not written again under another name, and is tidied up.
func TestNextLeaderKnowsWhatIsThere(t *testing.T) {
	p := newPlace(t)
	b := p.broker(1)
	for range 3 {
		b.apply(&state.CreateNamespace{Name: "n" + string(rune('a'+b.s.Index()))})
		b.beat()
	}
	next := p.broker(1)
	next.s = b.s
	next.beat() // of the same version: there is one, with another time
	next.apply(&state.CreateNamespace{Name: "z"})
	next.beat()
	if got := p.manifests(); len(got) != keep || got[keep-1] != "00000-00000000000000000005" {
		t.Errorf("manifests %q", got)
	}
}

// Only the newest of an older history stay, whatever comes after: an operator has still to look (R22).
func TestOlderHistoriesStay(t *testing.T) {
	p := newPlace(t)
	b := p.broker(1)
	b.beat()
	b.apply(&state.NewHistory{History: 1})
	for range 5 {
		b.apply(&state.CreateNamespace{Name: "n" + string(rune('a'+b.s.Index()))})
		b.beat()
	}
	if got := p.manifests(); len(got) != 1+keep || got[0] != "00000-00000000000000000001" {
		t.Errorf("manifests %q", got)
	}
}

// A follower writes nothing, and sees whose the bucket is.
func TestFollowerLooksAlone(t *testing.T) {
	p := newPlace(t)
	leader, follower := p.broker(1), p.broker(1)
	follower.leading = false
	follower.beat()
	if len(p.manifests()) != 0 || follower.Mine() {
		t.Error("a follower wrote, or has a bucket that nobody has yet")
	}
	leader.beat()
	follower.beat()
	if !follower.Mine() || !leader.Mine() {
		t.Error("the bucket is not seen to be ours")
	}
	p.now = p.now.Add(4 * time.Minute)
	if follower.Mine() {
		t.Error("what was seen four minutes ago still counts")
	}
}

// Who finds another cluster, or a newer history, writes nothing and may delete nothing.
func TestBucketOfOthersIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		cluster byte
		history uint16
		says    string
	}{
		"another cluster": {2, 0, "belongs to cluster 02"},
		"a newer history": {1, 1, "rebuilt elsewhere"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			b := p.broker(1)
			b.beat()
			was := p.manifests()
			theirs := manifest.Beat{Cluster: [16]byte{c.cluster}, History: c.history, Time: p.now}
			if err := p.store().Replace(t.Context(), keys.Cluster, theirs.Encode()); err != nil {
				t.Fatal(err)
			}
			b.apply(&state.CreateNamespace{Name: "new"})
			err := b.Beat(t.Context())
			if taken, ok := errors.AsType[*TakenError](err); !ok || taken.Found.History != c.history || !strings.Contains(err.Error(), c.says) {
				t.Errorf("says %v", err)
			}
			if b.Mine() || b.Problem() == nil || !slices.Equal(p.manifests(), was) || p.cluster().Cluster != theirs.Cluster || p.cluster().History != theirs.History {
				t.Errorf("mine=%t, problem %v, manifests %q, cluster %+v", b.Mine(), b.Problem(), p.manifests(), p.cluster())
			}
			// It was a mistake, and is mended.
			if err := p.store().Delete(t.Context(), keys.Cluster); err != nil {
				t.Fatal(err)
			}
			b.beat()
			if !b.Mine() || b.Problem() != nil {
				t.Errorf("mine=%t, problem %v", b.Mine(), b.Problem())
			}
		})
	}
}

// An earlier history's object is the cluster's own from before it was restored: it is replaced, and counts once it is.
func TestOlderHistoryIsReplaced(t *testing.T) {
	p := newPlace(t)
	b, follower := p.broker(1), p.broker(1)
	follower.leading = false
	b.beat()
	for _, x := range []*broker{b, follower} {
		x.apply(&state.NewHistory{History: 1})
	}
	follower.beat()
	if follower.Mine() {
		t.Error("an object of the history before counts")
	}
	b.beat()
	follower.beat()
	if !follower.Mine() || p.cluster().History != 1 {
		t.Errorf("mine=%t, cluster %+v", follower.Mine(), p.cluster())
	}
}

// Two clusters that come to an empty bucket at once: one is the first, the other finds it.
func TestOneOfTwoNewClustersIsFirst(t *testing.T) {
	p := newPlace(t)
	a, b := p.broker(1), p.broker(2)
	there, err := b.look(t.Context(), b.s.Cluster()) // b looks before a writes
	if err != nil || there {
		t.Fatal(there, err)
	}
	a.beat()
	if err := b.Herald.beat(t.Context(), b.s.Freeze(), there); !errors.Is(err, cold.Exists) {
		t.Errorf("written over another cluster: %v", err)
	}
	if _, taken := errors.AsType[*TakenError](b.Beat(t.Context())); !taken || p.cluster().Cluster != [16]byte{1} {
		t.Errorf("%v, cluster %+v", b.Problem(), p.cluster())
	}
}

// What cannot be read belongs to nobody: it is written anew; but of a newer release it is left alone.
func TestObjectThatCannotBeRead(t *testing.T) {
	p := newPlace(t)
	b := p.broker(1)
	b.beat()
	if err := p.store().Replace(t.Context(), keys.Cluster, []byte("rotten\n")); err != nil {
		t.Fatal(err)
	}
	b.beat()
	if !b.Mine() || p.cluster().Cluster != [16]byte{1} {
		t.Error("a rotten object stayed")
	}
	line := []byte(`{"version":2}`)
	if err := p.store().Replace(t.Context(), keys.Cluster, fmt.Appendf(nil, "%s\n%08x\n", line, crc32.Checksum(line, crc32.MakeTable(crc32.Castagnoli)))); err != nil {
		t.Fatal(err)
	}
	err := b.Beat(t.Context())
	if _, newer := errors.AsType[*manifest.VersionError](err); !newer || b.Mine() || b.Problem() == nil {
		t.Errorf("%v, mine=%t", err, b.Mine())
	}
}

// Run goes on after failures and ends with its context; before there is a cluster it asks for nothing.
func TestRunGoesOn(t *testing.T) {
	p := newPlace(t)
	ctx, cancel := context.WithCancel(t.Context())
	var rounds atomic.Int32
	reg := prometheus.NewRegistry()
	h, err := New(Config{
		Store: p.store(), View: func() *state.View { return state.New().Freeze() }, Leading: func() bool { return true },
		Log: slog.New(slog.DiscardHandler), Metrics: reg,
		Wait: func(ctx context.Context, _ time.Duration) error {
			if rounds.Add(1) == 3 {
				cancel()
			}
			return ctx.Err()
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	h.Run(ctx)
	if rounds.Load() != 3 || len(p.manifests()) != 0 {
		t.Errorf("%d rounds, manifests %q", rounds.Load(), p.manifests())
	}
	if families, err := reg.Gather(); err != nil || len(families) != 0 {
		t.Errorf("a herald that ended leaves %v, %v", families, err)
	}
	if _, err := New(Config{}); err == nil {
		t.Error("a herald of nothing")
	}
}
