package pipe

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol/batch"
)

func TestTextIsSafeForTerminals(t *testing.T) {
	for payload, want := range map[string]string{
		"plain":            "plain",
		"tab\tkept":        "tab\tkept",
		"grüß → 世界":        "grüß → 世界",
		"\x1b[31mred":      `\x1b[31mred`,
		"a\nb\r":           `a\nb\r`,
		"\xff\xfe":         `\xff\xfe`,
		"\x00":             `\x00`,
		"bidi \u202e here": `bidi \u202e here`,
		"\ufffd":           "\ufffd",
	} {
		if got := string(AppendText(nil, &client.Message{Payload: []byte(payload)})); got != want+"\n" {
			t.Errorf("%q is printed as %q, want %q", payload, got, want)
		}
	}
}

// TestMessageJSONAnyBytes: whatever the bytes, the line is JSON that says the same.
func TestMessageJSONAnyBytes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		payload := make([]byte, rng.IntN(12))
		for i := range payload {
			payload[i] = byte(rng.IntN(256))
			if rng.IntN(2) == 0 {
				payload[i] &= 0x7f
			}
		}
		line := AppendJSON(nil, &client.Message{Topic: string(payload), Payload: payload})
		var got struct {
			Payload *string `json:"payload"`
			Base64  string  `json:"payload_base64"`
			Topic   string  `json:"topic"`
		}
		if err := json.Unmarshal(line, &got); err != nil || bytes.Count(line, []byte("\n")) != 1 {
			t.Fatalf("%q: %v", line, err)
		}
		back, err := base64.StdEncoding.DecodeString(got.Base64)
		if err != nil {
			t.Fatal(err)
		}
		if got.Payload != nil {
			back = []byte(*got.Payload)
		}
		if !bytes.Equal(back, payload) || got.Topic != string(bytes.ToValidUTF8(payload, []byte("\ufffd"))) && len(got.Topic) == 0 && len(payload) > 0 {
			t.Fatalf("%q came back as %q", payload, back)
		}
	}
}

// TestGoldenConsume holds what consume -o json prints.
func TestGoldenConsume(t *testing.T) {
	var b []byte
	for _, m := range []client.Message{{
		Topic: "/default/orders", Partition: 1, Offset: 42, Key: []byte("k\x01"), Payload: []byte("grüß\t\"dich\"\n<&>\u2028"),
		Properties: []batch.Property{{Name: "a", Value: "1"}, {Name: "b", Value: "\\"}}, PublishTime: noon(), AppendTime: noon().Add(1500 * time.Microsecond), Deliveries: 2,
	}, {
		Topic: "/default/orders", Offset: 43, Key: []byte{0xff}, Payload: []byte{0, 0xfe, 0xff}, PublishTime: noon(), AppendTime: noon(),
	}} {
		b = AppendJSON(b, &m)
	}
	golden(t, "consume.json", b)
}
