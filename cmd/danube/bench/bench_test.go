package bench

import (
	"errors"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/danubemq/danube/client"
)

func TestStampsAreReadBack(t *testing.T) {
	table := crc32.MakeTable(crc32.Castagnoli)
	for _, size := range []int{StampSize, StampSize + 1, 128, 16 << 10} {
		s := newStamper(7, 3, size)
		for n := range uint64(3) {
			got, err := readStamp(table, s.next())
			if err != nil || got != (stamp{run: 7, seq: n, stream: 3}) {
				t.Errorf("size %d: %+v, %v", size, got, err)
			}
		}
	}
}

func TestEveryFlippedBitOfAStampedMessageIsSeen(t *testing.T) {
	table := crc32.MakeTable(crc32.Castagnoli)
	m := newStamper(7, 3, 64).next()
	for bit := range len(m) * 8 {
		m[bit/8] ^= 1 << (bit % 8)
		if _, err := readStamp(table, m); err == nil {
			t.Errorf("bit %d flipped and not seen", bit)
		}
		m[bit/8] ^= 1 << (bit % 8)
	}
	if _, err := readStamp(table, []byte("hello")); !errors.Is(err, errNotStamped) {
		t.Errorf("another message: %v", err)
	}
}

// stamped makes n messages of a stream as they are read back.
func stamped(run uint64, stream uint32, n int) []client.Message {
	s := newStamper(run, stream, 64)
	var all []client.Message
	for i := range n {
		all = append(all, client.Message{Topic: "/default/t", Offset: uint64(i), Payload: append([]byte(nil), s.next()...), Deliveries: 1})
	}
	return all
}

// TestCheckerSeesWhatIsWrong: each way in which a broker can be wrong is an error, and being right is none.
func TestCheckerSeesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func([]client.Message) []client.Message
		errors int64
		count  uint64
	}{
		"right":      {func(m []client.Message) []client.Message { return m }, 0, 10},
		"one lost":   {func(m []client.Message) []client.Message { return append(m[:4:4], m[5:]...) }, 0, 9}, // the count tells
		"one twice":  {func(m []client.Message) []client.Message { return append(m, m[9]) }, 1, 10},
		"two turned": {func(m []client.Message) []client.Message { m[3], m[4] = m[4], m[3]; return m }, 1, 9},
		"one broken": {func(m []client.Message) []client.Message { m[3].Payload[0] ^= 1; return m }, 1, 9},
		"others among them": {func(m []client.Message) []client.Message {
			return append([]client.Message{{Payload: []byte("hello")}, stamped(8, 0, 1)[0]}, m...)
		}, 0, 10},
	} {
		check := newChecker(7, Surroundings{})
		for _, m := range c.spoil(stamped(7, 0, 10)) {
			check.message(&m)
		}
		if check.errors != c.errors || check.count[0] != c.count {
			t.Errorf("%s: %d errors and %d messages, want %d and %d", name, check.errors, check.count[0], c.errors, c.count)
		}
		before := check.errors
		check.complete(map[uint32]uint64{0: 10})
		if lacks := check.errors > before; lacks != (c.count != 10) {
			t.Errorf("%s: 10 acknowledged, %d read back: an error is %v", name, c.count, lacks)
		}
	}
}

func TestTallySeesWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		spoil  func([]client.Message) []client.Message
		errors int64
	}{
		"right":     {func(m []client.Message) []client.Message { return m }, 0},
		"one twice": {func(m []client.Message) []client.Message { return append(m, m[9]) }, 1},
		"one redelivered": {func(m []client.Message) []client.Message {
			again := m[9]
			again.Deliveries = 2
			return append(m, again)
		}, 0},
		"two turned":     {func(m []client.Message) []client.Message { m[3], m[4] = m[4], m[3]; return m }, 1},
		"one broken":     {func(m []client.Message) []client.Message { m[3].Payload[0] ^= 1; return m }, 1},
		"not of a bench": {func(m []client.Message) []client.Message { m[3].Payload = []byte("hello"); return m }, 0},
	} {
		var said []string
		sum := &tally{around: Surroundings{Say: func(line string) { said = append(said, line) }}, table: crc32.MakeTable(crc32.Castagnoli), strict: true, seen: []partitionSeen{{}}}
		for _, m := range c.spoil(stamped(7, 0, 10)) {
			sum.message(&m)
		}
		if sum.errors != c.errors || int64(len(said)) != c.errors {
			t.Errorf("%s: %d errors, want %d of which as many are told\n%s", name, sum.errors, c.errors, strings.Join(said, "\n"))
		}
	}
}

func TestMeasured(t *testing.T) {
	h := newHistogram()
	for i := range 1000 {
		record(h, time.Duration(i+1)*time.Millisecond)
	}
	record(h, time.Hour) // beyond what it holds: counted at the edge
	r := measured(h, 1001, 100, 2*time.Second)
	near := func(got, want float64) bool { return got > want*0.99 && got < want*1.01 }
	if r.Bytes != 100_100 || !near(r.Rate, 500.5) || !near(r.P50, 501_000) || !near(r.P99, 991_000) || !near(r.Max, 120e6) {
		t.Errorf("got %+v", r)
	}
}

func TestStampingAllocatesNothing(t *testing.T) {
	s := newStamper(1, 2, 1024)
	if n := testing.AllocsPerRun(1000, func() { s.next() }); n > 0 {
		t.Errorf("%v allocations a message", n)
	}
}
