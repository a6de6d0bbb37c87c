package broker

import (
	"fmt"
	"slices"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// partingPoll is how often a stop looks whether others have what lay here alone.
const partingPoll = 50 * time.Millisecond

// exportRest brings what lies on this disk alone into the cold tier before the broker stops: what is still served here
// is exported, though producers are sent away already, and for what was handed over without its tail the next owner is
// waited for, which copies it from here. It takes no longer than that, and what is left then the log names: it can be
// read again when the broker is back.
func (b *Broker) exportRest(within time.Duration) {
	if b.depot == nil || within <= 0 || b.store.Err() != nil || b.cluster.Err() != nil {
		return
	}
	ctx, cancel := b.whileLed(within, sealLeaderless)
	defer cancel()
	began := time.Now()
	left, err := b.depot.Leave(ctx)
	tick := time.NewTicker(partingPoll)
	defer tick.Stop()
	handed := b.onlyHere(b.meta.View())
	for len(handed) > 0 && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
		handed = b.onlyHere(b.meta.View())
	}
	names := handed
	for _, id := range left {
		names = append(names, b.partitionName(id.Topic, id.Partition))
	}
	took := time.Since(began).Round(time.Millisecond)
	if len(names) == 0 {
		b.log.Info("the cold tier has all that was here", "took", took)
		return
	}
	slices.Sort(names)
	b.log.Warn("messages lie on this disk alone until this broker is back",
		"partitions", len(names), "among_them", names[:min(len(names), 5)], "took", took, "err", err)
}

// onlyHere names what others own of which something lies in this store alone, the cold tier counted.
func (b *Broker) onlyHere(view *state.View) (names []string) {
	self := b.self().Store
	for t := range view.Topics("") {
		for m := range view.Partitions(t.ID) {
			if m.Owner.Store != self && slices.ContainsFunc(m.Ranges, func(r state.Range) bool { return onlyIn(m, &r, self) }) {
				names = append(names, fmt.Sprintf("%s:%d", t.Name, m.Number))
			}
		}
	}
	return names
}

// onlyIn says whether something of a range lies in one store alone.
func onlyIn(m *state.Partition, r *state.Range, store state.StoreID) bool {
	return r.Status == state.RangeSealed && len(r.Stores) == 1 && r.Stores[0] == store && !m.Catalog.Covers(max(r.Start, m.LogStart), r.End)
}

func (b *Broker) partitionName(topic state.TopicID, n uint32) string {
	if t := b.meta.View().TopicByID(topic); t != nil {
		return fmt.Sprintf("%s:%d", t.Name, n)
	}
	return fmt.Sprintf("%s:%d", topic, n)
}
