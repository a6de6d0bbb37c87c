package cluster

import (
	"reflect"
	"testing"

	"github.com/danubemq/danube/cluster/founding"
	"github.com/danubemq/danube/cluster/peer"
	"github.com/danubemq/danube/meta/state"
)

// FuzzRecords: every other decoder of bytes from outside.
func FuzzRecords(f *testing.F) {
	for _, r := range []any{
		card{Name: "n1", Run: 3}, note{Seq: 2}, founding.HoldRequest{Pledge: founding.Pledge{List: []founding.Broker{{Store: store(1)}}}},
		founding.HoldAnswer{Held: true}, founding.AskAnswer{Open: true}, joinRequest{Name: "n1"}, renewal{Applied: 3}, grant{Term: 2},
	} {
		b, err := peer.Encode(r)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	disk, err := encodeRecord(founding.Record{Pledge: &founding.Pledge{Proposer: store(2)}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(disk)
	f.Fuzz(func(t *testing.T, b []byte) {
		decodeCard(b)
		decodeNote(b)
		if r, err := decodeRecord(b); err == nil {
			again, err := encodeRecord(r)
			if err != nil {
				t.Fatal(err)
			}
			if r2, err := decodeRecord(again); err != nil || !reflect.DeepEqual(r, r2) {
				t.Fatalf("%+v became %+v, %v", r, r2, err)
			}
		}
		var h founding.HoldRequest
		if peer.Decode(b, &h) == nil {
			fo := &founding.Founder{Self: store(1), Expect: 3, Save: func(founding.Record) error { return nil }}
			fo.Hold(h, founding.Facts{})
		}
		for _, r := range []any{&founding.HoldAnswer{}, &founding.AskAnswer{}, &joinRequest{}, &renewal{}, &grant{}, &state.Owner{}} {
			peer.Decode(b, r)
		}
	})
}
