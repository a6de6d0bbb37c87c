package admin

import (
	"errors"
	"fmt"

	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// decided is err as somebody hears it who asked for a decision. Where it failed because nobody leads, or because an owner
// is away whom nobody replaces without a leader, it says so in words, with how many of the voters are seen: a majority of
// them is what is missing.
func (b *Board) decided(err error) error {
	is := func(c protocol.Code) bool { return errors.Is(err, &protocol.Error{Code: c}) }
	if !errors.Is(err, meta.ErrNotLeader) && !is(protocol.CodeNoLeader) && !is(protocol.CodeNotReady) {
		return err
	}
	if _, known := b.cfg.Meta.Leader(); known {
		return err
	}
	seen := map[state.StoreID]bool{b.cfg.Self().Store: true}
	for _, m := range b.cfg.Cluster.Members() {
		seen[m.Store] = seen[m.Store] || m.State == cluster.Alive
	}
	voters, there := 0, 0
	for _, s := range b.cfg.Meta.Servers() {
		if !s.Voter {
			continue
		}
		voters++
		if seen[s.Store] {
			there++
		}
	}
	return &protocol.Error{Code: protocol.CodeNoLeader, Text: leaderless(b.cfg.Name, there, voters), Hint: leaderlessHint}
}

// leaderless says that nobody leads, as a broker sees it.
func leaderless(broker string, seen, voters int) string {
	are := "are"
	if seen == 1 {
		are = "is"
	}
	return fmt.Sprintf("the cluster has no leader that broker %s knows of, and decides nothing: %d of %d voters %s seen, %d are needed",
		broker, seen, voters, are, voters/2+1)
}

const leaderlessHint = "`danube cluster status` tells which brokers are away: start them; if half of the voters or more are gone for good, " +
	"docs/runbook.md says what to do (Lost majority)"
