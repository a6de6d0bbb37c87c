package protocol

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// vector is one row of testdata/key-vectors.json, which was computed with an
// independent implementation of XXH64 and never changes: every client must agree.
type vector struct {
	Name       string         `json:"name"`
	Key        string         `json:"key_hex"`
	Hash       string         `json:"xxh64"`
	Partitions map[string]int `json:"partitions"`
}

func vectors(t testing.TB) []vector {
	t.Helper()
	text, err := os.ReadFile("testdata/key-vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var rows []vector
	if err := json.Unmarshal(text, &rows); err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestPartitionOfMatchesTheVectors(t *testing.T) {
	rows := vectors(t)
	if len(rows) < 10 {
		t.Fatalf("%d vectors", len(rows))
	}
	for _, v := range rows {
		key, err := hex.DecodeString(v.Key)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%016x", xxhash.Sum64(key)); got != v.Hash {
			t.Errorf("%s: hash %s, want %s", v.Name, got, v.Hash)
		}
		if len(v.Partitions) != 4 {
			t.Errorf("%s: %d partition counts", v.Name, len(v.Partitions))
		}
		for n, want := range v.Partitions {
			var count int
			if _, err := fmt.Sscan(n, &count); err != nil {
				t.Fatal(err)
			}
			if got := PartitionOf(key, count); got != want {
				t.Errorf("%s of %d: partition %d, want %d", v.Name, count, got, want)
			}
		}
	}
}

func TestProducerID(t *testing.T) {
	// The first 8 bytes of the SHA-256 of "orders", computed elsewhere, read little-endian.
	const want = 0xe408d200db8a161c
	if got := ProducerID("orders"); got != want {
		t.Errorf("ProducerID(orders) = %#x, want %#x", got, uint64(want))
	}
	if ProducerID("a") == ProducerID("b") {
		t.Error("two names, one id")
	}
}

func TestParseTopic(t *testing.T) {
	long := strings.Repeat("x", 255)
	tests := map[string]struct {
		full      string
		partition int
	}{
		"orders":                  {"/default/orders", -1},
		"orders:0":                {"/default/orders", 0},
		"/ns/orders":              {"/ns/orders", -1},
		"/ns/orders:17":           {"/ns/orders", 17},
		"/A.b_c-9/._-":            {"/A.b_c-9/._-", -1},
		"/" + long + "/" + long:   {"/" + long + "/" + long, -1},
		"/default/orders:1023":    {"/default/orders", 1023},
		"0":                       {"/default/0", -1},
		"/default/1.2.3:00000012": {"/default/1.2.3", 12},
	}
	for in, want := range tests {
		full, partition, err := ParseTopic(in)
		if err != nil || full != want.full || partition != want.partition {
			t.Errorf("%q: %q %d %v, want %+v", in, full, partition, err, want)
		}
	}
}

func TestParseTopicRefuses(t *testing.T) {
	tests := []string{
		"", "/", "//", "/ns", "/ns/", "//x", "/ns/a/b", "ns/a", "a b", "a\n", "ä", "a\x00", "a\xff", "*", "a:", "a:x", "a:-1",
		"a:+1", "a:1:2", "a:1024", "a:99999999999999999999", ":1", "/ns/:1",
		strings.Repeat("x", 256), "/" + strings.Repeat("x", 256) + "/a", strings.Repeat("/", 100_000),
	}
	for _, in := range tests {
		full, partition, err := ParseTopic(in)
		e, ok := err.(*Error)
		if !ok || e.Code != CodeBadName || full != "" || partition != -1 {
			t.Errorf("%.40q: %q %d %v", in, full, partition, err)
			continue
		}
		names, numbers := strings.Contains(e.Text, "letters, digits and . _ -"), strings.Contains(e.Text, "0 to 1023")
		if !names && !numbers || len(e.Text) > 1500 {
			t.Errorf("%.40q: the error does not say what is allowed: %s", in, e.Text)
		}
	}
}

func TestCheckName(t *testing.T) {
	if err := CheckName("subscription", "billing-2"); err != nil {
		t.Error(err)
	}
	err := CheckName("subscription", "a/b")
	if err == nil || !strings.Contains(err.Error(), `subscription "a/b"`) || !strings.Contains(err.Error(), "letters") {
		t.Errorf("got %v", err)
	}
}
