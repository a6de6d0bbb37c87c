package view

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danubemq/danube/cmd/danube/render"
	"github.com/danubemq/danube/cmd/danube/settings"
	"github.com/danubemq/danube/protocol"
)

// Topics prints a row for each topic.
func Topics(w io.Writer, topics []protocol.TopicSummary) error {
	t := render.Table{Header: []string{"topic", "partitions", "durability", "subscriptions", "retention"}}
	for _, s := range topics {
		t.Add(s.Topic, strconv.Itoa(s.Partitions), levelOf(s.Reliable, s.Durability), strconv.Itoa(s.Subscriptions),
			retentionOf(s.Reliable, retention(s.RetentionMS, s.RetentionBytes, s.RetentionAcked)))
	}
	return t.Print(w)
}

// Topic prints a topic for a person.
func Topic(w io.Writer, d protocol.TopicDescription, all bool) error {
	level := "none: the topic is not reliable and keeps nothing"
	if d.Reliable {
		level = durability(d.Durability)
	}
	if d.Sync == "interval" {
		level += "; synced at intervals only: acknowledgements survive a killed process, not a power loss"
	}
	fmt.Fprintf(w, "topic       %s\n", d.Topic)
	if all {
		fmt.Fprintf(w, "id          %s\n", d.ID)
	}
	fmt.Fprintf(w, "durability  %s\nretention   %s\n\n", level, retentionOf(d.Reliable, retention(d.RetentionMS, d.RetentionBytes, d.RetentionAcked)))
	if err := describePartitions(w, d.Partitions, all); err != nil {
		return err
	}
	if err := describeRanges(w, d.Partitions, all); err != nil {
		return err
	}
	if len(d.Subscriptions) == 0 {
		fmt.Fprintln(w, "\nno subscriptions")
		return nil
	}
	fmt.Fprintln(w)
	return Subscriptions(w, d.Subscriptions)
}

func describePartitions(w io.Writer, parts []protocol.PartitionDescription, all bool) error {
	t := render.Table{Header: []string{"partition", "owner", "state", "log start", "next offset", "size", "segments", "producers"}}
	if all {
		t.Header = append(t.Header, "epoch", "committed end", "ceiling")
	}
	for _, p := range parts {
		state := p.State
		if p.Reason != "" {
			state += ": " + p.Reason
		}
		row := []string{strconv.Itoa(p.Partition), p.Owner, state, render.U64(p.LogStart), render.U64(p.NextOffset), render.Size(p.Bytes),
			strconv.Itoa(p.Segments), strconv.Itoa(p.Producers)}
		if all {
			row = append(row, render.U64(p.Epoch), render.U64(p.CommittedEnd), render.U64(p.Ceiling))
		}
		t.Add(row...)
	}
	return t.Print(w)
}

// describeRanges prints the ranges that are not whole, or all of them.
func describeRanges(w io.Writer, parts []protocol.PartitionDescription, all bool) error {
	t := render.Table{Header: []string{"partition", "offsets", "status", "detail"}}
	if all {
		t.Header = append(t.Header, "epoch", "stores")
	}
	for _, p := range parts {
		for _, r := range p.Ranges {
			whole := r.Status == "OPEN" || r.Status == "SEALED"
			if whole && r.Detail == "" && !all {
				continue
			}
			row := []string{strconv.Itoa(p.Partition), render.Offsets(r.Start, r.End), rangeStatus(r.Status), r.Detail}
			if all {
				row = append(row, render.U64(r.Epoch), strings.Join(r.Stores, " "))
			}
			t.Add(row...)
		}
		if !all {
			continue
		}
		for _, s := range p.Superseded {
			t.Add(strconv.Itoa(p.Partition), render.Offsets(s.Start, s.End), "superseded", "stored again at later offsets", "", "")
		}
	}
	if t.Empty() {
		return nil
	}
	fmt.Fprintln(w)
	return t.Print(w)
}

// durability is a level with what it means, as help and errors say it.
func durability(level string) string {
	switch level {
	case "local":
		return "local (synced to the broker's disk)"
	case "warm":
		return "warm (disk and write buffer with one replica)"
	case "object":
		return "object (in the object store)"
	}
	return level
}

// Copies is a level in words, with the disks that hold it: "local: one copy, on n2's disk".
func Copies(level string, parts []protocol.PartitionDescription) string {
	var owners []string
	for _, p := range parts {
		if p.Owner != "" {
			owners = append(owners, p.Owner)
		}
	}
	slices.Sort(owners)
	owners = slices.Compact(owners)
	switch {
	case level != "local" || len(owners) == 0:
		return ""
	case len(owners) == 1:
		return "local: one copy, on " + owners[0] + "'s disk"
	}
	last := len(owners) - 1
	return "local: one copy of each partition, on the disks of " + strings.Join(owners[:last], ", ") + " and " + owners[last]
}

// MadeWith is "1 partition, durability local".
func MadeWith(partitions int, reliable bool, level string) string {
	if !reliable {
		return render.Plural(partitions, "partition") + ", not reliable"
	}
	return render.Plural(partitions, "partition") + ", durability " + level
}

func levelOf(reliable bool, level string) string {
	if !reliable {
		return "not reliable"
	}
	return level
}

// retentionOf is the retention of a topic: one that is not reliable keeps nothing, whatever its settings say.
func retentionOf(reliable bool, kept string) string {
	if !reliable {
		return "none"
	}
	return kept
}

// retention is "48h, 1GiB", "until acked, 48h", or "all" for a topic from which nothing is deleted unasked.
func retention(ms, bytes int64, acked bool) string {
	var parts []string
	if acked {
		parts = append(parts, "until acked")
	}
	if ms > 0 {
		parts = append(parts, settings.FormatDuration(time.Duration(ms)*time.Millisecond))
	}
	if size := settings.FormatSize(bytes); bytes > 0 {
		if bytes%1024 != 0 { // a bare number would not say of what
			size = render.Plural(int(bytes), "byte")
		}
		parts = append(parts, size)
	}
	if len(parts) == 0 {
		return "all"
	}
	return strings.Join(parts, ", ")
}

// rangeStatus is a status in the words of output: LIMBO is an internal word.
func rangeStatus(s string) string {
	if s == "LIMBO" {
		return "unverified"
	}
	return s
}

// Findings is how much a verification found that is wrong.
func Findings(r protocol.VerifyReport) int {
	n := 0
	for _, p := range r.Partitions {
		n += len(p.Findings)
	}
	return n
}

// Verify prints what a verification found.
func Verify(w io.Writer, r protocol.VerifyReport) error {
	t := render.Table{Header: []string{"partition", "offsets", "messages", "size", "findings"}}
	found := render.Table{Header: []string{"partition", "offsets", "tier", "file", "at", "what"}}
	noted := render.Table{Header: []string{"partition", "offsets", "note"}}
	for _, p := range r.Partitions {
		t.Add(strconv.Itoa(p.Partition), render.Offsets(p.From, p.To), render.Grouped(p.Messages), render.Size(p.Bytes), strconv.Itoa(len(p.Findings)))
		for _, f := range p.Findings {
			found.Add(strconv.Itoa(p.Partition), render.Offsets(f.From, f.To), f.Tier, f.File, at(f), f.What)
		}
		for _, n := range p.Notes {
			noted.Add(strconv.Itoa(p.Partition), render.Offsets(n.From, n.To), n.What)
		}
	}
	if err := t.Print(w); err != nil {
		return err
	}
	for _, more := range []render.Table{found, noted} {
		if more.Empty() {
			continue
		}
		fmt.Fprintln(w)
		if err := more.Print(w); err != nil {
			return err
		}
	}
	return nil
}

// at is where in its file a finding lies, - if it is of no file.
func at(f protocol.VerifyFinding) string {
	if f.File == "" {
		return "-"
	}
	return strconv.FormatInt(f.At, 10)
}
