package integration

import (
	"context"
	"math/rand/v2"
	"os"
	"time"

	"github.com/danubemq/danube/integration/history"
	"github.com/danubemq/danube/protocol"
)

// loseStore takes the cold tier away from all brokers for a while, as a mount that went away.
func (c *chaos) loseStore(rnd *rand.Rand, b *patientOfChaos) {
	c.fault(history.StoreAway, b, func() {
		c.share.leave()
		rest(c.t.Context(), time.Duration(3000+rnd.IntN(2000))*time.Millisecond)
		c.share.comeBack()
	})
}

// loseDisk kills a broker and deletes what it had. It comes back with an empty disk, as another store; the old one is
// given up and removed.
func (c *chaos) loseDisk(_ *rand.Rand, b *patientOfChaos) {
	c.fault(history.DiskGone, b, func() {
		old := c.fleet.storeOf(b.broker)
		b.kill()
		if err := os.RemoveAll(b.dir); err != nil {
			c.t.Error(err)
		}
		b.dir += "+" // a deletion that was not synced is undone when the power goes
		b.start()
		nothingMissing(c.t, readyWithin, func() string {
			ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
			defer cancel()
			if err := c.fleet.control().BrokerRemove(ctx, protocol.BrokerArgs{Broker: old, Lose: true}); err != nil {
				return "remove the store of the lost disk: " + err.Error()
			}
			return ""
		})
		nothingMissing(c.t, readyWithin, func() string {
			for _, s := range c.fleet.status().Brokers {
				if s.Name == b.name && s.State == "active" && s.Voter {
					return ""
				}
			}
			return "the new store has no vote yet"
		})
	})
}

// soundTiers holds the cold tier against the catalogs (I11): an audit lists the store, a verification reads every batch.
func (c *chaos) soundTiers() {
	if c.share == nil {
		return
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Minute)
	defer cancel()
	var report *protocol.AuditReport
	nothingMissing(c.t, readyWithin, func() (why string) { // a broker that has started begins with it a little later
		var err error
		if report, err = c.fleet.control().ClusterAudit(ctx); err != nil {
			return "I11: audit: " + err.Error()
		}
		return ""
	})
	for _, f := range report.Findings {
		if f.Verdict != "abandoned" && f.Verdict != "unknown" { // uploads of runs that were killed
			c.t.Errorf("I11: %+v", f)
		}
	}
	for _, topic := range c.topics {
		if topic.level != history.Object {
			continue // what a disk has taken along is found there, as it should be
		}
		r, err := c.fleet.control().TopicVerify(ctx, protocol.TopicArgs{Topic: topic.name, Partition: -1})
		if err != nil {
			c.t.Errorf("I11: verify %s: %v", topic.name, err)
			continue
		}
		for _, p := range r.Partitions {
			if len(p.Findings) > 0 {
				c.t.Errorf("I11: %s:%d: %+v", topic.name, p.Partition, p.Findings)
			}
		}
	}
}
