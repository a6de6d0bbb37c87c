package sessions

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage/segment"
)

// sent is the header of a batch as the log stored it.
func sent(producer, sequence, offset uint64, at int64) batch.Batch {
	return asBatch(Key{producer, 1}, segment.Sent{Sequence: sequence, Base: offset, AppendTime: at, Count: 2, CRC: uint32(sequence) + 1})
}

func TestCheckTellsWhatABatchIs(t *testing.T) {
	var table Table
	table.Open(Key{7, 1}, 0, 1)
	for i := range uint64(3) {
		table.Record(sent(7, 2*i, 100+2*i, 1))
	}
	other := sent(7, 2, 0, 1)
	other[64] ^= 1 // its body's CRC
	for name, test := range map[string]struct {
		batch  batch.Batch
		offset uint64 // of what it repeats
		wrong  bool
		next   uint64 // what the session is told to send
		known  bool
	}{
		"the next":           {batch: sent(7, 6, 0, 1)},
		"the last again":     {batch: sent(7, 4, 0, 1), offset: 104},
		"the first again":    {batch: sent(7, 0, 0, 1), offset: 100},
		"one left out":       {batch: sent(7, 8, 0, 1), next: 6, known: true, wrong: true},
		"half of one stored": {batch: sent(7, 1, 0, 1), wrong: true},
		"other bytes":        {batch: other, wrong: true},
		"nobody's":           {batch: sent(8, 0, 0, 1), wrong: true, next: 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := table.Check(test.batch)
			if test.wrong != (err != nil) || (got != nil) != (test.offset > 0) || got != nil && got.Base != test.offset {
				t.Fatalf("it is %+v, %v", got, err)
			}
			if e, ok := errors.AsType[*SequenceError](err); ok && (e.Expected != test.next || e.Known != test.known) {
				t.Errorf("told %+v", e)
			} else if !ok && err != nil && !errors.Is(err, ErrOverlap) {
				t.Errorf("refused with %v", err)
			}
		})
	}
}

func TestForgottenSequenceIsTheNextAgain(t *testing.T) {
	var table Table
	for i := range uint64(3) {
		table.Record(sent(7, 2*i, 2*i, 1))
	}
	table.Forget(sent(7, 2, 2, 1))
	if got, err := table.Check(sent(7, 2, 0, 1)); got != nil || err != nil {
		t.Errorf("what was taken back is %+v, %v", got, err)
	}
	if got, err := table.Check(sent(7, 0, 0, 1)); got == nil || err != nil {
		t.Errorf("what stays stored is %+v, %v", got, err)
	}
}

func TestTableForgetsByNumberAndAge(t *testing.T) {
	var table Table
	for i := range uint64(maxSessions + 1) {
		table.Record(sent(i, 0, 2*i, 1))
	}
	if _, err := table.Check(sent(0, 2, 0, 1)); err == nil || len(table.sessions) != maxSessions {
		t.Errorf("%d sessions, the oldest: %v", len(table.sessions), err)
	}
	week := int64(7 * 24 * time.Hour / time.Millisecond)
	table.Record(sent(5, 2, 50_000, 1+week))
	if len(table.sessions) != maxSessions {
		t.Errorf("%d sessions after a week", len(table.sessions))
	}
	table.Record(sent(5, 4, 50_002, 2+week))
	if len(table.sessions) != 1 {
		t.Errorf("%d sessions after more than a week", len(table.sessions))
	}
}

// TestHandOver: the next owner knows what the one before knew below the end, and nothing above.
func TestHandOver(t *testing.T) {
	var before, after Table
	for i := range uint64(window + 3) {
		before.Record(sent(7, 2*i, 2*i, int64(i)))
	}
	end := uint64(2 * (window + 2))
	b := before.Encode(end)
	table, of, err := Decode(b)
	if err != nil || of != end {
		t.Fatalf("decoded: end %d, %v", of, err)
	}
	if newest := after.Load(table); newest != window+1 {
		t.Errorf("the newest append time is %d", newest)
	}
	if got, err := after.Check(sent(7, end-2, 0, 1)); err != nil || got == nil || got.Base != end-2 {
		t.Errorf("the last one is %+v, %v", got, err)
	}
	if got, err := after.Check(sent(7, end, 0, 1)); err != nil || got != nil {
		t.Errorf("the one above the end is %+v, %v", got, err)
	}
	for at := range b {
		b[at] ^= 1
		if _, _, err := Decode(b); err == nil {
			t.Fatalf("taken with a bit of byte %d changed", at)
		}
		b[at] ^= 1
	}
}

// TestMergeKeepsWhatIsStoredHere: of a sequence that both have, the batch that is here counts (R15).
func TestMergeKeepsWhatIsStoredHere(t *testing.T) {
	var here, there Table
	here.Record(sent(7, 4, 1000, 9))
	for i := range uint64(3) {
		there.Record(sent(7, 2*i, 2*i, 1))
	}
	here.Merge(there.Stored(6))
	for sequence, want := range map[uint64]uint64{0: 0, 2: 2, 4: 1000} {
		if got, err := here.Check(sent(7, sequence, 0, 1)); err != nil || got == nil || got.Base != want {
			t.Errorf("sequence %d is %+v, %v", sequence, got, err)
		}
	}
}

// TestMergeTableAddsWhatIsMissing: a table in memory is merged as one from a footer is.
func TestMergeTableAddsWhatIsMissing(t *testing.T) {
	var newer, older Table
	newer.Record(sent(7, 4, 1000, 9))
	older.Record(sent(8, 0, 20, 2))
	for i := range uint64(4) {
		older.Record(sent(7, 2*i, 2*i, 1))
	}
	newer.MergeTable(&older)
	for _, want := range []struct{ producer, sequence, base uint64 }{{7, 0, 0}, {7, 2, 2}, {7, 4, 1000}, {7, 6, 6}, {8, 0, 20}} {
		if got, err := newer.Check(sent(want.producer, want.sequence, 0, 1)); err != nil || got == nil || got.Base != want.base {
			t.Errorf("sequence %d of producer %d is %+v, %v", want.sequence, want.producer, got, err)
		}
	}
	if got, err := newer.Check(sent(7, 8, 0, 1)); err != nil || got != nil {
		t.Errorf("the next is %+v, %v", got, err)
	}
	if newer.oldest.key.Producer != 8 || newer.newest.key.Producer != 7 {
		t.Errorf("the oldest is %v, the newest %v", newer.oldest.key, newer.newest.key)
	}
	var none Table
	none.MergeTable(&newer)
	if got, err := none.Check(sent(8, 0, 0, 1)); err != nil || got == nil {
		t.Errorf("of an empty one: %+v, %v", got, err)
	}
}

// TestCutForgetsWhatLiesBehind an offset, and nothing in front of it.
func TestCutForgetsWhatLiesBehind(t *testing.T) {
	var table Table
	for i := range uint64(3) {
		table.Record(sent(7, 2*i, 100+2*i, 1))
	}
	table.Record(sent(8, 0, 106, 1))
	table.Open(Key{9, 1}, 5, 1)
	table.Cut(104)
	if got, err := table.Check(sent(7, 2, 0, 1)); err != nil || got == nil || got.Base != 102 {
		t.Errorf("in front of it: %+v, %v", got, err)
	}
	if got, err := table.Check(sent(7, 4, 0, 1)); err != nil || got != nil {
		t.Errorf("behind it: %+v, %v", got, err)
	}
	if _, err := table.Check(sent(8, 0, 0, 1)); err == nil {
		t.Error("a session that has stored nothing in front of it is known")
	}
	if got, err := table.Check(sent(9, 5, 0, 1)); err != nil || got != nil {
		t.Errorf("a session that is open: %+v, %v", got, err)
	}
}

// TestLoadedSessionIsAsOldAsItsNewestBatch, not as its last sequence: a table that
// was merged has later sequences with earlier times.
func TestLoadedSessionIsAsOldAsItsNewestBatch(t *testing.T) {
	now := int64(30 * 24 * time.Hour / time.Millisecond)
	var merged, older, loaded Table
	older.Record(sent(7, 2, 5, 1))
	merged.Record(sent(7, 0, 1000, now))
	merged.MergeTable(&older)
	loaded.Load(merged.Stored(2000))
	loaded.Record(sent(8, 0, 1002, now))
	if got, err := loaded.Check(sent(7, 2, 0, 1)); err != nil || got == nil || got.Base != 5 {
		t.Errorf("its last sequence is %+v, %v", got, err)
	}
}

// TestTakeAddsWhatIsAskedFor of an encoded table, and hides nothing that is known.
func TestTakeAddsWhatIsAskedFor(t *testing.T) {
	var there, here Table
	for i := range uint64(4) {
		there.Record(sent(7, 2*i, 100+2*i, 1))
	}
	there.Record(sent(8, 0, 108, 1))
	here.Record(sent(7, 4, 1000, 2))
	b := there.Encode(200)
	if err := here.Take(b, func(base uint64) bool { return base >= 102 && base < 108 }); err != nil {
		t.Fatal(err)
	}
	var got []uint64
	for key, s := range here.All() {
		if key != (Key{7, 1}) {
			t.Errorf("session %v is known", key)
		}
		got = append(got, s.Base)
	}
	if !slices.Equal(got, []uint64{102, 1000, 106}) {
		t.Errorf("batches at %v", got)
	}
	b[len(b)/2] ^= 1
	if err := here.Take(b, func(uint64) bool { return true }); err == nil {
		t.Error("a damaged table is taken")
	}
}
