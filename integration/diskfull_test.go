//go:build linux

package integration

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// sizeFull is the size of the messages that fill the disk.
const sizeFull = 150 << 10

// volume mounts a file system of so many MiB and unmounts it when the test is over.
func volume(t testing.TB, mib string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("danube-test", dir, "tmpfs", 0, "size="+mib+"m"); err != nil {
		text := "a small file system cannot be mounted (" + err.Error() + "): run as root"
		if os.Getenv("CI") == "true" {
			t.Fatal(text)
		}
		t.Skip(text)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// fill sends until the broker refuses, and returns what was acknowledged and how it refused.
func fill(t testing.TB, b *broker, topic string, from int) (n int, refusal error) {
	t.Helper()
	p, err := b.dial().Producer(t.Context(), topic, client.ProducerConfig{
		Create: &protocol.TopicConfig{}, SendTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 {
		_, err := p.Send(t.Context(), client.Message{Payload: numbered(from+i, sizeFull)})
		if err != nil {
			return i, err
		}
	}
	t.Fatal("the disk never got full")
	return 0, nil
}

// healthz is what the broker says of itself.
func (b *broker) healthz() (status string, reasons []string) {
	b.t.Helper()
	type health struct {
		Status  string
		Reasons []string
	}
	res, err := http.Get(b.url() + "/healthz")
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	body := make([]byte, 64<<10)
	n, _ := res.Body.Read(body) // the end of a short answer
	h := parse[health](b.t, result{stdout: body[:n]})
	return h.Status, h.Reasons
}

// TestDiskFull fills a volume of 50 MB with messages: a clear refusal that may be tried again, reading and acknowledging
// go on, health says so, a restart works while it is full, and when space returns all goes on without one (A76, A12c, A77).
func TestDiskFull(t *testing.T) {
	t.Parallel()
	dir := volume(t, "50")
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 12<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	b := startBroker(t, "n1", options{dir: filepath.Join(dir, "data"), env: []string{"DANUBE_STORAGE_WAL_SEGMENT_BYTES=1MiB"}})
	n, refusal := fill(t, b, "full", 0)
	if !errors.Is(refusal, &protocol.Error{Code: protocol.CodeStorageFull}) {
		t.Errorf("the refusal is %v", refusal)
	}
	t.Logf("%d messages of %d bytes fit; then: %v", n, sizeFull, refusal)
	serves := func() {
		t.Helper()
		b.holds("full", n, sizeFull)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		cl := b.dial()
		defer cl.Close()
		k, err := cl.Consumer(ctx, "full", client.ConsumerConfig{Subscription: "s", From: protocol.Position{Kind: protocol.Earliest}})
		if err != nil {
			t.Fatalf("subscribe on a full disk: %v", err)
		}
		m, err := k.Receive(ctx)
		if err == nil {
			err = k.AckConfirmed(ctx, m)
		}
		if err != nil {
			t.Fatalf("consume on a full disk: %v", err)
		}
		status, reasons := b.healthz()
		if status != "degraded" || !strings.Contains(strings.Join(reasons, ";"), "storage full") {
			t.Errorf("health says %s: %q", status, reasons)
		}
	}
	serves()
	for range 3 {
		b.restart()
		if _, refusal := fillOne(t, b, n); refusal != nil && !errors.Is(refusal, &protocol.Error{Code: protocol.CodeStorageFull}) {
			t.Errorf("after a restart on the full disk: %v", refusal)
		} else if refusal == nil {
			n++
		}
		b.holds("full", n, sizeFull)
	}
	b.stop(20 * time.Second)
	b.start()
	b.holds("full", n, sizeFull)
	if leftovers := filesUnder(t, dir, func(path string, _ int64) bool { return strings.HasSuffix(path, ".tmp") }); len(leftovers) > 2 {
		t.Errorf("temporary files pile up: %q", leftovers)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	sendEach(t, b.produce("full"), n, 50, sizeFull)
	b.holds("full", n+50, sizeFull)
	if status, reasons := b.healthz(); strings.Contains(strings.Join(reasons, ";"), "storage full") {
		t.Errorf("with space free again health says %s: %q", status, reasons)
	}
	b.restart()
	b.holds("full", n+50, sizeFull)
}

func fillOne(t testing.TB, b *broker, i int) (uint64, error) {
	t.Helper()
	cl := b.dial()
	defer cl.Close()
	p, err := cl.Producer(t.Context(), "full", client.ProducerConfig{SendTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Send(t.Context(), client.Message{Payload: numbered(i, sizeFull)})
	return r.Offset, err
}
