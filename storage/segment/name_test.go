package segment

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/danubemq/danube/storage/disk"
)

func TestNamesComeBackAndSort(t *testing.T) {
	type key struct{ base, epoch uint64 }
	keys := []key{{0, 0}, {0, 1}, {9, 1}, {10, 1<<48 | 7}, {1 << 40, 0xabcdef}, {math.MaxUint64, math.MaxUint64}}
	var names []string
	for _, k := range keys {
		name := FormatName(k.base, k.epoch)
		base, epoch, ok := ParseName(name)
		if !ok || (key{base, epoch}) != k {
			t.Errorf("%s came back as %d, %d, %v", name, base, epoch, ok)
		}
		names = append(names, name)
	}
	if !slices.IsSorted(names) {
		t.Errorf("names do not sort: %v", names)
	}
	if got, want := FormatName(100, 1<<48|7), "00000000000000000100-0001000000000007.seg"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestOtherNamesAreRefused(t *testing.T) {
	good := FormatName(100, 0xab)
	for _, name := range []string{
		"", ".seg", strings.ToUpper(good), good + ".tmp", "x" + good, strings.TrimSuffix(good, ".seg"), HintName(good),
		strings.Replace(good, "-", "_", 1), strings.Replace(good, "0", "+", 1), strings.Replace(good, "0", " ", 1),
		"99999999999999999999-0000000000000001.seg", strings.Replace(good, "ab", "AB", 1), strings.Replace(good, "ab", "_b", 1),
		strings.Replace(good, "ab", "xy", 1),
	} {
		if base, epoch, ok := ParseName(name); ok {
			t.Errorf("%q was taken for %d, %d", name, base, epoch)
		}
	}
}

func TestHeaderComesBack(t *testing.T) {
	for _, topic := range []string{"", "/default/orders", strings.Repeat("x", maxTopic)} {
		h := testHeader()
		h.Topic, h.Epoch, h.Created = topic, math.MaxUint64, math.MinInt64
		data, err := h.Append([]byte("in front"))
		if err != nil {
			t.Fatal(err)
		}
		data = data[len("in front"):]
		got, n, err := ReadHeader(bytes.NewReader(append(data, "behind"...)))
		if err != nil || got != h || n != len(data) || n > maxHeader {
			t.Fatalf("%+v of %d bytes came back as %+v of %d, %v", h, len(data), got, n, err)
		}
		for n := range data {
			if _, _, err := ReadHeader(bytes.NewReader(data[:n])); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("cut to %d bytes: %v", n, err)
			}
		}
	}
	h := testHeader()
	h.Topic = strings.Repeat("x", maxTopic+1)
	if _, err := h.Append(nil); err == nil {
		t.Fatal("a name too long was encoded")
	}
	h = testHeader()
	h.FirstEpoch = h.Epoch + 1
	data, err := h.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := ParseHeader(data); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("epochs that go back: %v", err)
	}
}

func TestHintCountsOnlyForItsFileAsItIs(t *testing.T) {
	m := disk.NewMemory(1)
	name := "/" + FormatName(100, 1<<48|7)
	w := small(t)
	size, crc := int64(len(w.data)), w.sum.facts.HeaderCRC
	if _, ok := ReadHint(m, name, size, crc); ok {
		t.Fatal("a hint that was never written was read")
	}
	longer := large(t)
	for _, b := range []*build{longer, w} { // the second replaces a longer one
		if err := WriteHint(m, name, b.sum.Footer(), &b.table); err != nil {
			t.Fatal(err)
		}
	}
	f, ok := ReadHint(m, name, size, crc)
	if !ok || f.Facts != w.sum.facts {
		t.Fatalf("read %v, %v", f, ok)
	}
	if p, err := f.Producers(); err != nil || p.Find(42, 5) == nil {
		t.Fatalf("the table of the hint: %v", err)
	}
	if _, ok := ReadHint(m, name, size+1, crc); ok {
		t.Fatal("the hint of a file that has grown was taken")
	}
	if _, ok := ReadHint(m, name, size, crc+1); ok {
		t.Fatal("the hint of another file was taken")
	}
	good, err := disk.ReadFile(m, HintName(name))
	if err != nil {
		t.Fatal(err)
	}
	f2, err := m.Open(HintName(name), disk.Write)
	if err != nil {
		t.Fatal(err)
	}
	for i := range good {
		hurt := bytes.Clone(good)
		hurt[i] ^= 1
		if _, err := f2.WriteAt(hurt, 0); err != nil {
			t.Fatal(err)
		}
		if _, ok := ReadHint(m, name, size, crc); ok {
			t.Fatalf("a hint with a bit turned in byte %d was taken", i)
		}
	}
	for n := int64(len(good)) - 1; n >= 0; n-- {
		if err := f2.Truncate(n); err != nil {
			t.Fatal(err)
		}
		if _, ok := ReadHint(m, name, size, crc); ok {
			t.Fatalf("a hint cut to %d bytes was taken", n)
		}
	}
	m.Fail(func(op, _ string) error {
		if op == "write" {
			return errors.New("boom")
		}
		return nil
	})
	if err := WriteHint(m, name, w.sum.Footer(), &w.table); err == nil {
		t.Fatal("a failed write of a hint was kept silent")
	}
}
