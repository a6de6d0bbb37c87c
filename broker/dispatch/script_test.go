package dispatch

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "rewrite the expected output in testdata")

// TestScripts runs testdata/*.txt: a block is commands, a line of dashes, what
// they printed, and an empty line. Ranges are written 3 or 3:7 (7 excluded).
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := runScript(t, string(text))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want := strings.Split(string(text), "\n")
			for i, line := range strings.Split(got, "\n") {
				if i >= len(want) || line != want[i] {
					t.Fatalf("%s:%d: got %q, want %q", file, i+1, line, append(want, "end of file")[min(i, len(want))])
				}
			}
		})
	}
}

// runScript returns the text with the output of every block as it is now.
func runScript(t *testing.T, text string) string {
	var out strings.Builder
	b := &bed{t: t}
	for block := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		in, _, ok := strings.Cut(block, "\n----")
		if out.Len() > 0 {
			out.WriteString("\n")
		}
		out.WriteString(in + "\n")
		if !ok {
			continue // a comment that stands alone
		}
		out.WriteString("----\n")
		for line := range strings.SplitSeq(in, "\n") {
			if f := strings.Fields(line); len(f) > 0 && f[0] != "#" {
				out.WriteString(b.do(f[0], f[1:]))
				checkRuns(t, b.s)
			}
		}
	}
	return out.String()
}

// bed is the shell of a script.
type bed struct {
	t      *testing.T
	cfg    Config
	s      *Subscription
	now    time.Duration
	flying Delta
	stored durable
}

func (b *bed) do(cmd string, args []string) string {
	switch cmd {
	case "new":
		return b.open(args)
	case "join", "grant", "pause", "resume", "leave", "detach":
		return b.consumer(cmd, args)
	case "read", "why", "time":
		return b.deliver(cmd, args)
	case "ack", "upto", "nack", "received":
		return b.settle(cmd, args)
	case "gap", "hole", "fill", "lag", "reset", "poisoned", "bury":
		return b.log(cmd, args)
	case "delta", "commit", "fail", "restart":
		return b.cursor(cmd, args)
	case "state":
		return b.state()
	}
	b.t.Fatalf("unknown command %q", cmd)
	return ""
}

func (b *bed) number(s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bed) ranges(args []string) (rs []Range) {
	for _, a := range args {
		from, to, ok := strings.Cut(a, ":")
		r := Range{Start: b.number(from)}
		r.End = r.Start + 1
		if ok {
			r.End = b.number(to)
		}
		rs = append(rs, r)
	}
	return rs
}

func (b *bed) open(args []string) string {
	b.cfg, b.now = Config{}, 0
	b.stored = durable{msgs: make([]durableFate, 100)}
	for _, a := range args {
		k, v, _ := strings.Cut(a, "=")
		switch k {
		case "policy":
			for b.cfg.Policy.String() != v {
				b.cfg.Policy++
			}
		case "poison":
			b.cfg.Poison = map[string]Poison{"block": Block, "dead-letter": DeadLetter, "drop": Drop}[v]
		case "window":
			b.cfg.MaxUnacked = int(b.number(v))
		case "ranges":
			b.cfg.RangeLimit = int(b.number(v))
		case "redeliveries":
			b.cfg.MaxRedeliveries = int(b.number(v))
		case "fixed":
			b.cfg.FixedBackoff = true
		default:
			b.t.Fatalf("unknown setting %q", a)
		}
	}
	s, err := New(b.cfg, b.stored.cursor())
	if err != nil {
		return err.Error() + "\n"
	}
	b.s = s
	return ""
}

func (b *bed) consumer(cmd string, args []string) string {
	var err error
	switch cmd {
	case "join":
		c := Consumer{ID: ConsumerID(b.number(args[0])), Name: args[1]}
		c.NoReceipts = len(args) > 2 && args[2] == "no-receipts"
		var old ConsumerID
		if old, err = b.s.Join(c, int64(b.now)); old != 0 {
			return fmt.Sprintf("takes over from %d\n", old)
		}
	case "grant":
		err = b.s.Grant(ConsumerID(b.number(args[0])), uint32(b.number(args[1])))
	case "pause", "resume":
		b.s.Pause(ConsumerID(b.number(args[0])), cmd == "pause")
	case "leave":
		err = b.s.Leave(ConsumerID(b.number(args[0])), args[1] == "clean", int64(b.now))
	case "detach":
		b.s.Detach(int64(b.now))
	}
	if err != nil {
		return err.Error() + "\n"
	}
	return ""
}

func at(ns int64) string {
	if ns == math.MaxInt64 {
		return "never"
	}
	return time.Duration(ns).String()
}

func (b *bed) deliver(cmd string, args []string) string {
	switch cmd {
	case "time":
		d, err := time.ParseDuration(args[0])
		if err != nil {
			b.t.Fatal(err)
		}
		b.now += d
		return ""
	case "why":
		e := b.s.Explain(int64(b.now))
		out := fmt.Sprintf("%v; until %s; prefix %d fresh %d; in flight %d waiting %d poisoned %d blocked %d holes %d; ranges %d high=%v\n",
			e.Stalled, at(e.Until), e.Prefix, e.Fresh, e.InFlight, e.Waiting, e.Poisoned, e.Blocked, e.Holes, e.Ranges, e.RangesHigh)
		for _, c := range e.Consumers {
			out += fmt.Sprintf("  consumer %d %q credit %d in flight %d\n", c.ID, c.Name, c.Credit, c.InFlight)
		}
		return out
	}
	st := b.s.Next(int64(b.now))
	if st.Reason != Ready {
		return fmt.Sprintf("%v; until %s\n", st.Reason, at(st.Until))
	}
	batch := Batch{Base: st.From, Count: uint32(b.number(args[0]))}
	if len(args) > 1 {
		batch.Base = b.number(args[1])
	}
	out := ""
	for _, d := range b.s.Offer(st, batch, int64(b.now), nil) {
		out += fmt.Sprintf("%d gets [%d,%d) delivery %d", d.Consumer, d.Start, d.End, d.Attempt)
		if d.Late {
			out += " late"
		}
		out += "\n"
	}
	return out
}

func (b *bed) settle(cmd string, args []string) string {
	id, _, _ := strings.Cut(args[0], "@")
	a := Settle{Consumer: ConsumerID(b.number(id)), Generation: b.s.Generation()}
	if _, g, ok := strings.Cut(args[0], "@"); ok { // consumer@generation
		a.Generation = b.number(g)
	}
	args = args[1:]
	var res Settled
	var err error
	switch cmd {
	case "ack":
		a.Ranges = b.ranges(args)
		res, err = b.s.Ack(a)
	case "upto":
		res, err = b.s.AckUpTo(a.Consumer, a.Generation, b.number(args[0]))
	case "received":
		a.Ranges = b.ranges(args)
		res, err = b.s.Received(a, int64(b.now))
	case "nack":
		delay := time.Duration(-1)
		if v, ok := strings.CutPrefix(args[0], "delay="); ok {
			if delay, err = time.ParseDuration(v); err != nil {
				b.t.Fatal(err)
			}
			args = args[1:]
		}
		a.Ranges = b.ranges(args)
		res, err = b.s.Nack(a, delay, int64(b.now))
	}
	if err != nil {
		return err.Error() + "\n"
	}
	return fmt.Sprintf("done %d again %d stale %d\n", res.Done, res.Again, res.Stale)
}

func (b *bed) log(cmd string, args []string) string {
	switch cmd {
	case "lag":
		return fmt.Sprintf("%d\n", b.s.Lag(b.number(args[0])))
	case "reset":
		if err := b.s.Reset(b.number(args[0])); err != nil {
			b.t.Fatal(err)
		}
		return ""
	case "poisoned":
		out := ""
		for _, p := range b.s.Poisoned(nil) {
			out += fmt.Sprintf("poisoned [%d,%d) after %d deliveries, action %d\n", p.Start, p.End, p.Deliveries, p.Action)
		}
		return out
	}
	for _, r := range b.ranges(args) {
		switch cmd {
		case "gap":
			b.s.Gap(r)
		case "hole":
			b.s.Hole(r)
		case "fill":
			b.s.Fill(r)
		case "bury":
			return fmt.Sprintf("buried %d\n", b.s.Bury(r))
		}
	}
	return ""
}

func (b *bed) cursor(cmd string, args []string) string {
	switch cmd {
	case "commit":
		b.stored.apply(b.t, &b.flying)
		b.s.DeltaCommitted()
	case "fail":
		b.s.DeltaFailed()
	case "restart":
		s, err := New(b.cfg, b.stored.cursor())
		if err != nil {
			b.t.Fatal(err)
		}
		b.s = s
	case "delta":
		limit := 0
		if len(args) > 0 {
			limit = int(b.number(args[0]))
		}
		if !b.s.TakeDelta(&b.flying, limit) {
			return "nothing\n"
		}
		d := &b.flying
		out := fmt.Sprintf("generation %d prefix %d", d.Generation, d.Prefix)
		if d.Reset {
			out += " reset"
		}
		for _, r := range d.Acked {
			out += fmt.Sprintf(" acked [%d,%d)", r.Start, r.End)
		}
		for _, r := range d.Redeliveries {
			out += fmt.Sprintf(" next of [%d,%d) is %d at %s", r.Start, r.End, r.Next, at(r.Due))
		}
		if d.More {
			out += " and more"
		}
		return out + "\n"
	}
	return ""
}

func (b *bed) state() string {
	out := fmt.Sprintf("prefix %d\n", b.s.prefix)
	for _, n := range b.s.runs.nodes {
		for _, r := range n.runs {
			out += fmt.Sprintf("  [%d,%d) %s", r.start, r.end, [...]string{"acked", "held", "waiting", "hole", "poisoned"}[r.kind])
			if r.consumer != 0 {
				out += fmt.Sprintf(" by %d", r.consumer)
			}
			if r.count != 0 {
				out += fmt.Sprintf(" deliveries %d", r.count)
			}
			if r.at != 0 {
				out += " until " + at(r.at)
			}
			if r.flags&received != 0 {
				out += " received"
			}
			if r.flags&late != 0 {
				out += " late"
			}
			out += "\n"
		}
	}
	return out
}

func TestErrorsAreTyped(t *testing.T) {
	for _, p := range []Policy{Failover, KeyShared} {
		if _, err := New(Config{Policy: p}, Cursor{}); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%v: %v", p, err)
		}
	}
	s, err := New(Config{}, Cursor{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Join(Consumer{ID: 1, Filters: []string{"a*"}}, 0); !errors.Is(err, ErrUnsupported) {
		t.Errorf("filters: %v", err)
	}
	if _, err := s.Join(Consumer{ID: 1, Name: "first"}, 0); err != nil {
		t.Fatal(err)
	}
	_, err = s.Join(Consumer{ID: 2, Name: "second"}, 0)
	if occupied, ok := errors.AsType[*OccupiedError](err); !ok || occupied.Name != "first" {
		t.Errorf("second consumer: %v", err)
	}
	if _, err := s.Join(Consumer{ID: 1, Name: "first"}, 0); err == nil {
		t.Error("an id is used twice")
	}
	if _, err := s.Ack(Settle{Consumer: 9}); !errors.Is(err, ErrUnknownConsumer) {
		t.Errorf("ack of a stranger: %v", err)
	}
	if _, err := s.Ack(Settle{Consumer: 1, Generation: 1}); !errors.Is(err, ErrStale) {
		t.Errorf("ack of another generation: %v", err)
	}
	if err := s.Grant(9, 1); !errors.Is(err, ErrUnknownConsumer) {
		t.Errorf("credit for a stranger: %v", err)
	}
	if err := s.Leave(9, true, 0); !errors.Is(err, ErrUnknownConsumer) {
		t.Errorf("a stranger leaves: %v", err)
	}
	for name, c := range map[string]Cursor{
		"empty range":      {Acked: []Range{{5, 5}}},
		"empty redelivery": {Redeliveries: []Redelivery{{Range{5, 4}, 2, 0}}},
		"first delivery":   {Redeliveries: []Redelivery{{Range{5, 6}, 1, 0}}},
	} {
		if _, err := New(Config{}, c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
