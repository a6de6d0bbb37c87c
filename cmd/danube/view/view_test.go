package view

import (
	"bytes"
	"strings"
	"testing"

	"github.com/danubemq/danube/protocol"
)

// TestStatusInWords names what is wrong, and what to type, once.
func TestStatusInWords(t *testing.T) {
	s := protocol.Status{Broker: "n1", Ready: true, Ownerless: 3, Orphaned: 2, Degraded: []string{"n2: disk is 91 % full"}, Brokers: []protocol.BrokerStatus{
		{Name: "n1", State: "active", Seen: "answers", Applied: 5012},
		{Name: "n2", State: "active", Seen: "silent", Applied: 5010}, // said of already, in the broker's words
		{Name: "n3", State: "lost", Gossip: "alive", Seen: "silent", Applied: 4711},
		{Name: "n4", State: "active", Seen: "silent", Applied: 5000},
		{Name: "n5", State: "active", Seen: "answers", Applied: 3000},
		{Name: "n6", State: "draining", Partitions: 4, OnlyCopies: 1}}}
	var b bytes.Buffer
	if err := Status(&b, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"leader      none known to n1\n", "danube cluster recover", "danube topic resolve TOPIC --lost", "n3 is lost", "danube broker remove n3", "n4 does not answer", "n5 lags: 2,012 entries", "n6 is draining: 4 partitions to move, 1 range to copy",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("lacks %q:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "n2 does not answer") {
		t.Errorf("says of n2 what the broker has said:\n%s", b.String())
	}
	if strings.Contains(b.String(), "its topics move") {
		t.Errorf("something moves while nothing can be decided:\n%s", b.String())
	}
}

// TestStatusListsAreCutForPeopleAlone: three of a kind are named, with how many more there are and what shows them.
func TestStatusListsAreCutForPeopleAlone(t *testing.T) {
	list := func(n int) string {
		s := protocol.Status{Leader: "n1"}
		for i := range n {
			s.Orphans = append(s.Orphans, protocol.OrphanRange{Topic: "/default/t", Partition: i, Start: 5, End: 10, Brokers: []string{"n2", "n3"}[:i%3]})
			s.Moves = append(s.Moves, protocol.MovingStatus{Topic: "/default/t", Partition: i, From: "n1", To: "n2"})
		}
		var b bytes.Buffer
		if err := Status(&b, s); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	three := list(3)
	for _, want := range []string{
		"orphaned    5-9 of /default/t:0, on no broker that is known\n", "orphaned    5-9 of /default/t:1, on broker n2\n",
		"orphaned    5-9 of /default/t:2, on broker n2 and n3\n", "moving      /default/t:2 from n1 to n2\n",
	} {
		if !strings.Contains(three, want) {
			t.Errorf("lacks %q:\n%s", want, three)
		}
	}
	five := list(5)
	if strings.Contains(three, "more") || strings.Count(five, "and 2 more: danube topic describe /default/t;") != 2 || strings.Contains(five, "/default/t:3") {
		t.Errorf("five of a kind:\n%s", five)
	}
}

// TestHintForRangesOnNoBroker starts nothing: no broker is known to have them.
func TestHintForRangesOnNoBroker(t *testing.T) {
	for name, x := range map[string]struct {
		unplaced    int
		start, lost bool
	}{"all have a broker": {0, true, true}, "some have none": {1, true, true}, "none has one": {2, false, true}} {
		hints := strings.Join(statusHints(protocol.Status{Leader: "n1", Orphaned: 2, Unplaced: x.unplaced}), "\n")
		if strings.Contains(hints, "start the brokers") != x.start || strings.Contains(hints, "no broker is known") != (x.unplaced > 0) || strings.Contains(hints, "--lost") != x.lost {
			t.Errorf("%s: %s", name, hints)
		}
	}
}

// TestWhatIsSeenFitsTheState: what gossip has not noticed yet contradicts nothing.
func TestWhatIsSeenFitsTheState(t *testing.T) {
	for want, b := range map[string]protocol.BrokerStatus{
		"-": {State: "stopped", Gossip: "alive"}, "silent": {State: "lost", Gossip: "alive", Seen: "silent"}, "answers again": {State: "lost", Gossip: "dead", Seen: "answers"},
		"starting again": {State: "lost", Seen: "starting"}, "answers": {State: "active", Gossip: "suspect", Seen: "answers"}, "starting": {State: "active", Seen: "starting"},
	} {
		var out bytes.Buffer
		if b.Name = "n1"; Brokers(&out, []protocol.BrokerStatus{b}) != nil || seen(b) != want || strings.Contains(out.String(), "alive") {
			t.Errorf("%+v: seen %q, want %q:\n%s", b, seen(b), want, out.String())
		}
	}
	if applied(protocol.BrokerStatus{}) != "-" || applied(protocol.BrokerStatus{Applied: 7}) != "7" {
		t.Error("what is not known of what was applied is no number")
	}
}

// TestBrokersOfOneName are told apart by what a command takes: the beginning of the store's id.
func TestBrokersOfOneName(t *testing.T) {
	s := protocol.Status{Broker: "n1", Leader: "n1", Ready: true, Degraded: []string{"n1 (bbbbbbbb) is lost"}, Brokers: []protocol.BrokerStatus{
		{Name: "n1", Store: "aaaaaaaa01", State: "active", Seen: "answers"}, {Name: "n1", Store: "bbbbbbbb01", State: "lost"}, {Name: "n2", Store: "cccccccc01", State: "active"}}}
	var b bytes.Buffer
	if err := Status(&b, s); err != nil {
		t.Fatal(err)
	}
	if err := Brokers(&b, s.Brokers); err != nil {
		t.Fatal(err)
	}
	for want, n := range map[string]int{"n1 (aaaaaaaa)": 2, "n1 (bbbbbbbb) ": 4, "danube broker remove bbbbbbbb\n": 1, "n2 (": 0, "degraded ": 1} {
		if strings.Count(b.String(), want) != n {
			t.Errorf("has not %d times %q:\n%s", n, want, b.String())
		}
	}
	if s.Brokers[1].Name != "n1" {
		t.Error("what was to be printed has been changed")
	}
}

// TestCopiesInWords: one disk, several, none.
func TestCopiesInWords(t *testing.T) {
	part := func(owners ...string) (p []protocol.PartitionDescription) {
		for i, o := range owners {
			p = append(p, protocol.PartitionDescription{Partition: i, Owner: o})
		}
		return p
	}
	for want, parts := range map[string][]protocol.PartitionDescription{
		"local: one copy, on n2's disk":                                     part("n2", "n2", ""),
		"local: one copy of each partition, on the disks of n1, n10 and n2": part("n2", "n1", "n10", "n2"),
		"": part(""),
	} {
		if got := Copies("local", parts); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestOptionsAsTheyHold shows defaults too: nobody should have to guess after how long a message comes again.
func TestOptionsAsTheyHold(t *testing.T) {
	for want, o := range map[string]protocol.SubOptions{
		"max unacked 1000, ack timeout 30s, max redeliveries 5, backoff 1s to 1m":    {},
		"max unacked 10, no ack timeout, max redeliveries 2, backoff 100ms, fixed":   {MaxUnacked: 10, AckTimeoutMS: -1, MaxRedeliver: 2, BackoffMS: 100, BackoffCapMS: 100, BackoffFixed: true},
		"max unacked 1000, ack timeout 5s, max redeliveries 5, backoff 500ms to 30s": {AckTimeoutMS: 5000, BackoffMS: 500, BackoffCapMS: 30_000},
	} {
		if got := subOptions(o); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRetentionInWords(t *testing.T) {
	if got := retention(7*24*3600*1000, 1<<30, false); got != "168h, 1GiB" {
		t.Errorf("retention is %q", got)
	}
	if got := retention(0, 1, false) + ", " + retention(0, 1000, false); got != "1 byte, 1000 bytes" {
		t.Errorf("without a unit: %q", got)
	}
	if got := retentionOf(false, retention(1000, 0, true)); got != "none" {
		t.Errorf("of what keeps nothing: %q", got)
	}
	if got := retention(0, 0, true) + "; " + retentionOf(true, retention(3600*1000, 0, true)); got != "until acked; until acked, 1h" {
		t.Errorf("of what goes with its acknowledgement: %q", got)
	}
	if got := retention(0, 0, false); got != "all" {
		t.Errorf("no retention is %q", got)
	}
}
