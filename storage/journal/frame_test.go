package journal

import (
	"testing"

	"github.com/danubemq/danube/protocol/batch"
)

// newBatch is a batch of two messages of a producer.
func newBatch(t testing.TB, producer uint64, s batch.Stamp) batch.Batch {
	t.Helper()
	var w batch.Builder
	for i := range 2 {
		w.Add(&batch.Message{Payload: []byte{byte(producer), byte(i), 3, 4, 5}})
	}
	raw, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: producer, Session: 1})
	if err != nil {
		t.Fatal(err)
	}
	b := batch.Batch(raw)
	b.Stamp(s)
	return b
}

// TestJournalEntryIsItsOwnBatch: bytes that an earlier lap left may be whole
// batches of another topic with the same base and epoch; they are not the
// entry's, and nor are its own bytes with one bit changed.
func TestJournalEntryIsItsOwnBatch(t *testing.T) {
	stamped := func(producer uint64) batch.Batch {
		return newBatch(t, producer, batch.Stamp{Base: 7, Epoch: 3, AppendTime: 1000})
	}
	own, other := stamped(1), stamped(2)
	if len(own) != len(other) {
		t.Fatal("the two should be of one length")
	}
	e := entry{epoch: 3, base: 7, length: uint32(len(own)), digest: updateDigest(batch.Checksum(nil), own)}
	if !checkEntry(e, own) {
		t.Error("its own batch was refused")
	}
	if checkEntry(e, other) {
		t.Error("the batch of another topic was taken")
	}
	for at := range own {
		x := append(batch.Batch(nil), own...)
		x[at] ^= 1
		if checkEntry(e, x) {
			t.Errorf("taken with a bit of byte %d changed", at)
		}
	}
}
