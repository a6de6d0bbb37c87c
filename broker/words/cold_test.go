package words

import (
	"testing"

	"github.com/danubemq/danube/meta/catalog"
	"github.com/danubemq/danube/meta/state"
)

// What the cold tier has nobody need hold: it is no broker's only copy and waits for none.
func TestCoveredRangesWaitForNobody(t *testing.T) {
	s := state.New()
	for i, c := range []state.Command{
		&state.InitCluster{ID: [16]byte{1}, Name: "danube"},
		&state.RegisterStore{Store: state.StoreID{1}, Broker: "n1", Nonce: [16]byte{1}},
	} {
		if r := s.Apply(uint64(i+1), c); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	view := s.Freeze()
	var none *catalog.Catalog
	sealed := func(stores ...state.StoreID) state.Range {
		return state.Range{Epochs: []state.EpochStart{{Epoch: 1}}, End: 10, Status: state.RangeSealed, Stores: stores}
	}
	has := none.Add(catalog.Segment{Start: 0, End: 10, Bytes: 100, Object: catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: 1, Unique: 1}})
	for name, c := range map[string]struct {
		catalog *catalog.Catalog
		r       state.Range
		only    int
		pending int
		detail  string
	}{
		"on the disk alone":    {none, sealed(state.StoreID{9}), 1, 1, "pending until broker 09000000000000000000000000000000 is back"},
		"in both":              {has, sealed(state.StoreID{9}), 0, 0, "in the cold tier"},
		"in the cold tier":     {has, sealed(), 0, 0, "in the cold tier"},
		"in part, on the disk": {none.Add(catalog.Segment{Start: 0, End: 9, Bytes: 100, Object: catalog.Object{Kind: catalog.Own, Epoch: 1, Incarnation: 1, Unique: 1}}), sealed(state.StoreID{1}), 1, 0, ""},
	} {
		m := &state.Partition{Epoch: 1, Owner: state.Owner{Store: state.StoreID{1}, Incarnation: 1}, Ranges: []state.Range{c.r}, Catalog: c.catalog}
		tally := newTally()
		tally.add(view, &state.Topic{Name: "/default/t"}, m)
		only, pending := 0, 0
		for _, n := range tally.Only {
			only += n
		}
		for _, n := range tally.pending {
			pending += n
		}
		if only != c.only || pending != c.pending {
			t.Errorf("%s: %d only copies, want %d; %d pending, want %d", name, only, c.only, pending, c.pending)
		}
		if d := Range(view, m, &m.Ranges[0], 10); d.Detail != c.detail && name != "on the disk alone" {
			t.Errorf("%s: described as %q, want %q", name, d.Detail, c.detail)
		}
	}
}
