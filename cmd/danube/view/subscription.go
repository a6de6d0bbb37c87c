package view

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/protocol"
)

// Subscriptions prints a row for each subscription and partition.
func Subscriptions(w io.Writer, subs []protocol.SubDescription) error {
	t := render.Table{Header: []string{"subscription", "type", "partition", "cursor", "lag", "in flight", "consumers", "state"}}
	for _, s := range subs {
		for _, p := range s.Partitions {
			t.Add(s.Name, s.Type, strconv.Itoa(p.Partition), render.U64(p.Cursor), lag(p), render.U64(p.InFlight), strconv.Itoa(len(p.Consumers)), p.State)
		}
		if len(s.Partitions) == 0 {
			t.Add(s.Name, s.Type, "", "", "", "", "", "")
		}
	}
	return t.Print(w)
}

// Subscription prints a subscription with its consumers.
func Subscription(w io.Writer, topic string, d protocol.SubDescription) error {
	fmt.Fprintf(w, "subscription  %s\ntopic         %s\ntype          %s\noptions       %s\n\n", d.Name, topic, d.Type, subOptions(d.Options))
	t := render.Table{Header: []string{"partition", "cursor", "lag", "in flight", "redelivering", "ack ranges", "skipped", "state"}}
	consumers := render.Table{Header: []string{"partition", "consumer", "address", "in flight", "credit"}}
	for _, p := range d.Partitions {
		t.Add(strconv.Itoa(p.Partition), render.U64(p.Cursor), lag(p), render.U64(p.InFlight), render.U64(p.Redeliver), strconv.Itoa(p.Ranges), render.U64(p.Skipped), p.State)
		for _, c := range p.Consumers {
			consumers.Add(strconv.Itoa(p.Partition), c.Name, c.Address, render.U64(c.InFlight), render.U64(c.Credit))
		}
	}
	if err := t.Print(w); err != nil {
		return err
	}
	fmt.Fprintln(w)
	if consumers.Empty() {
		fmt.Fprintln(w, "no consumers")
		return nil
	}
	return consumers.Print(w)
}

// lag is how many messages wait, and how many more may, by what is known of a broker that is away.
func lag(p protocol.SubPartition) string {
	switch {
	case p.Orphaned == 0:
		return render.U64(p.Lag)
	case p.Orphaned < 1<<32:
		return fmt.Sprintf("%d, at most %d orphaned", p.Lag, p.Orphaned)
	}
	return fmt.Sprintf("%d, more orphaned", p.Lag) // up to where a new history began: a number that says nothing
}

// subOptions prints the options as they hold, defaults included.
func subOptions(o protocol.SubOptions) string {
	o = o.WithDefaults()
	ms := func(n int64) string { return settings.FormatDuration(time.Duration(n) * time.Millisecond) }
	timeout := "no ack timeout"
	if o.AckTimeoutMS > 0 {
		timeout = "ack timeout " + ms(o.AckTimeoutMS)
	}
	backoff := "backoff " + ms(o.BackoffMS)
	if o.BackoffFixed {
		backoff += ", fixed"
	} else {
		backoff += " to " + ms(o.BackoffCapMS)
	}
	return fmt.Sprintf("max unacked %d, %s, max redeliveries %d, %s", o.MaxUnacked, timeout, o.MaxRedeliver, backoff)
}
