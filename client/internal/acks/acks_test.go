package acks

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/danubemq/danube/protocol"
)

// same checks a set against the plain truth, and that its ranges are in order and apart.
func same(t *rapid.T, what string, s *Set, truth map[uint64]bool) {
	n, last := uint64(0), int64(-1)
	for _, r := range s.r {
		if r.From >= r.To || int64(r.From) <= last {
			t.Fatalf("%s: ranges %v", what, s.r)
		}
		last = int64(r.To)
		for o := r.From; o < r.To; o++ {
			if !truth[o] {
				t.Fatalf("%s holds %d: %v", what, o, s.r)
			}
			n++
		}
	}
	if n != s.n || int(n) != len(truth) {
		t.Fatalf("%s holds %d offsets, counts %d, should hold %d", what, n, s.n, len(truth))
	}
}

func TestSetAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Set
		truth := map[uint64]bool{}
		offset := rapid.Uint64Range(0, 40)
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				from := offset.Draw(t, "from")
				to := from + rapid.Uint64Range(0, 6).Draw(t, "n")
				s.Add(from, to)
				for o := from; o < to; o++ {
					truth[o] = true
				}
			},
			"remove": func(t *rapid.T) {
				o := offset.Draw(t, "offset")
				if s.Remove(o) != truth[o] {
					t.Fatalf("remove %d of %v", o, s.r)
				}
				delete(truth, o)
			},
			"cut": func(t *rapid.T) {
				end := offset.Draw(t, "end")
				s.Cut(end, func(from, to uint64) {
					for o := from; o < to; o++ {
						if !truth[o] || o >= end {
							t.Fatalf("cut %d gave %d", end, o)
						}
						delete(truth, o)
					}
				})
				for o := range truth {
					if o < end {
						t.Fatalf("cut %d left %d", end, o)
					}
				}
			},
			"clear": func(*rapid.T) {
				s.Clear()
				clear(truth)
			},
			"": func(t *rapid.T) {
				same(t, "the set", &s, truth)
				for o := range uint64(48) {
					if s.Has(o) != truth[o] {
						t.Fatalf("has %d: %v", o, s.r)
					}
				}
			},
		})
	})
}

// TestBookAgainstABroker plays a consumer against a broker that crashes now
// and then, forgetting what it had not committed, and delivers again whatever
// is not acknowledged. Nothing acknowledged is handed out again; nothing is
// acknowledged at the broker that the application did not acknowledge; in the end all is.
func TestBookAgainstABroker(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const n = 30
		var b Book
		var acked, committed, asked, delivered [n]bool // at the broker
		var done, held, had [n]bool                    // at the application
		take := func(rs []protocol.Range) {
			for _, r := range rs {
				for o := r.From; o < r.To; o++ {
					if !done[o] {
						t.Fatalf("offset %d acknowledged, but not by the application", o)
					}
					acked[o] = acked[o] || delivered[o]
				}
			}
		}
		deliver := func(o uint64) {
			if acked[o] || delivered[o] {
				return
			}
			delivered[o] = true
			if wanted, again := b.Hand(o); wanted {
				if done[o] || again != had[o] {
					t.Fatalf("offset %d handed out, again %v, before %v, acknowledged %v", o, again, had[o], done[o])
				}
				held[o], had[o] = true, true
			}
		}
		ack := func(o uint64) {
			if held[o] {
				done[o], held[o] = true, false
				b.Ack(o)
			}
		}
		flush := func(confirm bool) {
			confirm = confirm && !b.asking
			take(b.pending.r)
			if confirm {
				asked = acked
			}
			b.Flushed(confirm)
		}
		offset := rapid.Uint64Range(0, n-1)
		t.Repeat(map[string]func(*rapid.T){
			"deliver": func(t *rapid.T) { deliver(offset.Draw(t, "offset")) },
			"ack":     func(t *rapid.T) { ack(offset.Draw(t, "offset")) },
			"up to": func(t *rapid.T) {
				end := offset.Draw(t, "end")
				for o := range end {
					if held[o] {
						done[o], held[o] = true, false
					}
				}
				b.AckBelow(end)
			},
			"flush": func(t *rapid.T) { flush(rapid.Bool().Draw(t, "confirm")) },
			"committed": func(*rapid.T) {
				if b.asking {
					committed = asked
					b.Confirmed()
				}
			},
			"crash": func(*rapid.T) {
				acked, delivered = committed, [n]bool{}
				b.Lose()
				cursor := uint64(0)
				for cursor < n && acked[cursor] {
					cursor++
				}
				b.Resume(cursor)
			},
			"": func(t *rapid.T) {
				for _, r := range b.fresh.r {
					for o := r.From; o < r.To; o++ {
						if !b.held.Has(o) {
							t.Fatalf("offset %d is to be reported as received, and is not held", o)
						}
					}
				}
			},
		})
		for o := range uint64(n) {
			deliver(o)
			ack(o)
		}
		flush(false)
		for o := range n {
			if !acked[o] {
				t.Fatalf("offset %d is not acknowledged in the end: %+v", o, b)
			}
		}
	})
}

// TestConfirmingSaysWhatIsLate: messages of this connection are sent as they are, those of one before may have to come again.
func TestConfirmingSaysWhatIsLate(t *testing.T) {
	set := func(offsets ...uint64) *Set {
		s := new(Set)
		for _, o := range offsets {
			s.Add(o, o+1)
		}
		return s
	}
	var b Book
	for o := range uint64(4) {
		b.Hand(o)
	}
	if b.Confirming(set(1)) || b.Late() {
		t.Error("a message of this connection is late")
	}
	if got := b.Unreported(); len(got) != 2 || got[0] != (protocol.Range{From: 0, To: 1}) || got[1] != (protocol.Range{From: 2, To: 4}) {
		t.Errorf("to be reported as received: %v", got)
	}
	if got := b.Unconfirmed(); len(got) != 1 || got[0] != (protocol.Range{From: 1, To: 2}) {
		t.Errorf("not known to be committed: %v", got)
	}
	b.Lose()
	if !b.Late() || !b.Confirming(set(0)) || !b.Confirming(set(0, 7)) {
		t.Error("a message of a connection that is over is not late")
	}
	for o, want := range []bool{false, false, true} {
		if wanted, again := b.Hand(uint64(o)); wanted != want || !again {
			t.Errorf("offset %d comes again: wanted %v, had before %v", o, wanted, again)
		}
	}
}
