package broker_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// move moves a partition and waits until the target serves it.
func (f *fleet) move(topic string, to int) {
	f.t.Helper()
	was := f.nodes[to].Partition(topic, 0).Epoch
	if err := f.nodes[to].Move(f.t.Context(), topic, 0, fmt.Sprintf("n%d", to+1)); err != nil {
		f.t.Fatal(err)
	}
	eventually(f.t, "the target serves", func() bool { return f.nodes[to].Serves(topic, 0) > was })
}

// readAll reads a topic from its beginning to its end as a fresh reader, and
// returns the payloads with what was said of gaps.
func readAll(t testing.TB, c *client.Client, topic string) (out []string, gaps []*client.GapError) {
	t.Helper()
	r, err := c.Reader(t.Context(), topic, client.ReaderConfig{From: earliest, ToEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	last := int64(-1)
	for {
		m, err := r.Next(ctx)
		if gap, is := errors.AsType[*client.GapError](err); is {
			gaps = append(gaps, gap)
			continue
		}
		if errors.Is(err, io.EOF) {
			return out, gaps
		}
		if err != nil {
			t.Fatalf("read %s after %d messages: %v", topic, len(out), err)
		}
		if int64(m.Offset) <= last {
			t.Fatalf("offset %d after %d", m.Offset, last)
		}
		last = int64(m.Offset)
		out = append(out, string(m.Payload))
	}
}

// wantNumbered fails unless got are the messages that publish numbers 0..n-1.
func wantNumbered(t testing.TB, got []string, n int) {
	t.Helper()
	for i := range min(len(got), n) {
		if got[i] != fmt.Sprintf("m%d", i) {
			t.Fatalf("message %d is %q", i, got[i])
		}
	}
	if len(got) != n {
		t.Fatalf("%d messages, want %d", len(got), n)
	}
}

// holders are the members that a partition's ranges list, and how many ranges there are.
func (f *fleet) holders(via int, topic string) (names map[string]bool, ranges int) {
	m := f.nodes[via].Partition(topic, 0)
	names = map[string]bool{}
	for _, r := range m.Ranges {
		for _, id := range r.Stores {
			names[f.nodes[via].BrokerName(id)] = true
		}
	}
	return names, len(m.Ranges)
}

// segments are the segment files of a member.
func (m *member) segments(t testing.TB) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(m.dir, "wal", "*", "*", "*.seg"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// After a move the new owner serves what the old one holds, at once; then it has
// copied it, and the old one's files go (R16).
func TestHistoryFollowsAMove(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, func(c *broker.Config) { c.Storage.SegmentBytes = 16 << 10 })
	c := f.dial(0)
	publish(t, c, "moved", 0, 3000)
	from := f.owner("moved", 0)
	f.move("moved", 1-from)
	consume(t, f.dial(1-from), "moved/s", 0, 3000)
	got, gaps := readAll(t, f.dial(from), "moved")
	wantNumbered(t, got, 3000)
	if len(gaps) > 0 {
		t.Errorf("gaps %v", gaps)
	}
	eventually(t, "the history lies with the new owner alone", func() bool {
		names, _ := f.holders(1-from, "moved")
		return len(names) == 1 && names[fmt.Sprintf("n%d", 2-from)]
	})
	eventually(t, "the old owner has no files of it", func() bool { return len(f.nodes[from].segments(t)) == 0 })
	publish(t, c, "moved", 3000, 3100)
	got, _ = readAll(t, c, "moved")
	wantNumbered(t, got, 3100)
	consume(t, c, "moved/s", 3000, 3100)
}

// A store keeps what the metadata list for it, however long nobody copies it,
// while the files of another partition, which was struck, go (R16).
func TestListedHistoryIsKept(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, nil)
	c := f.dial(0)
	publish(t, c, "listed", 0, 100)
	publish(t, c, "struck", 0, 100)
	from := f.owner("listed", 0)
	if f.owner("struck", 0) != from {
		f.move("struck", from)
	}
	eventually(t, "no history is brought", func() bool { return f.nodes[1-from].HoldHistory("listed", 0) })
	f.move("listed", 1-from)
	eventually(t, "the old owner has let go", func() bool { return f.nodes[from].Serves("listed", 0) == 0 })
	folder := f.nodes[from].Partition("struck", 0).Topic.String()
	there := func() bool {
		return slices.ContainsFunc(f.nodes[from].segments(t), func(name string) bool { return strings.Contains(name, folder) })
	}
	eventually(t, "there are files of what is to be struck", there)
	f.move("struck", 1-from)
	eventually(t, "the old owner has no files of what was struck", func() bool { return !there() })
	if data, err := f.nodes[from].ReadHeld(t.Context(), "listed", 0, false); err != nil || len(data) == 0 {
		t.Errorf("what is listed and was not copied: %d bytes, %v", len(data), err)
	}
}

// What lies only on a broker that stopped is pending until it is back, and said so; what is new goes on (R15, section 4).
func TestHistoryOfAStoppedBrokerIsPending(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 3, nil)
	c := f.dial(0)
	publish(t, c, "kept", 0, 500)
	from := f.owner("kept", 0)
	f.stop(from)
	eventually(t, "another broker serves", func() bool { o := f.owner("kept", 0); return o >= 0 && o != from })
	owner := f.owner("kept", 0)
	c = f.dial(owner)
	publish(t, c, "kept", 500, 600)
	r, err := c.Reader(t.Context(), "kept", client.ReaderConfig{From: protocol.Position{Kind: protocol.AtOffset, Offset: 550}})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := r.Next(t.Context()); err != nil || m.Offset != 550 {
		t.Fatalf("read what is new: %v, %v", m.Offset, err)
	}
	r.Close()
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err = c.Reader(short, "kept", client.ReaderConfig{From: earliest})
	if name := fmt.Sprintf("broker n%d", from+1); err == nil || !errors.Is(err, protocol.Errorf(protocol.CodePending, "")) || !strings.Contains(err.Error(), name) {
		t.Fatalf("read what is away: %v", err)
	}
	cons := consumer(t, c, "kept", client.ConsumerConfig{Subscription: "s", From: earliest})
	eventually(t, "the subscription says what it waits for", func() bool {
		d, err := c.Admin().SubscriptionDescribe(t.Context(), protocol.SubArgs{Topic: "kept", Subscription: "s"})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(d.Partitions[0].State, fmt.Sprintf("broker n%d", from+1)) && strings.Contains(d.Partitions[0].State, "[0, 500)")
	})
	f.start(from)
	for i := range uint64(600) {
		if m := receive(t, cons); m.Offset != i {
			t.Fatalf("got offset %d, want %d", m.Offset, i)
		}
	}
	closeConsumer(t, cons)
}

// A copy that a stop cut short goes on with the difference, and nothing is listed that is not here.
func TestCopyGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, func(c *broker.Config) { c.Storage.SegmentBytes = 64 << 10 })
	c := f.dial(0)
	publishLarge(t, c, "large", 0, 300) // 10 MiB
	from := f.owner("large", 0)
	to := 1 - from
	f.move("large", to)
	eventually(t, "something is copied", func() bool { return len(f.nodes[to].segments(t)) > 20 })
	f.kill(to)
	f.start(to)
	eventually(t, "all of it lies with the new owner", func() bool {
		m := f.nodes[to].Partition("large", 0)
		names, _ := f.holders(to, "large")
		return m.State == state.Open && len(names) == 1 && names[fmt.Sprintf("n%d", to+1)]
	})
	got, gaps := readAll(t, f.dial(to), "large")
	if len(got) != 300 || len(gaps) > 0 {
		t.Fatalf("%d messages, gaps %v", len(got), gaps)
	}
	for i := range got {
		if got[i] != string(large(i)) {
			t.Fatalf("message %d is another", i)
		}
	}
	if _, err := os.Stat(filepath.Join(f.nodes[to].dir, "wal")); err != nil {
		t.Fatal(err)
	}
}

// Many moves leave few ranges: what one store holds whole is one.
func TestManyMovesLeaveFewRanges(t *testing.T) {
	t.Parallel()
	f := newFleet(t, 2, nil)
	c := f.dial(0)
	publish(t, c, "there-and-back", 0, 10)
	for i := range 30 {
		f.move("there-and-back", 1-f.owner("there-and-back", 0))
		publish(t, c, "there-and-back", 10+i, 11+i)
	}
	eventually(t, "few ranges are left", func() bool {
		names, n := f.holders(0, "there-and-back")
		return n < 4 && len(names) == 1
	})
	got, _ := readAll(t, c, "there-and-back")
	wantNumbered(t, got, 40)
}
