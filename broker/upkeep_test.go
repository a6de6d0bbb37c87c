package broker_test

import (
	"testing"
	"time"

	"github.com/danubemq/danube/broker"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage/cold/upkeep"
)

// Small segments are merged while they are read, and what they were made of goes; what a
// deleted topic had goes whole, and its tombstone with it; retention counts what lies in
// the cold tier.
func TestColdTierIsKeptInOrder(t *testing.T) {
	t.Parallel()
	const messages = 60
	change, cold := inCold(t)
	n := start(t, t.TempDir(), func(c *broker.Config) {
		change(c)
		c.Storage.Durable.Upkeep = broker.Upkeep{
			Limits: upkeep.Limits{Most: 1 << 20, Ratio: 2, Enough: 1, Patience: 1, Settled: 1, Grace: time.Millisecond}, Every: 50 * time.Millisecond, Collect: 50 * time.Millisecond,
		}
	})
	c := dial(t, n)
	publishLarge(t, c, "small", 0, messages)
	coveredTo(t, n, "small", messages)
	eventually(t, "small segments are merged, and their objects are deleted", func() bool {
		return n.Partition("small", 0).Catalog.Len() <= 5 && len(objects(t, cold)) <= 5
	})
	wantLarge(t, c, "small", messages)
	keep := int64(512 << 10)
	if err := c.Admin().TopicSet(t.Context(), protocol.TopicSet{Topic: "small", RetentionBytes: &keep}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "retention gives up what lies in the cold tier", func() bool {
		m := n.Partition("small", 0)
		return m.LogStart > 0 && m.Catalog.Bytes() < 2<<20
	})
	if m := n.Partition("small", 0); m.LogStart > messages-16 {
		t.Errorf("retention of %d bytes leaves what lies above %d of %d", keep, m.LogStart, messages)
	}
	if err := c.Admin().TopicDelete(t.Context(), protocol.TopicArgs{Topic: "small", Partition: -1}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the objects of a deleted topic go", func() bool { return len(objects(t, cold)) == 0 && n.Tombstones() == 0 })
}
