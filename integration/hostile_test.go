package integration

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
	"github.com/danubemq/danube/protocol"
)

// hello is a valid first frame.
func hello() []byte {
	return protocol.AppendFrame(nil, protocol.TypeHello, 1, &protocol.Hello{
		Cookie: protocol.Magic, MinVersion: protocol.Version, MaxVersion: protocol.Version, Client: "hostile"}, nil)
}

// attacks are what hostile or broken peers send and then wait.
func attacks() map[string]func(*rand.Rand) []byte {
	return map[string]func(*rand.Rand) []byte{
		"nothing":       func(*rand.Rand) []byte { return nil },
		"half a frame":  func(rnd *rand.Rand) []byte { h := hello(); return h[:1+rnd.IntN(len(h)-1)] },
		"garbage":       func(rnd *rand.Rand) []byte { return randomBytes(rnd, 1+rnd.IntN(4096)) },
		"huge length":   func(*rand.Rand) []byte { return []byte{0xff, 0xff, 0xff, 0xff} },
		"large hello":   func(*rand.Rand) []byte { return binary.LittleEndian.AppendUint32(nil, 60<<10) },
		"then garbage":  func(rnd *rand.Rand) []byte { return append(hello(), randomBytes(rnd, 1000)...) },
		"then huge":     func(*rand.Rand) []byte { return append(hello(), 0xff, 0xff, 0xff, 0x7f) },
		"then a half":   func(rnd *rand.Rand) []byte { return append(hello(), hello()[:10]...) },
		"then too many": func(*rand.Rand) []byte { return append(hello(), hello()...) },
	}
}

// besiege opens n connections, each with an attack, and returns a function that waits until the broker has dropped all
// those that never said a valid HELLO or sent what is no frame.
func besiege(t testing.TB, b *broker, n int) (dropped func()) {
	t.Helper()
	var names []string
	for name := range attacks() {
		names = append(names, name)
	}
	var wg sync.WaitGroup
	for i := range n {
		name := names[i%len(names)]
		rnd := rand.New(rand.NewPCG(uint64(i), 9))
		c, err := net.DialTimeout("tcp", b.address(), 10*time.Second)
		if err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := c.Write(attacks()[name](rnd)); err != nil {
			t.Fatalf("connection %d: %v", i, err)
		}
		wg.Go(func() { // returns when the broker hangs up, or after the deadline
			if err := c.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
				t.Error(err)
			}
			if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a peer that sent %s is still connected", name)
			}
		})
	}
	return wg.Wait
}

// TestHostileConnections: a thousand connections of half frames, garbage and huge lengths. A good client beside them
// sends and reads as if they were not there; every one of them is dropped; nothing panics (A72).
func TestHostileConnections(t *testing.T) {
	b := startBroker(t, "n1", options{})
	p := b.produce("good")
	sendEach(t, p, 0, 10, 100)
	dropped := besiege(t, b, scaled(1000))
	from := time.Now()
	sendEach(t, p, 10, 100, 100)
	b.holds("good", 110, 100)
	if took := time.Since(from); took > 10*time.Second {
		t.Errorf("beside them a hundred messages took %v", took)
	}
	dropped()
	if b.process.ended() {
		t.Fatal(b.ending())
	}
	sendEach(t, p, 110, 10, 100)
	b.holds("good", 120, 100)
	b.stop(10 * time.Second)
}

// TestHostilePrefixes sends every prefix of valid frames, then random bytes, after a valid HELLO (A72).
func TestHostilePrefixes(t *testing.T) {
	t.Parallel()
	b := startBroker(t, "n1", options{})
	sendEach(t, b.produce("good"), 0, 10, 100)
	frames := [][]byte{
		protocol.AppendFrame(nil, protocol.TypeLookup, 2, &protocol.Lookup{Topic: "good"}, nil),
		protocol.AppendFrame(nil, protocol.TypeFetch, 2, &protocol.Fetch{Topic: "good", MaxBytes: 1 << 20}, nil),
		protocol.AppendFrame(nil, protocol.TypeOpenProducer, 2, &protocol.OpenProducer{Topic: "good", Producer: 1, Session: 1}, nil),
		protocol.AppendFrame(nil, protocol.TypeProduce, 2, &protocol.Produce{Handle: 1}, make([]byte, 100)),
		protocol.AppendFrame(nil, protocol.TypeSubscribe, 2, &protocol.Subscribe{Topic: "good", Subscription: "s"}, nil),
		protocol.AppendFrame(nil, protocol.TypeAdmin, 2, &protocol.Admin{Op: "topic.list"}, []byte{0x80}),
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for k, frame := range frames {
		for n := 1; n < len(frame); n += max(1, len(frame)/scaled(200)) {
			c, err := net.Dial("tcp", b.address())
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.Write(append(append(hello(), frame[:n]...), randomBytes(rnd, 200)...))
			c.Close()
			if err != nil {
				t.Fatalf("frame %d cut at %d: %v", k, n, err)
			}
		}
	}
	b.holds("good", 10, 100)
	b.stop(10 * time.Second)
}

// TestHostileSlowReader: one consumer that does not read among those that do; they are not held up, and the broker stays
// bounded: what is in flight to one connection has a limit (A71).
func TestHostileSlowReader(t *testing.T) {
	b := startBroker(t, "n1", options{})
	const n, size = 2000, 10 << 10
	p := b.produce("good")
	for i := range n {
		if err := p.SendAsync(t.Context(), client.Message{Payload: numbered(i, size)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 10 { // each asks for everything and reads nothing
		c, err := net.Dial("tcp", b.address())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		sub := protocol.AppendFrame(hello(), protocol.TypeSubscribe, 2, &protocol.Subscribe{
			Topic: "good", Subscription: fmt.Sprint("slow", i), Consumer: "c", Start: protocol.Position{Kind: protocol.Earliest}, Credit: n}, nil)
		if _, err := c.Write(sub); err != nil {
			t.Fatal(err)
		}
	}
	from := time.Now()
	for i := range 3 {
		got := b.must(nil, "consume", "good", "-s", fmt.Sprint("fast", i), "--from", "earliest", "--count", fmt.Sprint(n), "-o", "raw").stdout
		if len(got) != n*(size+1) {
			t.Errorf("a fast consumer got %d bytes", len(got))
		}
	}
	if took := time.Since(from); took > 20*time.Second {
		t.Errorf("beside slow consumers three fast ones took %v", took)
	}
	b.stop(10 * time.Second)
}
