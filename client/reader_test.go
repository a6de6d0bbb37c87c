package client

import (
	"context"
	"errors"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/danubemq/danube/protocol"
)

func reader(t testing.TB, c *Client, topic string, cfg ReaderConfig) *Reader {
	t.Helper()
	r, err := c.Reader(t.Context(), topic, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// readAll reads to the end and returns payloads and errors, in order.
func readAll(t testing.TB, r *Reader) (all []string, errs []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		m, err := r.Next(ctx)
		switch {
		case err == io.EOF:
			return all, errs
		case ctx.Err() != nil:
			t.Fatal(err)
		case err != nil:
			errs = append(errs, err)
		default:
			all = append(all, string(m.Payload))
		}
	}
}

func TestReaderReadsToTheEnd(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	want := numbers(0, 1000)
	for i := 0; i < len(want); i += 10 {
		part.put(want[i : i+10]...)
	}
	c := f.dial(Config{})
	tests := map[string]struct {
		from protocol.Position
		want []string
	}{
		"earliest":        {earliest, want},
		"inside a batch":  {protocol.Position{Kind: protocol.AtOffset, Offset: 123}, want[123:]},
		"latest, nothing": {protocol.Position{}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, errs := readAll(t, reader(t, c, "a", ReaderConfig{From: test.from, ToEnd: true, FetchBytes: 500}))
			if !slices.Equal(got, test.want) || errs != nil {
				t.Errorf("%d messages, errors %v", len(got), errs)
			}
		})
	}
}

func TestReaderFromLatestMissesNothing(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put("old")
	r := reader(t, f.dial(Config{}), "a", ReaderConfig{})
	part.put("new")
	m, err := r.Next(t.Context())
	if err != nil || string(m.Payload) != "new" || m.Offset != 1 {
		t.Errorf("read %q, %v", m.Payload, err)
	}
	r.Close()
	if _, err := r.Next(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after close: %v", err)
	}
}

func TestReaderNamesGaps(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put(numbers(0, 10)...)
	f.mu.Lock()
	part.gaps[10] = 15
	part.next = 15
	f.mu.Unlock()
	part.put(numbers(15, 20)...)
	got, errs := readAll(t, reader(t, f.dial(Config{}), "a", ReaderConfig{From: earliest, ToEnd: true}))
	if !slices.Equal(got, append(numbers(0, 10), numbers(15, 20)...)) {
		t.Errorf("read %q", got)
	}
	if len(errs) != 1 {
		t.Fatalf("errors: %v", errs)
	}
	g, ok := errors.AsType[*GapError](errs[0])
	if !ok || g.From != 10 || g.To != 15 || g.Status != "lost" {
		t.Errorf("the gap is told as: %v", errs[0])
	}
}

// TestReaderTellsSuperseded: messages that were stored again at later offsets are no loss, and no error.
func TestReaderTellsSuperseded(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put(numbers(0, 10)...)
	f.mu.Lock()
	part.gaps[10], part.again, part.next = 15, map[uint64]bool{10: true}, 15
	f.mu.Unlock()
	part.put(numbers(10, 15)...)
	for _, listens := range []bool{false, true} {
		var told []string
		cfg := ReaderConfig{From: earliest, ToEnd: true}
		if listens {
			cfg.OnSuperseded = func(g GapError) { told = append(told, g.Error()) }
		}
		got, errs := readAll(t, reader(t, f.dial(Config{}), "a", cfg))
		if !slices.Equal(got, numbers(0, 15)) || len(errs) > 0 {
			t.Errorf("read %q, errors %v", got, errs)
		}
		want := []string{"/default/a:0: offsets 10 to 14 are superseded: their messages were stored again and come at later offsets"}
		if listens && !slices.Equal(told, want) {
			t.Errorf("told %q", told)
		}
	}
}

// TestReaderFindsJumps reads from a broker that leaves out a batch and says nothing of it.
func TestReaderFindsJumps(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put(numbers(0, 5)...)
	part.put(numbers(5, 10)...)
	part.put(numbers(10, 15)...)
	f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
		if fr.Type != protocol.TypeFetch {
			return false
		}
		f.mu.Lock()
		body := append(slices.Clone([]byte(part.log[0])), part.log[2]...)
		f.mu.Unlock()
		c.send(protocol.TypeFetchOK, fr.ID, &protocol.FetchOK{To: 15, Next: 15, Committed: 15}, body)
		return true
	})
	got, errs := readAll(t, reader(t, f.dial(Config{}), "a", ReaderConfig{From: earliest, ToEnd: true}))
	if !slices.Equal(got, append(numbers(0, 5), numbers(10, 15)...)) {
		t.Errorf("read %q", got)
	}
	if len(errs) != 1 {
		t.Fatalf("errors: %v", errs)
	}
	if g, ok := errors.AsType[*GapError](errs[0]); !ok || g.From != 5 || g.To != 10 {
		t.Errorf("the jump is told as: %v", errs[0])
	}
}

func TestReaderOvertakenByRetention(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put(numbers(0, 10)...)
	part.put(numbers(10, 20)...)
	c := f.dial(Config{})
	r := reader(t, c, "a", ReaderConfig{From: earliest, ToEnd: true, FetchBytes: 1})
	f.mu.Lock()
	part.start = 15
	f.mu.Unlock()
	got, errs := readAll(t, r)
	if !slices.Equal(got, append(numbers(0, 10), numbers(15, 20)...)) {
		t.Errorf("read %q", got)
	}
	if len(errs) != 1 {
		t.Fatalf("errors: %v", errs)
	}
	if g, ok := errors.AsType[*GapError](errs[0]); !ok || g.From != 10 || g.To != 15 || g.Status != "trimmed" {
		t.Errorf("told as: %v", errs[0])
	}
	if _, err := c.Reader(t.Context(), "a", ReaderConfig{From: protocol.Position{Kind: protocol.AtOffset, Offset: 3}}); !hasCode(err, protocol.CodeBelowLogStart) {
		t.Errorf("asked for what was removed: %v", err)
	}
}

func TestReaderOverPartitionsAndReconnects(t *testing.T) {
	f := newFake(t)
	topic := f.topic("/default/a", 20)
	for i, p := range topic.parts {
		p.put(numbers(i*10, i*10+10)...)
		p.put(numbers(1000+i*10, 1000+i*10+10)...)
	}
	r := reader(t, f.dial(Config{}), "a", ReaderConfig{From: earliest, ToEnd: true, FetchBytes: 1})
	m, err := r.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f.hangUp(false)
	got, errs := readAll(t, r)
	got = append(got, string(m.Payload))
	slices.Sort(got)
	want := append(numbers(0, 200), numbers(1000, 1200)...)
	if !slices.Equal(got, want) || errs != nil {
		t.Errorf("%d messages, errors %v", len(got), errs)
	}
}

func TestReaderWithoutDamage(t *testing.T) {
	f := newFake(t)
	part := f.topic("/default/a", 1).parts[0]
	part.put("one")
	f.mu.Lock()
	part.log[0][len(part.log[0])-1] ^= 1
	f.mu.Unlock()
	got, errs := readAll(t, reader(t, f.dial(Config{}), "a", ReaderConfig{From: earliest, ToEnd: true}))
	if len(got) != 0 || len(errs) != 1 || !hasCode(errs[0], protocol.CodeCorruptBatch) {
		t.Errorf("read %q, errors %v", got, errs)
	}
}

func TestAdminRoundTrip(t *testing.T) {
	f := newFake(t)
	a := f.dial(Config{}).Admin()
	made, err := a.TopicCreate(t.Context(), protocol.TopicCreate{Topic: "/default/new"})
	if err != nil || !made.Created || made.Topic != "/default/new" {
		t.Errorf("create: %+v, %v", made, err)
	}
	st, err := a.Status(t.Context())
	if err != nil || !st.Ready || st.Cluster != "test" {
		t.Errorf("status: %+v, %v", st, err)
	}
}

// TestDeleteWhoseAnswerWasLost: the second attempt finds nothing, and that is what was asked for.
func TestDeleteWhoseAnswerWasLost(t *testing.T) {
	f := newFake(t)
	c := f.dial(Config{})
	n := 0
	f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
		if fr.Type != protocol.TypeAdmin {
			return false
		}
		if n++; n == 1 {
			_ = c.nc.Close()
		} else {
			c.refuse(fr.ID, protocol.Errorf(protocol.CodeNoSuchTopic, "no such topic"))
		}
		return true
	})
	if err := c.Admin().TopicDelete(t.Context(), protocol.TopicArgs{Topic: "/default/a"}); err != nil {
		t.Error(err)
	}
	if err := c.Admin().TopicDelete(t.Context(), protocol.TopicArgs{Topic: "/default/a"}); !errors.Is(err, ErrNoSuchTopic) {
		t.Errorf("deleted twice: %v", err)
	}
}

// TestNoLeaderEndsSooner: brokers that go on answering that nobody leads are believed, where the configuration says so,
// and the error is theirs.
func TestNoLeaderEndsSooner(t *testing.T) {
	f := newFake(t)
	f.intercept(func(c *fakeConn, fr protocol.Frame) bool {
		if fr.Type != protocol.TypeAdmin {
			return false
		}
		c.refuse(fr.ID, protocol.Errorf(protocol.CodeNoLeader, "1 of 3 voters is seen"))
		return true
	})
	for name, x := range map[string]struct {
		cfg      Config
		timedOut bool
	}{
		"said so":     {Config{NoLeader: 100 * time.Millisecond}, false},
		"not said so": {Config{Timeout: 200 * time.Millisecond}, true},
	} {
		began := time.Now()
		_, err := f.dial(x.cfg).Admin().TopicCreate(t.Context(), protocol.TopicCreate{Topic: "/default/new"})
		if !hasCode(err, protocol.CodeNoLeader) == !x.timedOut || errors.Is(err, ErrTimeout) != x.timedOut || time.Since(began) > 10*time.Second {
			t.Errorf("%s: %v, after %v", name, err, time.Since(began))
		}
	}
}
