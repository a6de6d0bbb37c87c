package offsets

import "testing"

func FuzzSets(f *testing.F) {
	f.Add(Set{{1, 2}, {3, 4}, {5, 6}, {100, 2000}}.encode(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := decodeOffsets(b)
		if err != nil {
			return
		}
		again, err := decodeOffsets(o.encode(nil))
		if err != nil || len(again) != len(o) {
			t.Fatalf("%v became %v: %v", o, again, err)
		}
	})
}
