package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/danubemq/danube/integration/objects"
	"github.com/danubemq/danube/protocol"
)

// tiered are brokers with a cold tier, segments of 1 MiB and room for few of them.
func tiered(mode, url string, more ...string) options {
	return options{env: append(more,
		"DANUBE_STORAGE_MODE="+mode, "DANUBE_STORAGE_DURABLE_URL="+url, "DANUBE_STORAGE_WAL_SEGMENT_BYTES=1MiB",
		"DANUBE_STORAGE_WAL_SEGMENT_AGE=1s", "DANUBE_STORAGE_LOCAL_RETENTION_BYTES=4MiB",
	)}
}

// share is a folder that is a cold tier, and can go away as a mount does.
type share struct {
	t   testing.TB
	dir string
}

func newShare(t testing.TB) *share {
	t.Helper()
	s := &share{t, filepath.Join(t.TempDir(), "share")}
	if err := os.Mkdir(s.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *share) url() string { return "file://" + s.dir }

func (s *share) leave() { s.rename(s.dir, s.dir+".away") }

// comeBack fails when anybody has written into the place where the share was.
func (s *share) comeBack() { s.rename(s.dir+".away", s.dir) }

func (s *share) rename(from, to string) {
	s.t.Helper()
	if err := os.Rename(from, to); err != nil {
		s.t.Error(err)
	}
}

// stores are the cold tiers that the tests run over.
func stores(t *testing.T, run func(t *testing.T, o options)) {
	t.Run("folder", func(t *testing.T) { run(t, tiered("shared_fs", "file://"+t.TempDir())) })
	t.Run("S3", func(t *testing.T) {
		s := objects.StartS3(t)
		var env []string
		for name, value := range s.Env {
			env = append(env, name+"="+value)
		}
		run(t, tiered("object_store", s.URL(s.Addr), env...))
	})
}

// onDisk is how long the segments of a broker are.
func (b *broker) onDisk() (sum int64) {
	b.t.Helper()
	files, err := filepath.Glob(filepath.Join(b.dir, "wal", "*", "*", "*.seg"))
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil {
			sum += info.Size()
		}
	}
	return sum
}

// TestColdTierIsReadBack: much more goes through than the disks may keep; a new consumer on another broker reads it from
// offset 0, byte for byte, while producing goes on, and a verification of all tiers finds nothing.
func TestColdTierIsReadBack(t *testing.T) {
	stores(t, func(t *testing.T, o options) {
		const size = 64 << 10
		n := max(scaled(1024), 256) // 64 MiB in full
		f := startCluster(t, 3, o)
		f.create("long", 1)
		p := f.produce("long")
		sendEach(t, p, 0, n, size)
		owner := f.owner("long", 0)
		nothingMissing(t, readyWithin, func() string {
			if b := owner.onDisk(); b > 6<<20 {
				return fmt.Sprintf("%d MiB are left on the owner's disk", b>>20)
			}
			return ""
		})
		other := f.others(owner)[0]
		sendEach(t, p, n, 20, size)
		other.holds("long", n+20, size)
		r, err := f.control().TopicVerify(t.Context(), protocol.TopicArgs{Topic: "long", Partition: -1})
		if err != nil || len(r.Partitions) != 1 || len(r.Partitions[0].Findings) > 0 || r.Partitions[0].Messages != uint64(n+20) {
			t.Errorf("verified: %+v, %v", r, err)
		}
		f.move("long", other)
		f.others(owner, other)[0].holds("long", n+20, size)
		if b := other.onDisk(); b > 6<<20 {
			t.Errorf("%d MiB on the disk of the broker that it was moved to", b>>20)
		}
	})
}

// TestObjectOutlivesItsDisk: at durability object the owner's process is killed under load and its disk deleted: what was
// acknowledged is read back, all of it, and no offset is in doubt.
func TestObjectOutlivesItsDisk(t *testing.T) {
	stores(t, func(t *testing.T, o options) {
		f := startCluster(t, 3, o)
		arg := protocol.TopicCreate{Topic: "sure", Config: protocol.TopicConfig{Durability: "object"}}
		if _, err := f.control().TopicCreate(t.Context(), arg); err != nil {
			t.Fatal(err)
		}
		owner := f.owner("sure", 0)
		tr := carry(t, f.door, "sure", 200)
		tr.flows(300)
		owner.kill()
		if err := os.RemoveAll(owner.dir); err != nil {
			t.Fatal(err)
		}
		tr.flows(300)
		heard := tr.proves(f.door)
		heard.inTurn(t)
		for _, g := range heard.gaps {
			t.Errorf("a gap: %+v", g)
		}
		for _, r := range f.partition("sure", 0).Ranges {
			if r.Status == "orphaned" || r.Status == "lost" {
				t.Errorf("range [%d, %d) is %s", r.Start, r.End, r.Status)
			}
		}
	})
}

// TestStopLeavesAllInTheBucket: a broker that stands alone is stopped in order, and then the messages on its disk are gone:
// every one is read from the store, the young ones too.
func TestStopLeavesAllInTheBucket(t *testing.T) {
	stores(t, func(t *testing.T, o options) {
		const n, size = 50, 1000
		o.env = append(o.env, "DANUBE_STORAGE_WAL_SEGMENT_AGE=1h")
		b := startBroker(t, "n1", o)
		sendEach(t, b.produce("last"), 0, n, size)
		b.stop(readyWithin)
		for _, file := range segments(t, b.dir) {
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		b.start()
		b.holds("last", n, size)
	})
}
