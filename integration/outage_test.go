//go:build linux

package integration

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/danubemq/danube/protocol"
)

// exported waits until the cold tier has all of a topic but what was appended last.
func (b *broker) exported(topic string, below uint64) {
	b.t.Helper()
	nothingMissing(b.t, readyWithin, func() string {
		if p := b.describe(topic).Partitions[0]; p.ColdEnd < below {
			return fmt.Sprintf("the cold tier has what lies below %d of %s, not %d", p.ColdEnd, topic, below)
		}
		return ""
	})
}

// TestColdTierAwayFillsTheDisk: while the cold tier is away the log grows until the disk is full. Then messages are refused
// as not stored, and what is there is read and acknowledged. All heals by itself when the cold tier is back: what waited is
// exported, the disk is free again, and nothing was lost on the way (A18).
func TestColdTierAwayFillsTheDisk(t *testing.T) {
	t.Parallel()
	s := newShare(t)
	o := tiered("shared_fs", s.url())
	o.dir = filepath.Join(volume(t, "50"), "data")
	b := startBroker(t, "n1", o)
	s.leave()
	n, refusal := fill(t, b, "kept", 0)
	if !errors.Is(refusal, &protocol.Error{Code: protocol.CodeStorageFull}) {
		t.Errorf("the refusal is %v", refusal)
	}
	b.holds("kept", n, sizeFull)
	nothingMissing(t, readyWithin, func() string {
		status, reasons := b.healthz()
		all := strings.Join(reasons, "; ")
		if status != "degraded" || !strings.Contains(all, "storage full") || !strings.Contains(all, "cold tier") {
			return fmt.Sprintf("health says %s: %s", status, all)
		}
		return ""
	})
	b.kill() // what waits is not forgotten, and a start needs no cold tier
	b.start()
	b.holds("kept", n, sizeFull)
	s.comeBack()
	sendEach(t, b.produce("kept"), n, 20, sizeFull)
	b.exported("kept", uint64(n+20))
	nothingMissing(t, readyWithin, func() string {
		if left := b.onDisk(); left > 8<<20 {
			return fmt.Sprintf("%d MiB are left on the disk", left>>20)
		}
		if status, reasons := b.healthz(); strings.Contains(strings.Join(reasons, "; "), "cold tier") {
			return fmt.Sprintf("health says %s: %q", status, reasons)
		}
		return ""
	})
	b.holds("kept", n+20, sizeFull)
}

// TestDeletedWhileTheColdTierIsAway: a topic that is deleted while the cold tier is away stays deleted, over a kill too. One
// of the same name begins at offset 0 with nothing of the old one, whose objects are waste (A44).
func TestDeletedWhileTheColdTierIsAway(t *testing.T) {
	t.Parallel()
	s := newShare(t)
	b := startBroker(t, "n1", tiered("shared_fs", s.url()))
	sendEach(t, b.produce("again"), 0, 30, sizeFull)
	b.exported("again", 30)
	objects := len(filesUnder(t, s.dir, func(path string, _ int64) bool { return strings.HasSuffix(path, ".seg") }))
	if objects == 0 {
		t.Fatal("nothing lies in the cold tier")
	}
	s.leave()
	admin := b.dial().Admin()
	if err := admin.TopicDelete(t.Context(), protocol.TopicArgs{Topic: "again"}); err != nil {
		t.Fatal(err)
	}
	b.kill()
	b.start()
	s.comeBack()
	if first := sendEach(t, b.produce("again"), 0, 1, 100); first != 0 {
		t.Errorf("the new topic begins at offset %d", first)
	}
	b.holds("again", 1, 100)
	nothingMissing(t, readyWithin, func() string {
		report, err := b.dial().Admin().ClusterAudit(t.Context())
		if err != nil {
			return err.Error()
		}
		if len(report.Findings) > 0 {
			return fmt.Sprintf("%+v", report.Findings)
		}
		for _, tally := range report.Tallies {
			if tally.Verdict == "waiting" && tally.Objects >= int64(objects) {
				return ""
			}
		}
		return fmt.Sprintf("the %d objects of the deleted topic are not known as waste: %+v", objects, report.Tallies)
	})
}
