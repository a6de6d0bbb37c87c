package words

import (
	"strings"
	"testing"

	"github.com/danubemq/danube/meta/state"
)

// What is not well is said in words that fit one and several, and of a range that
// no store is known to hold no broker is named that would bring it back.
func TestReasonsNameOneAndSeveral(t *testing.T) {
	s := state.New()
	if r := s.Apply(1, &state.RegisterStore{Store: state.StoreID{1}, Broker: "n1", Nonce: [16]byte{1}, Boot: "b"}); r.Err != nil {
		t.Fatal(r.Err)
	}
	view := s.Freeze()
	topic := &state.Topic{Name: "/default/t"}
	there := state.Range{Start: 0, End: 5, Status: state.RangeOrphaned, Stores: []state.StoreID{{1}}}
	nowhere := state.Range{Start: 5, End: 9, Status: state.RangeOrphaned, Accepted: true}
	of := func(n int, ranges ...state.Range) string {
		c := newTally()
		for i := range n {
			c.add(view, topic, &state.Partition{Number: uint32(i), State: state.Opening, Owner: state.Owner{Store: state.StoreID{9}}, Ranges: ranges})
		}
		return strings.Join(c.Reasons(view), "\n")
	}
	all := newTally()
	for i := range 5 {
		all.add(view, topic, &state.Partition{Number: uint32(i), State: state.Sealing, Ranges: []state.Range{there, nowhere}})
	}
	if len(all.Away) != all.Orphans+all.Unplaced || len(all.Away) != 10 || all.Away[8].Brokers[0] != "n1" || len(all.Away[9].Brokers) != 0 || len(all.Moving) != 5 {
		t.Errorf("of ten orphaned ranges and five moves %d and %d are listed: %+v", len(all.Away), len(all.Moving), all.Away)
	}
	for name, x := range map[string]struct {
		got  string
		want []string
		not  string
	}{
		"one": {of(1, there), []string{"1 partition has no owner that serves it",
			"1 range is orphaned: its messages may come back with a broker that is away: n1"}, "known to have"},
		"several": {of(5, there), []string{"5 partitions have no owner that serves them", "5 ranges are orphaned: their messages may come back with a broker that is away: n1"}, "n1, n1"},
		"on no broker": {of(1, nowhere),
			[]string{"1 range is orphaned: no broker is known to have the messages, and consumers pass over them"}, "come back"},
		"both": {of(1, there, nowhere), []string{"1 range is orphaned: its messages", "1 range is orphaned: no broker"}, "ranges"},
	} {
		for _, want := range x.want {
			if !strings.Contains(x.got, want) {
				t.Errorf("%s: %q is not in\n%s", name, want, x.got)
			}
		}
		if strings.Contains(x.got, x.not) {
			t.Errorf("%s: %q is in\n%s", name, x.not, x.got)
		}
	}
	nowhere.Epochs = []state.EpochStart{{Epoch: 1, Start: 5}}
	if d := Range(view, &state.Partition{}, &nowhere, 0); !strings.Contains(d.Detail, "no broker is known to have it") {
		t.Errorf("topic describe says of it: %q", d.Detail)
	}
}
