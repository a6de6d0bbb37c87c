package keys

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func topicID(b byte) (id [16]byte) {
	for i := range id {
		id[i] = b + byte(i)
	}
	return id
}

// all are one name of each kind, as the format page has it.
func all() map[string]string {
	return map[string]string{
		Segment{Topic: topicID(0), Partition: 7, Start: 12, End: 345, Epoch: 0xab, Incarnation: 9, Unique: 0xfeed}.String(): "topics/000102030405060708090a0b0c0d0e0f/7/00000000000000000012-00000000000000000345-00000000000000ab-9-000000000000feed.seg",
		Page{Topic: topicID(0), Partition: 0, Start: 1, End: 2, Incarnation: 3, Unique: 4}.String():                         "topics/000102030405060708090a0b0c0d0e0f/0/00000000000000000001-00000000000000000002-3-0000000000000004.catalog",
		Cut{Store: topicID(1), Incarnation: 3, Number: 4, Unique: 5}.String():                                               "cuts/0102030405060708090a0b0c0d0e0f10/3-00000000000000000004-0000000000000005.seg",
		Manifest{History: 3, Index: 4}.String():                                                                             "manifests/00003-00000000000000000004",
		History(65535):                                                                                                      "histories/65535",
		Cluster:                                                                                                             "cluster",
	}
}

func TestNamesAreAsTheFormatSays(t *testing.T) {
	for got, want := range all() {
		if got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// parseAny returns what a name is read as, made into a name again.
func parseAny(name string) []string {
	var out []string
	if s, err := ParseSegment(name); err == nil {
		out = append(out, s.String())
	}
	if p, err := ParsePage(name); err == nil {
		out = append(out, p.String())
	}
	if c, err := ParseCut(name); err == nil {
		out = append(out, c.String())
	}
	if m, err := ParseManifest(name); err == nil {
		out = append(out, m.String())
	}
	if n, err := ParseHistory(name); err == nil {
		out = append(out, History(n))
	}
	return out
}

func TestNamesSurviveReading(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		n := func() uint64 { return rnd.Uint64() >> rnd.UintN(64) }
		partition := uint32(rnd.Uint64() >> (32 + rnd.UintN(32)))
		for _, name := range []string{
			Segment{topicID(byte(n())), partition, n(), n(), n(), n(), n()}.String(),
			Page{topicID(byte(n())), partition, n(), n(), n(), n()}.String(),
			Cut{topicID(byte(n())), n(), n(), n()}.String(),
			Manifest{uint16(n()), n()}.String(),
			History(uint16(n())),
		} {
			if got := parseAny(name); len(got) != 1 || got[0] != name {
				t.Fatalf("%s is read as %q", name, got)
			}
		}
	}
	max := Segment{Partition: math.MaxUint32, Start: math.MaxUint64, End: math.MaxUint64, Epoch: math.MaxUint64, Incarnation: math.MaxUint64, Unique: math.MaxUint64}
	if got, err := ParseSegment(max.String()); err != nil || got != max {
		t.Fatalf("the largest is read as %+v, %v", got, err)
	}
}

func TestForeignNamesAreRefused(t *testing.T) {
	good := Segment{Topic: topicID(0), Partition: 1, Start: 1, End: 2, Epoch: 3, Incarnation: 4, Unique: 5}.String()
	for what, name := range map[string]string{
		"upper case":       strings.ToUpper(good),
		"no suffix":        strings.TrimSuffix(good, ".seg"),
		"two suffixes":     good + ".seg",
		"copy":             good + " (1)",
		"a sign":           strings.Replace(good, "-4-", "-+4-", 1),
		"leading zero":     strings.Replace(good, "/1/", "/01/", 1),
		"large partition":  strings.Replace(good, "/1/", "/4294967296/", 1),
		"prefix left":      "danube/" + good,
		"empty":            "",
		"self-test":        "check/ABCDEFGH",
		"no such history":  "histories/65536",
		"manifest of none": "manifests/65536-00000000000000000004",
	} {
		if got := parseAny(name); len(got) != 0 {
			t.Errorf("%s: %s is read as %v", what, name, got)
		}
		if _, ok := Incarnation(name); ok {
			t.Errorf("%s: %s has an incarnation", what, name)
		}
	}
}

func TestIncarnationIsThatOfTheMaker(t *testing.T) {
	for name, want := range map[string]uint64{
		Segment{Incarnation: 9, Unique: 1}.String(): 9, Page{Incarnation: 8}.String(): 8, Cut{Incarnation: 7}.String(): 7,
	} {
		if got, ok := Incarnation(name); !ok || got != want {
			t.Errorf("%s: %d %t, want %d", name, got, ok, want)
		}
	}
	for _, name := range []string{Cluster, Manifest{}.String(), History(3)} {
		if n, ok := Incarnation(name); ok {
			t.Errorf("%s has incarnation %d: it would be collected as garbage", name, n)
		}
	}
}

// Names of a partition sort as its offsets do, and no two kinds share a prefix that is listed for one of them.
func TestNamesSortByOffset(t *testing.T) {
	var names []string
	for i := range 30 {
		start := uint64(1) << (2 * i)
		names = append(names, Segment{Topic: topicID(0), Start: start, End: start + 1, Unique: uint64(i * 7919)}.String())
	}
	if !slices.IsSorted(names) {
		t.Error("names are not in the order of offsets")
	}
	if p := OfPartition(topicID(0), 1); strings.HasPrefix(OfPartition(topicID(0), 10), p) || !strings.HasPrefix(p, OfTopic(topicID(0))) {
		t.Errorf("the prefix %s takes in partition 10", p)
	}
}

func FuzzParse(f *testing.F) {
	for name := range all() {
		f.Add(name)
	}
	f.Add(fmt.Sprintf("%s%s", OfPartition(topicID(3), 3), "00000000000000000001-.seg"))
	f.Fuzz(func(t *testing.T, name string) {
		got := parseAny(name)
		if len(got) > 1 || len(got) == 1 && got[0] != name {
			t.Fatalf("%q is read as %q", name, got)
		}
	})
}
