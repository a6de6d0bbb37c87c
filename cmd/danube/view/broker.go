package view

import (
	"fmt"
	"io"
	"strconv"

	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/protocol"
)

// Brokers prints brokers for a person.
func Brokers(w io.Writer, brokers []protocol.BrokerStatus) error {
	t := render.Table{Header: []string{"broker", "clients", "state", "seen", "votes", "partitions", "only copies"}}
	for _, b := range byName(brokers) {
		t.Add(b.Name, b.Address, b.State, seen(b), votes(b), strconv.Itoa(b.Partitions), strconv.Itoa(b.OnlyCopies))
	}
	return t.Print(w)
}

// seen is whether a broker answered when it was asked, - where it was not. Its state is what the cluster has decided: one
// that is lost and answers has come back.
func seen(b protocol.BrokerStatus) string {
	switch {
	case b.Seen == "":
		return "-"
	case b.State == "lost" && b.Seen != "silent":
		return b.Seen + " again"
	}
	return b.Seen
}

// applied is the index of the metadata that a broker has applied, - where it does not say.
func applied(b protocol.BrokerStatus) string {
	if b.Applied == 0 {
		return "-"
	}
	return render.U64(b.Applied)
}

// votes is a broker's part in the decisions about the metadata.
func votes(b protocol.BrokerStatus) string {
	if b.Leader {
		return "leads"
	}
	return render.YesNo(b.Voter)
}

// Broker prints a broker for a person. Partitions are listed with all, else counted.
func Broker(w io.Writer, d protocol.BrokerDescription, all bool) error {
	fmt.Fprintf(w, "broker       %s\nstate        %s\n", d.Name, d.State)
	if d.Reason != "" {
		fmt.Fprintf(w, "note         %s\n", d.Reason)
	}
	fmt.Fprintf(w, "seen         %s\nvotes        %s\nclients      %s\npeers        %s\nhttp         %s\n",
		seen(d.BrokerStatus), votes(d.BrokerStatus), d.Address, d.Peer, d.HTTP)
	if all {
		fmt.Fprintf(w, "store        %s\nincarnation  %d\napplied      %s\n", d.Store, d.Incarnation, applied(d.BrokerStatus))
	}
	fmt.Fprintf(w, "owns         %s\nonly copies  %s\n", render.Plural(d.Partitions, "partition"), render.Plural(d.OnlyCopies, "range"))
	if len(d.Only) > 0 {
		t := render.Table{Header: []string{"topic", "offsets", "status"}}
		for _, r := range d.Only {
			span := render.Offsets(r.Start, r.End)
			if r.Status == "OPEN" {
				span = render.U64(r.Start) + "-" // it grows; the end that others know is an old one
			}
			t.Add(PartitionName(r.Topic, r.Partition), span, rangeStatus(r.Status))
		}
		whole := ""
		if d.Seen == "silent" {
			whole = ", if anything was written there" // it alone knows
		}
		fmt.Fprintf(w, "\nlies nowhere else%s:\n", whole)
		if err := t.Print(w); err != nil {
			return err
		}
	}
	if !all || len(d.Owned) == 0 {
		return nil
	}
	t := render.Table{Header: []string{"topic", "epoch", "state"}}
	for _, p := range d.Owned {
		t.Add(PartitionName(p.Topic, p.Partition), render.U64(p.Epoch), p.State)
	}
	fmt.Fprintln(w, "\nowned:")
	return t.Print(w)
}

// PartitionName is TOPIC:N.
func PartitionName(topic string, n int) string { return topic + ":" + strconv.Itoa(n) }
