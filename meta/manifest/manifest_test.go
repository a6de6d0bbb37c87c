package manifest

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// rewrite makes `go test -update` write the golden files anew.
var rewrite = flag.Bool("update", false, "rewrite the golden files")

func id(first byte) (a [16]byte) {
	for i := range a {
		a[i] = first + byte(i)
	}
	return a
}

// sample is the manifest of the golden file: a topic of two partitions, of which one was never opened, a tombstone and a
// subscription.
func sample() *Manifest {
	return &Manifest{
		Cluster: state.Cluster{ID: id(0x10), Name: "danube", History: 1}, Index: 4711, Time: 1_700_000_000_000,
		Namespaces: []state.Namespace{{Name: "default"}, {Name: "shop", Limits: state.Limits{PublishRate: 1000}}},
		Topics: []Topic{
			{
				Topic: state.Topic{ID: id(0x50), Name: "/shop/orders", CreatedAt: 1_600_000_000_000, Settings: state.TopicSettings{
					Partitions: 2, Reliable: true, Durability: state.LevelObject, RetentionTime: time.Hour, RetentionBytes: 1 << 30,
				}},
				Partitions: []Partition{
					{
						Epoch: 1<<48 | 3, Ceiling: 5000, Floor: 4200, LogStart: 100, Superseded: state.Offsets{{Start: 310, End: 320}},
						Ranges: []Range{
							{Epochs: []state.EpochStart{{Epoch: 7, Start: 100}, {Epoch: 9, Start: 200}}, Start: 100, End: 300, Lowest: state.LevelLocal, Status: state.RangeSealed},
							{Epochs: []state.EpochStart{{Epoch: 1<<48 | 3, Start: 4000}}, Start: 4000, Lowest: state.LevelObject},
						},
					},
					{},
				},
			},
			{Topic: state.Topic{ID: id(0x70), Name: "/shop/gone", CreatedAt: 1, DeletedAt: 2, Settings: state.TopicSettings{Partitions: 1, Reliable: true, Durability: state.LevelLocal}}},
		},
		Subscriptions: []state.Subscription{{
			ID: 12, Topic: id(0x50), Name: "s", Type: state.Shared, Options: state.SubscriptionOptions{MaxUnacked: 100}, Start: []uint64{100, 0},
			Cursors: []state.Cursor{{Generation: 1, Prefix: 250, Acked: state.Offsets{{Start: 260, End: 270}}, Counts: state.OffsetNumbers{{Offset: 255, Number: 3}}}, {}},
		}},
	}
}

func encoded(t testing.TB, m *Manifest) []byte {
	t.Helper()
	b, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// hexLines is bytes as hex, 32 to a line.
func hexLines(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		n := min(32, len(b))
		out.WriteString(hex.EncodeToString(b[:n]) + "\n")
		b = b[n:]
	}
	return out.String()
}

// golden compares with a file that docs/format.md shows.
func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("encoded as\n%s", got)
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "format.md"))
	if err != nil || !strings.Contains(string(page), string(want)) {
		t.Errorf("docs/format.md shows something else: %v", err)
	}
}

func TestManifestIsAsTheFormatSays(t *testing.T) {
	golden(t, "manifest.v1.hex", hexLines(encoded(t, sample())))
	want, err := os.ReadFile(filepath.Join("testdata", "manifest.v1.hex"))
	if err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(strings.Join(strings.Fields(string(want)), ""))
	if err != nil {
		t.Fatal(err)
	}
	if m, err := Decode(data); err != nil || !reflect.DeepEqual(m, sample()) {
		t.Errorf("read as %+v, %v", m, err)
	}
}

// Every single bit and every length counts.
func TestDamagedManifestIsRefused(t *testing.T) {
	data := encoded(t, sample())
	for i := range data {
		for bit := range 8 {
			hurt := bytes.Clone(data)
			hurt[i] ^= 1 << bit
			if m, err := Decode(hurt); !errors.Is(err, ErrDamaged) {
				t.Fatalf("bit %d of byte %d turned: %+v, %v", bit, i, m, err)
			}
		}
		if m, err := Decode(data[:i]); !errors.Is(err, ErrDamaged) {
			t.Fatalf("%d bytes of it: %+v, %v", i, m, err)
		}
	}
}

// resealed is bytes with a CRC that fits them.
func resealed(body []byte) []byte {
	b := bytes.Clone(body)
	return binary.LittleEndian.AppendUint32(b, checksum(b))
}

func TestNewerVersionIsNamed(t *testing.T) {
	data := encoded(t, sample())
	data[len(magic)] = 2
	if _, err := Decode(resealed(data[:len(data)-crcBytes])); !isVersion(err, 2) {
		t.Error(err)
	}
	beat := []byte(strings.Replace(string(sampleBeat().Encode()), `"version":1`, `"version":2`, 1))
	line, _, _ := bytes.Cut(beat, []byte("\n"))
	if _, err := DecodeBeat([]byte(string(line) + "\n" + hex.EncodeToString(binary.BigEndian.AppendUint32(nil, checksum(line))) + "\n")); !isVersion(err, 2) {
		t.Error(err)
	}
}

func isVersion(err error, found int) bool {
	v, ok := errors.AsType[*VersionError](err)
	return ok && v.Found == found && v.Known == 1
}

// What readers rely on is not read otherwise, whatever the checksum says.
func TestNonsenseIsRefused(t *testing.T) {
	for name, change := range map[string]func(*Manifest){
		"topics not in order":          func(m *Manifest) { m.Topics[0], m.Topics[1] = m.Topics[1], m.Topics[0] },
		"a topic twice":                func(m *Manifest) { m.Topics[1].ID = m.Topics[0].ID },
		"a partition too few":          func(m *Manifest) { m.Topics[0].Partitions = m.Topics[0].Partitions[:1] },
		"partitions of a tombstone":    func(m *Manifest) { m.Topics[1].Partitions = make([]Partition, 1) },
		"ranges overlap":               func(m *Manifest) { m.Topics[0].Partitions[0].Ranges[0].End = 4001 },
		"a range without epoch":        func(m *Manifest) { m.Topics[0].Partitions[0].Ranges[0].Epochs = nil },
		"epochs fall":                  func(m *Manifest) { m.Topics[0].Partitions[0].Ranges[0].Epochs[1].Epoch = 6 },
		"an epoch behind its range":    func(m *Manifest) { m.Topics[0].Partitions[0].Ranges[0].Epochs[1].Start = 300 },
		"an open range with an end":    func(m *Manifest) { m.Topics[0].Partitions[0].Ranges[1].End = 4500 },
		"a sealed range without end":   func(m *Manifest) { m.Topics[0].Partitions[0].Ranges[1].Status = state.RangeSealed },
		"subscription of no topic":     func(m *Manifest) { m.Subscriptions[0].Topic = id(0x51) },
		"subscription of a tombstone":  func(m *Manifest) { m.Subscriptions[0].Topic = id(0x70) },
		"a cursor too few":             func(m *Manifest) { m.Subscriptions[0].Cursors = m.Subscriptions[0].Cursors[:1] },
		"a starting position too many": func(m *Manifest) { m.Subscriptions[0].Start = make([]uint64, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			m := sample()
			change(m)
			if got, err := Decode(encoded(t, m)); !errors.Is(err, ErrDamaged) {
				t.Errorf("read as %+v, %v", got, err)
			}
		})
	}
}

func sampleBeat() Beat {
	return Beat{Cluster: id(0x10), Name: "danube", History: 1, Index: 4711, Time: time.Unix(1_700_000_000, 0).UTC(), Store: id(0x30)}
}

func TestBeatIsAsTheFormatSays(t *testing.T) {
	golden(t, "cluster.v1.txt", string(sampleBeat().Encode()))
	got, err := DecodeBeat(sampleBeat().Encode())
	if err != nil || got != sampleBeat() {
		t.Errorf("read as %+v, %v", got, err)
	}
	data := sampleBeat().Encode()
	for i := range data[:len(data)-1] {
		hurt := bytes.Clone(data)
		hurt[i] ^= 1
		if b, err := DecodeBeat(hurt); !errors.Is(err, ErrDamaged) {
			t.Fatalf("byte %d turned: %+v, %v", i, b, err)
		}
		if b, err := DecodeBeat(data[:i]); !errors.Is(err, ErrDamaged) && got != b {
			t.Fatalf("%d bytes of it: %+v, %v", i, b, err)
		}
	}
}

func TestNewerIsOfTheLaterVersion(t *testing.T) {
	at := func(history uint16, index uint64) *Manifest {
		return &Manifest{Cluster: state.Cluster{History: history}, Index: index}
	}
	for name, c := range map[string]struct {
		m, other *Manifest
		want     bool
	}{
		"than none":                    {at(0, 1), nil, true},
		"than itself":                  {at(1, 5), at(1, 5), false},
		"a later index":                {at(1, 6), at(1, 5), true},
		"a later history, lower index": {at(2, 1), at(1, 5), true},
		"an earlier history":           {at(0, 9), at(1, 5), false},
	} {
		if got := c.m.Newer(c.other); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// FuzzDecode never panics, never takes more memory than the bytes are worth, and what it reads it would write again.
func FuzzDecode(f *testing.F) {
	data := encoded(f, sample())
	f.Add(data[:len(data)-crcBytes])
	f.Add([]byte(magic + "\x01"))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, err := Decode(resealed(body))
		if err != nil {
			return
		}
		again, err := Decode(encoded(t, m))
		if err != nil || !bytes.Equal(encoded(t, again), encoded(t, m)) {
			t.Errorf("%+v became %+v, %v", m, again, err)
		}
	})
}

func FuzzDecodeBeat(f *testing.F) {
	f.Add(string(sampleBeat().Encode()))
	f.Add(`{"version":1,"cluster":"00","time":"2020-01-01T00:00:00Z"}` + "\n")
	f.Fuzz(func(t *testing.T, text string) {
		line, _, _ := strings.Cut(text, "\n")
		b, err := DecodeBeat([]byte(line + "\n" + hex.EncodeToString(binary.BigEndian.AppendUint32(nil, checksum([]byte(line)))) + "\n"))
		if err != nil {
			return
		}
		if again, err := DecodeBeat(b.Encode()); err != nil || again.Cluster != b.Cluster || again.History != b.History {
			t.Errorf("%+v became %+v, %v", b, again, err)
		}
	})
}
