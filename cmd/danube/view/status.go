package view

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/protocol"
)

// Status prints the state of the cluster, what is not well with it, and what to type about that.
func Status(w io.Writer, s protocol.Status) error {
	leader := s.Leader
	if leader == "" {
		leader = "none known to " + s.Broker
	}
	fmt.Fprintf(w, "cluster     %s (%s)", s.Cluster, s.ClusterID)
	if s.History > 0 {
		fmt.Fprintf(w, ", history %d", s.History)
	}
	fmt.Fprintf(w, "\nanswered    %s (%s)\nleader      %s\nready       %s\ntopics      %s\n", s.Broker, s.Release, leader, render.YesNo(s.Ready), render.Grouped(s.Topics))
	if s.Durability != "" {
		fmt.Fprintf(w, "durability  %s\n", strings.TrimPrefix(s.Durability, "durability "))
	}
	for _, reason := range s.Degraded {
		fmt.Fprintf(w, "degraded    %s\n", reason)
	}
	for _, reason := range unwell(s) {
		fmt.Fprintf(w, "degraded    %s\n", reason)
	}
	statusLists(w, s)
	for _, hint := range statusHints(s) {
		fmt.Fprintf(w, "hint        %s\n", hint)
	}
	fmt.Fprintln(w)
	t := render.Table{Header: []string{"broker", "clients", "state", "seen", "votes", "partitions", "only copies", "applied"}}
	for _, b := range byName(s.Brokers) {
		t.Add(b.Name, b.Address, b.State, seen(b), votes(b), fmt.Sprint(b.Partitions), fmt.Sprint(b.OnlyCopies), applied(b))
	}
	return t.Print(w)
}

// mostNamed bounds how many ranges or partitions of one kind a person is told of; -o json has all of them.
const mostNamed = 3

// statusLists names what is orphaned and what is moving.
func statusLists(w io.Writer, s protocol.Status) {
	for i, r := range s.Orphans {
		if i == mostNamed {
			fmt.Fprintf(w, "orphaned    and %d more: danube topic describe %s; -o json lists them all\n", len(s.Orphans)-i, r.Topic)
			break
		}
		on := "on no broker that is known"
		if len(r.Brokers) > 0 {
			on = "on broker " + strings.Join(r.Brokers, " and ")
		}
		fmt.Fprintf(w, "orphaned    %s of %s, %s\n", render.Offsets(r.Start, r.End), PartitionName(r.Topic, r.Partition), on)
	}
	for i, m := range s.Moves {
		if i == mostNamed {
			fmt.Fprintf(w, "moving      and %d more: danube topic describe %s; -o json lists them all\n", len(s.Moves)-i, m.Topic)
			break
		}
		fmt.Fprintf(w, "moving      %s from %s to %s\n", PartitionName(m.Topic, m.Partition), m.From, m.To)
	}
}

// lagging is how many entries of the metadata a broker may be behind before it is said.
const lagging = 1000

// unwell is what is not well with the brokers by the figures of a status, in words. The broker that answered has said in
// its own words what it sees of suspicion and lag.
func unwell(s protocol.Status) []string {
	newest := uint64(0)
	for _, b := range s.Brokers {
		newest = max(newest, b.Applied)
	}
	var out []string
	for _, b := range byName(s.Brokers) {
		if reason := brokerUnwell(b, newest, s.Leader != ""); reason != "" && !said(s.Degraded, b) {
			out = append(out, reason)
		}
	}
	return out
}

// statusHints is what to type about what is not well.
func statusHints(s protocol.Status) []string {
	var out []string
	if s.Leader == "" {
		out = append(out, "start the voters that are down; if half of them or more are gone for good: danube cluster recover")
	}
	if s.Orphaned > s.Unplaced {
		out = append(out, "start the brokers that orphaned ranges lie on; if a disk is gone for good: danube topic resolve TOPIC --lost")
	}
	if s.Unplaced > 0 {
		out = append(out, "a restored or rebuilt cluster forgets where its newest messages were; to give those up that no broker is known to have: danube topic resolve TOPIC --lost")
	}
	for _, b := range byName(s.Brokers) {
		if b.State == "lost" {
			named := b.Name
			if strings.Contains(named, " ") { // one of several of this name; no name has a space of its own
				named = storeHead(b)
			}
			out = append(out, fmt.Sprintf("start %s again; if it is gone for good: danube broker remove %s", b.Name, named))
		}
	}
	return out
}

// byName is brokers in the order of their names. Where several have one, the beginning of the store's id tells them
// apart, as it does in what the leader says of them.
func byName(brokers []protocol.BrokerStatus) []protocol.BrokerStatus {
	count := map[string]int{}
	for _, b := range brokers {
		count[b.Name]++
	}
	brokers = slices.Clone(brokers)
	for i, b := range brokers {
		if count[b.Name] > 1 {
			brokers[i].Name += " (" + storeHead(b) + ")"
		}
	}
	return slices.SortedStableFunc(slices.Values(brokers), func(a, b protocol.BrokerStatus) int { return strings.Compare(a.Name, b.Name) })
}

// storeHead is as much of a store's id as names it in a command.
func storeHead(b protocol.BrokerStatus) string { return b.Store[:min(len(b.Store), 8)] }

// said reports whether a broker has said the same in its own words: of one that is active any word on it counts.
func said(reasons []string, b protocol.BrokerStatus) bool {
	return slices.ContainsFunc(reasons, func(r string) bool {
		return strings.HasPrefix(r, b.Name+" is "+b.State) || b.State == "active" && (strings.HasPrefix(r, b.Name+" ") || strings.HasPrefix(r, b.Name+":"))
	})
}

// brokerUnwell says what is not well with a broker, "" when nothing is. newest is the metadata's newest index, led
// whether anything can be decided.
func brokerUnwell(b protocol.BrokerStatus, newest uint64, led bool) string {
	switch {
	case b.State == "lost":
		return b.Name + " is lost: others serve its topics"
	case b.State == "stopped":
		return b.Name + " was stopped in order: messages that lie only there can be read when it is back"
	case b.Seen == "silent" && !led:
		return b.Name + " does not answer"
	case b.Seen == "silent":
		return fmt.Sprintf("%s does not answer: its topics move when its lease is over", b.Name)
	case b.State == "draining":
		return fmt.Sprintf("%s is draining: %s to move, %s to copy", b.Name, render.Plural(b.Partitions, "partition"), render.Plural(b.OnlyCopies, "range"))
	case b.Applied > 0 && newest-b.Applied > lagging:
		return fmt.Sprintf("%s lags: %s entries of the metadata behind", b.Name, render.Grouped(newest-b.Applied))
	}
	return ""
}
