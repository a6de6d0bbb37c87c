package protocol

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/danubemq/danube/protocol/batch"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// sample is a frame of each type with every field set.
type sample struct {
	name   string
	typ    Type
	id     uint64
	header coded
	body   []byte
}

func samples(t testing.TB) []sample {
	t.Helper()
	whole, part := sampleBatches(t)
	admin, err := EncodeBody(&TopicArgs{Topic: "/default/orders", Partition: -1})
	if err != nil {
		t.Fatal(err)
	}
	moved := Error{
		Code: CodeMoved, Text: "broker n2 owns /default/orders:0", Hint: "look up again", Broker: "n2",
		Address: "10.0.0.2:6650", Epoch: 6, Want: 17, Request: "n1-4711",
	}
	create := &TopicConfig{Partitions: 3, NonReliable: true, Durability: "local", RetentionMS: 3_600_000, RetentionBytes: 1 << 30}
	options := SubOptions{MaxUnacked: 1000, AckTimeoutMS: 30_000, MaxRedeliver: 5, BackoffMS: 100, BackoffCapMS: 60_000, BackoffFixed: true, NoDurableAcks: true}
	ranges := Ranges{Handle: 4, Generation: 2, Ranges: []Range{{1_000_000, 1_000_003}, {1_000_010, 1_000_011}}}
	id := []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	return []sample{
		{"error", TypeError, 7, &moved, nil},
		{"hello", TypeHello, 1, &Hello{Magic, 1, 1, "danube-go/0.1", "token", []byte("s3cret"), []string{"x"}}, nil},
		{"hello-ok", TypeHelloOK, 1, &HelloOK{1, "n1", "danube", "0.1.0", 17 << 20, 10 << 20, 16 << 20, 64, 3000, []string{"x"}}, nil},
		{"ping", TypePing, 2, nil, nil},
		{"pong", TypePong, 2, nil, nil},
		{"lookup", TypeLookup, 3, &Lookup{"/default/orders", create}, nil},
		{"lookup-acked", TypeLookup, 3, &Lookup{"/default/orders", &TopicConfig{Partitions: 3, RetentionBytes: 1 << 30, RetentionAcked: true}}, nil},
		{"lookup-ok", TypeLookupOK, 3, &LookupOK{id, "/default/orders", true, "local", true, []PartitionOwner{{"n1", "10.0.0.1:6650", 5}}}, nil},
		{"admin", TypeAdmin, 4, &Admin{OpTopicDescribe}, admin},
		{"admin-ok", TypeAdminOK, 4, nil, []byte{0x80}},
		{"open-producer", TypeOpenProducer, 5, &OpenProducer{"/default/orders", 2, 5, "shop", ProducerID("shop"), 0x99aabbcc, 7, true}, nil},
		{"open-producer-ok", TypeOpenProducerOK, 5, &OpenProducerOK{3, 5, true, 6}, nil},
		{"produce", TypeProduce, 6, &Produce{3, 5}, whole},
		{"produce-ok", TypeProduceOK, 6, &ProduceOK{1_000_000, 1_700_000_002_000, true, uint8(LevelWarm)}, nil},
		{"close-producer", TypeCloseProducer, 7, &Handle{3}, nil},
		{"closed", TypeClosed, 7, nil, nil},
		{"subscribe", TypeSubscribe, 8, &Subscribe{"/default/orders", 2, 5, "billing", "billing-1", Shared, Position{Kind: Earliest}, true, -1, []string{"eu-*"}, 1000, options}, nil},
		{"subscribe-ok", TypeSubscribeOK, 8, &SubscribeOK{4, 5, true, Shared, 1_000_000, 2, 1000}, nil},
		{"credit", TypeCredit, 0, &Credit{4, 500}, nil},
		{"deliver", TypeDeliver, 0, &Deliver{4, 2, 1_000_001, 1, 2, true}, part},
		{"gap", TypeGap, 0, &GapNotice{4, 10, 20, "lost"}, nil},
		{"received", TypeReceived, 0, &ranges, nil},
		{"ack", TypeAck, 9, &Ack{ranges, true, true}, nil},
		{"ack-ok", TypeAckOK, 9, &AckOK{1}, nil},
		{"nack", TypeNack, 0, &Nack{ranges, 5000, "no such customer"}, nil},
		{"close-consumer", TypeCloseConsumer, 10, &Handle{4}, nil},
		{"seek", TypeSeek, 11, &Seek{4, Position{Kind: AtTime, Time: 1_700_000_000_000}}, nil},
		{"seek-ok", TypeSeekOK, 11, &SeekOK{1_000_000, 3}, nil},
		{"unsubscribed", TypeUnsubscribed, 0, &Detached{4, Error{Code: CodeConsumerReplaced}}, nil},
		{"fetch", TypeFetch, 12, &Fetch{"/default/orders", 2, 5, Position{Kind: AtOffset, Offset: 1_000_001}, 1 << 20, 500}, nil},
		{"fetch-ok", TypeFetchOK, 12, &FetchOK{5, 1_000_001, 1_000_002, 1_000_012, 10, 1_000_020, "lost"}, whole},
		{"go-away", TypeGoAway, 0, &Error{Code: CodeShuttingDown}, nil},
	}
}

// sampleBatches returns a batch of two messages as a broker stored it, and the part with its second.
func sampleBatches(t testing.TB) (whole, part []byte) {
	t.Helper()
	var w batch.Builder
	w.Add(&batch.Message{Payload: []byte("first"), PublishTime: 1_700_000_000_000})
	w.Add(&batch.Message{
		Payload: []byte("second"), Key: []byte("k1"), PublishTime: 1_700_000_000_005, Schema: 7,
		Properties: []batch.Property{{Name: "colour", Value: "red"}},
	})
	whole, err := w.AppendTo(nil, batch.None, batch.Identity{Producer: ProducerID("shop"), Session: 0x99aabbcc, Sequence: 7})
	if err != nil {
		t.Fatal(err)
	}
	batch.Batch(whole).Stamp(batch.Stamp{Base: 1_000_000, Epoch: 5, AppendTime: 1_700_000_002_000, Synced: 999_990})
	part, err = batch.AppendPart(nil, whole, []int{1}, batch.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return whole, part
}

func (s sample) frame() []byte {
	if s.header == nil {
		return AppendFrame(nil, s.typ, s.id, nil, s.body)
	}
	return AppendFrame(nil, s.typ, s.id, s.header, s.body)
}

// dump writes bytes as the golden files and the docs show them.
func dump(b []byte) string {
	var text strings.Builder
	for at := 0; at < len(b); at += 16 {
		fmt.Fprintf(&text, "% x\n", b[at:min(at+16, len(b))])
	}
	return text.String()
}

func TestGoldenFrames(t *testing.T) {
	seen := map[Type]bool{}
	for _, s := range samples(t) {
		seen[s.typ] = true
		path := filepath.Join("testdata", "frames", s.name+".hex")
		got := dump(s.frame())
		if *update {
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got != string(want) {
			t.Errorf("%s: the bytes changed; they were\n%sand are\n%s", s.name, want, got)
		}
		readGolden(t, s, string(want))
	}
	for i, name := range typeNames {
		if name != "" && !seen[Type(i)] {
			t.Errorf("no sample of %s", name)
		}
	}
}

// readGolden reads the bytes of a golden file back.
func readGolden(t *testing.T, s sample, text string) {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		t.Fatal(err)
	}
	f, err := NewReader(bytes.NewReader(b), 4096).Next()
	if err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	if f.Type != s.typ || f.ID != s.id || !bytes.Equal(f.Body, s.body) {
		t.Errorf("%s reads as %+v", s.name, f)
	}
	if s.header == nil {
		return
	}
	h := fresh(s.header)
	if err := h.Decode(f.Header); err != nil {
		t.Errorf("%s: %v", s.name, err)
	}
	if got, want := fmt.Sprintf("%+v", deref(h)), fmt.Sprintf("%+v", deref(s.header)); got != want {
		t.Errorf("%s reads as\n%s, was\n%s", s.name, got, want)
	}
}

// The three ways to write a frame give the same bytes.
func TestWaysToWriteAFrame(t *testing.T) {
	h := &Produce{Handle: 1, Epoch: 2}
	body := []byte("body")
	whole := AppendFrame([]byte("x"), TypeProduce, 9, h, body)
	parts := append(AppendHead([]byte("x"), TypeProduce, 9, h, len(body)), body...)
	dst := BeginFrame([]byte("x"), TypeProduce, 9)
	dst = h.AppendTo(dst)
	EndHead(dst[1:], len(body))
	if dst = append(dst, body...); !bytes.Equal(whole, parts) || !bytes.Equal(whole, dst) {
		t.Errorf("three ways:\n%x\n%x\n%x", whole, parts, dst)
	}
}

// A header on the stack stays there.
func TestFramesOfHotHeadersAllocateNothing(t *testing.T) {
	dst := make([]byte, 0, 1024)
	n := testing.AllocsPerRun(100, func() {
		ok := ProduceOK{Base: 1 << 40, AppendTime: 1_700_000_000_000, Level: 1}
		b := BeginFrame(dst, TypeProduceOK, 1)
		b = ok.AppendTo(b)
		EndHead(b, 0)
	})
	if n != 0 {
		t.Errorf("%v allocations to write a frame", n)
	}
	for _, s := range samples(t) {
		switch s.typ {
		case TypeProduce, TypeProduceOK, TypeDeliver, TypeCredit, TypeReceived, TypeAck, TypeAckOK, TypeNack, TypeFetch, TypeFetchOK:
			b, h := s.header.AppendTo(nil), fresh(s.header)
			n := testing.AllocsPerRun(100, func() {
				if err := h.Decode(b); err != nil {
					t.Fatal(err)
				}
				dst = s.header.AppendTo(dst[:0])
			})
			if n != 0 {
				t.Errorf("%s: %v allocations in both directions", s.name, n)
			}
		}
	}
}

func BenchmarkHeaders(b *testing.B) {
	for _, s := range samples(b) {
		if s.header == nil {
			continue
		}
		wire := s.header.AppendTo(nil)
		b.Run("append/"+s.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				wire = s.header.AppendTo(wire[:0])
			}
		})
		b.Run("decode/"+s.name, func(b *testing.B) {
			h := fresh(s.header)
			b.ReportAllocs()
			for b.Loop() {
				if err := h.Decode(wire); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
