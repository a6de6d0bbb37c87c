//go:build figures && linux

package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/integration/objects"
	"github.com/danubemq/danube/protocol"
)

// bucket is a plain build over an S3 server of the test.
func bucket(t testing.TB, more ...string) options {
	t.Helper()
	s := objects.StartS3(t)
	env := append(more, "DANUBE_STORAGE_MODE=object_store", "DANUBE_STORAGE_DURABLE_URL="+s.URL(s.Addr))
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	return options{build: &build{}, env: env}
}

// mount is a plain build over a folder that all brokers see.
func mount(t testing.TB) options {
	t.Helper()
	return options{build: &build{}, env: []string{"DANUBE_STORAGE_MODE=shared_fs", "DANUBE_STORAGE_DURABLE_URL=file://" + t.TempDir()}}
}

// peak is the most resident memory that the broker ever had, in MiB.
func (b *broker) peak() float64 {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.process.cmd.Process.Pid))
	if err != nil {
		b.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		b.t.Fatal(err)
	}
	return float64(kib) / 1024
}

// stream sends numbered messages, many at once, and returns when all are acknowledged.
func stream(ctx context.Context, p *client.Producer, from, n, size int) error {
	var failed atomic.Pointer[error]
	for i := range n {
		err := p.SendAsync(ctx, client.Message{Payload: numbered(from+i, size)}, func(_ client.Result, err error) {
			if err != nil {
				failed.Store(&err)
			}
		})
		if err != nil {
			return err
		}
	}
	if err := p.Flush(ctx); err != nil {
		return err
	}
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// readsBack reads numbered messages from offset 0 with a subscription of its own until it has n of them.
func readsBack(ctx context.Context, d door, topic string, n, size int) error {
	r, err := d.dial().Reader(ctx, topic, client.ReaderConfig{From: protocol.Position{Kind: protocol.Earliest}})
	if err != nil {
		return err
	}
	defer r.Close()
	for i := range n {
		m, err := r.Next(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("message %d: %w", i, err)
		case m.Offset != uint64(i) || string(m.Payload) != string(numbered(i, size)):
			return fmt.Errorf("message %d is %.40q at offset %d", i, m.Payload, m.Offset)
		}
	}
	return nil
}

// TestFigureColdTier: 2 GiB go through three brokers with segments of 16 MiB of which the disks may keep 64 MiB; a new consumer on
// another broker reads them from offset 0 while producing goes on.
func TestFigureColdTier(t *testing.T) {
	const size = 64 << 10
	n := max(scaled(2<<30/size), 4096) // 256 MiB at least: more than the disks keep
	f := startCluster(t, 3, bucket(t, "DANUBE_STORAGE_WAL_SEGMENT_BYTES=16MiB", "DANUBE_STORAGE_LOCAL_RETENTION_BYTES=64MiB"))
	f.create("long", 1)
	p := f.produce("long")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	from := time.Now()
	if err := stream(ctx, p, 0, n, size); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d MiB written, %.0f MiB/s", n*size>>20, float64(n*size>>20)/time.Since(from).Seconds())
	owner := f.owner("long", 0)
	const kept = 64 + 16
	eventually(t, readyWithin, "the disk keeps what it may", func() bool { return owner.onDisk() <= kept<<20 })
	other := f.others(owner)[0]
	producing, stop := context.WithCancel(ctx)
	var beside sync.WaitGroup
	disk := int64(0)
	beside.Go(func() { // returns when producing ends
		for i := n; producing.Err() == nil; i += 16 {
			if err := stream(ctx, p, i, 16, size); err != nil {
				t.Errorf("produce beside the reader: %v", err)
				return
			}
			disk = max(disk, owner.onDisk())
			rest(producing, 50*time.Millisecond)
		}
	})
	from = time.Now()
	err := readsBack(ctx, other.door, "long", n, size)
	took := time.Since(from)
	stop()
	beside.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("read back at %.0f MiB/s", float64(n*size>>20)/took.Seconds())
	within(t, "local segments while it is read", float64(disk)/(1<<20), kept, "MiB")
	for _, b := range f.brokers {
		within(t, "most memory of "+b.name, b.peak(), 300, "MiB")
	}
}

// The pause of a producer over a planned move with a cold tier, at the 99th percentile; nothing is copied but the tail.

func TestFigureMoveOverAFolder(t *testing.T) { moves(t, mount(t), 150) }

func TestFigureMoveOverABucket(t *testing.T) { moves(t, bucket(t), 150) }

// TestFigureObject: at durability object an acknowledgement takes at most the cut interval and twice a put at the median,
// and 50,000 messages of 1 KiB a second are acknowledged.
func TestFigureObject(t *testing.T) {
	s := objects.StartS3(t)
	var env []string
	for name, value := range s.Env {
		env = append(env, name+"="+value)
	}
	b := startBroker(t, "n1", options{build: &build{}, env: append(env,
		"DANUBE_STORAGE_MODE=object_store", "DANUBE_STORAGE_DURABLE_URL="+s.URL(s.Addr))})
	config := &protocol.TopicConfig{Durability: "object"}
	p, err := b.dial().Producer(t.Context(), "/default/sure", client.ProducerConfig{Create: config, MaxPending: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	var times []time.Duration
	for i := range scaled(1000) + 50 {
		from := time.Now()
		if _, err := p.Send(t.Context(), client.Message{Payload: numbered(i, 1024)}); err != nil {
			t.Fatal(err)
		}
		times = append(times, time.Since(from))
	}
	put := b.putTime()
	slices.Sort(times)
	t.Logf("a put takes %.3g ms", put*1000)
	within(t, "acknowledgement at durability object, median", times[len(times)/2].Seconds()*1000, 250+2*put*1000, "ms")
	n := scaled(2_000_000)
	from := time.Now()
	if err := stream(t.Context(), p, 0, n, 1024); err != nil {
		t.Fatal(err)
	}
	rate := float64(n) / time.Since(from).Seconds()
	t.Logf("%.0f messages a second", rate)
	within(t, "a message of 1 KiB at durability object", 1e6/rate, 1e6/50_000, "us")
}

// putTime is the mean time of a put in seconds, as the broker counted.
func (b *broker) putTime() float64 {
	b.t.Helper()
	res, err := http.Get(b.url() + "/metrics")
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	var sum, count float64
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		for of, into := range map[string]*float64{"_sum": &sum, "_count": &count} {
			if name == "danube_cold_request_seconds"+of+`{op="put"}` {
				if _, err := fmt.Sscan(value, into); err != nil {
					b.t.Fatal(err)
				}
			}
		}
	}
	if count == 0 {
		b.t.Fatal("no put was counted")
	}
	return sum / count
}

// TestFigureDrivers: the drivers of the clouds cost an idle broker little memory.
func TestFigureDrivers(t *testing.T) {
	idle := func(name, tags string) float64 {
		b := startBroker(t, name, options{build: &build{tags: tags}})
		rest(t.Context(), 3*time.Second)
		return b.resident()
	}
	with, without := idle("with", ""), idle("without", "nos3,nogcs,noazure")
	t.Logf("%.3g MiB with, %.3g MiB without", with, without)
	within(t, "memory of an idle broker for the drivers of the clouds", with-without, 15, "MiB")
}
