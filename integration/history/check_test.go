package history

import (
	"maps"
	"strings"
	"testing"
	"time"
)

// scene is a run with a clock of its own: every operation takes one tick unless told otherwise.
type scene struct {
	*Run
	final *Final
	now   time.Duration
}

func newScene() *scene {
	s := &scene{Run: New(1)}
	s.clock = func() time.Duration { s.now += time.Millisecond; return s.now }
	s.final = s.Run.Final()
	return s
}

// sent is one message of a scene: what it says, and where it was acknowledged.
type sent struct {
	payload []byte
	offset  int64
}

// send acknowledges n messages of p one after another at the offsets from first on.
func (s *scene) send(p *Producer, n int, first int64) []sent {
	var out []sent
	for i := range n {
		seq, payload := p.Begin(64)
		p.Acked(seq, 0, first+int64(i))
		out = append(out, sent{payload, first + int64(i)})
	}
	return out
}

func (s *scene) read(c *Consumer, messages ...sent) {
	for _, m := range messages {
		c.Read(Delivery{Offset: m.offset, Payload: m.payload})
	}
}

func (s *scene) serve(tier string, messages ...sent) *Partition {
	p := s.final.Partition("/t", 0)
	t := p.Tier(tier)
	for _, m := range messages {
		t.Add(m.offset, m.payload)
	}
	return p
}

// play is a minimal history that breaks exactly the invariants that it names, or none, and what the report says of it.
type play struct {
	breaks string
	says   string
	act    func(s *scene)
}

func goodPlays() map[string]play {
	return map[string]play{
		"all kept and read": {"", "", func(s *scene) {
			m := s.send(s.Producer("/t"), 5, 0)
			s.read(s.Consumer("r", "/t", "", Reader), m...)
			s.serve("served", m...)
			s.serve("file", m...)
		}},
		"an unknown send that was stored": {"", "", func(s *scene) {
			p := s.Producer("/t")
			seq, payload := p.Begin(64)
			p.Unknown(seq)
			s.serve("served", sent{payload, 0})
		}},
		"an unknown send that was not stored": {"", "", func(s *scene) {
			p := s.Producer("/t")
			seq, _ := p.Begin(64)
			p.Unknown(seq)
		}},
		"a refused send that stayed away": {"", "", func(s *scene) {
			p := s.Producer("/t")
			seq, _ := p.Begin(64)
			p.NotStored(seq)
		}},
	}
}

func lostPlays() map[string]play {
	return map[string]play{
		"I1 acknowledged and gone": {"I1", "/t:0 offset 2: p0/2 was acknowledged and is gone", func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			s.serve("served", m[:2]...)
		}},
		"I1 kept in a file but not served": {"I1", "is gone", func(s *scene) {
			m := s.send(s.Producer("/t"), 1, 0)
			s.serve("served")
			s.serve("file", m...)
		}},
		"I1 a partition nobody describes": {"I1", "is gone", func(s *scene) {
			s.send(s.Producer("/t"), 1, 0)
		}},
		"I1 lost without a reason": {"I1", `[1, 3) is declared LOST with 2 acknowledged messages, which level local does not allow after faults ["kill"]`, func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			s.Fault(Kill, "n1").Healed(true)
			s.serve("served", m[0]).Ranges = []Range{{1, 3, Lost}}
		}},
		"I1 a plain gap over an acknowledged message": {"I1", "is gone", func(s *scene) {
			m := s.send(s.Producer("/t"), 2, 0)
			s.serve("served", m[0]).Ranges = []Range{{1, 2, PlainGap}}
		}},
		"lost with its disk": {"", "", func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			s.Fault(DiskGone, "n1").Healed(true)
			s.serve("served", m[0]).Ranges = []Range{{1, 3, Lost}}
		}},
		"below the start that retention set": {"", "", func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			s.read(s.Consumer("r", "/t", "", Reader), m...)
			s.serve("served", m[2]).LogStart = 2
		}},
	}
}

func valuePlays() map[string]play {
	return map[string]play{
		"I2 refused and readable": {"I2", "whose send was answered not stored, says the read-back of served", func(s *scene) {
			p := s.Producer("/t")
			seq, payload := p.Begin(64)
			p.NotStored(seq)
			s.serve("served", sent{payload, 0})
		}},
		"I3 an ack and a reader disagree": {"I3", "/t:0 offset 1 is p0/1, says the read-back of served, and p1/0, says consumer r", func(s *scene) {
			m := s.send(s.Producer("/t"), 2, 0)
			p := s.Producer("/t")
			seq, payload := p.Begin(64)
			p.Unknown(seq)
			s.read(s.Consumer("r", "/t", "", Reader), m[0], sent{payload, 1})
			s.serve("served", m...)
		}},
		"I4 stored twice": {"I4", "p0/0 is at /t:0 offset 1, says the read-back of served, and at /t:0 offset 0", func(s *scene) {
			m := s.send(s.Producer("/t"), 1, 0)
			s.serve("served", m[0], sent{m[0].payload, 1})
		}},
		"stored again and superseded": {"", "", func(s *scene) {
			m := s.send(s.Producer("/t"), 1, 5)
			s.read(s.Consumer("r", "/t", "", Reader), sent{m[0].payload, 2})
			s.serve("served", m...).Ranges = []Range{{2, 3, Superseded}}
		}},
		"I1 superseded and nowhere else": {"I1", "p0/0 was acknowledged and is gone", func(s *scene) {
			m := s.send(s.Producer("/t"), 2, 2)
			s.serve("served", m[1]).Ranges = []Range{{2, 3, Superseded}}
		}},
		"I5 a producer's messages swapped": {"I5", "p0/1 lies at", func(s *scene) {
			p := s.Producer("/t")
			a, first := p.Begin(64)
			b, second := p.Begin(64)
			c, third := p.Begin(64)
			p.Acked(a, 0, 0)
			p.Acked(b, 0, 2)
			p.Acked(c, 0, 1)
			s.serve("served", sent{first, 0}, sent{third, 1}, sent{second, 2})
		}},
		"I6 a later send with a lower offset": {"I6", "p1/0 got 0 although p0/0 was acknowledged at 1 before it was sent", func(s *scene) {
			a := s.send(s.Producer("/t"), 1, 1)
			b := s.send(s.Producer("/t"), 1, 0)
			s.serve("served", append(b, a...)...)
		}},
		"sends at the same time in any order": {"", "", func(s *scene) {
			p, q := s.Producer("/t"), s.Producer("/t")
			a, first := p.Begin(64)
			b, second := q.Begin(64)
			p.Acked(a, 0, 1)
			q.Acked(b, 0, 0)
			s.serve("served", sent{second, 0}, sent{first, 1})
		}},
	}
}

func readerPlays() map[string]play {
	return map[string]play{
		"I7 a reader goes back": {"I7", "went back from 1 to 0", func(s *scene) {
			m := s.send(s.Producer("/t"), 2, 0)
			s.read(s.Consumer("r", "/t", "", Reader), m[0], m[1], m[0])
			s.serve("served", m...)
		}},
		"I7 a reader jumps": {"I7", "jumped from 0 to 2 and nothing names 1 a gap", func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			s.read(s.Consumer("r", "/t", "", Reader), m[0], m[2])
			s.serve("served", m...)
		}},
		"I7 a gap that is too short": {"I7", "nothing names 3 a gap", func(s *scene) {
			p := s.Producer("/t")
			m := append(s.send(p, 1, 0), s.send(p, 1, 4)...)
			c := s.Consumer("r", "/t", "", Reader)
			s.read(c, m[0])
			c.Gap(0, 1, 3)
			s.read(c, m[1])
			s.serve("served", m...)
		}},
		"a named gap": {"", "", func(s *scene) {
			p := s.Producer("/t")
			m := append(s.send(p, 1, 0), s.send(p, 1, 4)...)
			c := s.Consumer("r", "/t", "", Reader)
			s.read(c, m[0])
			c.Gap(0, 1, 2)
			s.read(c, m[1])
			s.serve("served", m...).Ranges = []Range{{2, 4, PlainGap}}
		}},
		"a reader that was sent back": {"", "", func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			c := s.Consumer("r", "/t", "", Reader)
			s.read(c, m...)
			c.Seek(0, 1)
			s.read(c, m[1], m[2])
			s.serve("served", m...)
		}},
		"I7 late messages out of order": {"I7", "got late offset 0 after late offset 1", func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			c := s.Consumer("r", "/t", "", Reader)
			s.read(c, m[2])
			c.Read(Delivery{Offset: 1, Payload: m[1].payload, Late: true})
			c.Read(Delivery{Offset: 0, Payload: m[0].payload, Late: true})
			s.serve("served", m...)
		}},
	}
}

func subscriptionPlays() map[string]play {
	return map[string]play{
		"an exclusive subscription starts over after its consumer": {"", "", func(s *scene) {
			m := s.send(s.Producer("/t"), 4, 0)
			s.read(s.Consumer("a", "/t", "s", Exclusive), m[:3]...)
			s.read(s.Consumer("b", "/t", "s", Exclusive), m[1:]...)
			s.serve("served", m...)
		}},
		"I7 an exclusive subscription skips at the change": {"I7", "jumped from 1 to 3", func(s *scene) {
			m := s.send(s.Producer("/t"), 4, 0)
			s.read(s.Consumer("a", "/t", "s", Exclusive), m[:2]...)
			s.read(s.Consumer("b", "/t", "s", Exclusive), m[3])
			s.serve("served", m...)
		}},
		"I7 a shared consumer goes back": {"I7", "handed consumer a offset 0 after 2", func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			s.read(s.Consumer("b", "/t", "s", Shared), m[1])
			s.read(s.Consumer("a", "/t", "s", Shared), m[2], m[0])
			s.serve("served", m...)
		}},
		"a shared consumer goes back over a kill": {"", "", func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			a := s.Consumer("a", "/t", "s", Shared)
			s.read(a, m[2])
			s.Fault(Kill, "n1").Healed(true)
			s.read(a, m[0], m[1])
			s.serve("served", m...)
		}},
		"I7 a cursor passes what nobody was given": {"I7", "subscription s passed offset 1 without delivering it", func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			a := s.Consumer("a", "/t", "s", Shared)
			s.read(a, m[0], m[2])
			a.AckedUpTo(0, 2)
			s.serve("served", m...)
			s.final.Cursor(Cursor{Topic: "/t", Subscription: "s", Prefix: 3})
		}},
	}
}

func foreignPlays() map[string]play {
	return map[string]play{
		"I8 read and gone": {"I8", "offset 0 was read by r and is readable no more", func(s *scene) {
			p := s.Producer("/t")
			seq, payload := p.Begin(64)
			p.Unknown(seq)
			s.read(s.Consumer("r", "/t", "", Reader), sent{payload, 0})
			s.serve("served")
		}},
		"I9 and I14 another CRC in the file": {"I9 I14", "in served and", func(s *scene) {
			m := s.send(s.Producer("/t"), 1, 0)
			s.serve("served", m...)
			s.serve("file", sent{append([]byte("x"), m[0].payload...), 0})
		}},
		"I14 bytes of nobody": {"I14", "no producer of this run made, says consumer r", func(s *scene) {
			m := s.send(s.Producer("/t"), 1, 0)
			c := s.Consumer("r", "/t", "", Reader)
			s.read(c, sent{[]byte("hello"), 0})
			s.serve("served", m...)
		}},
		"I14 a sequence never sent": {"I14", "was never sent like this", func(s *scene) {
			other := newScene()
			other.id = s.id
			p := other.Producer("/t")
			s.Producer("/t")
			_, payload := p.Begin(64)
			s.serve("served", sent{payload, 0})
		}},
		"I14 read before it was sent": {"I14", "before it was sent", func(s *scene) {
			other := newScene()
			other.id = s.id
			_, payload := other.Producer("/t").Begin(64)
			c := s.Consumer("r", "/t", "", Reader)
			s.read(c, sent{payload, 0})
			m := s.send(s.Producer("/t"), 1, 0)
			s.serve("served", m...)
		}},
	}
}

func cursorPlays() map[string]play {
	return map[string]play{
		"I13 a cursor behind its confirmation": {"I13", "stands at 1, behind the confirmed 2", func(s *scene) {
			m := s.send(s.Producer("/t"), 2, 0)
			a := s.Consumer("a", "/t", "s", Exclusive)
			s.read(a, m...)
			a.AckedUpTo(0, 1)
			a.Confirmed(0, 2)
			s.serve("served", m...)
			s.final.Cursor(Cursor{Topic: "/t", Subscription: "s", Prefix: 1})
		}},
		"I13 a cursor ahead of the acks": {"I13", "covers offset 1, which nobody acknowledged", func(s *scene) {
			m := s.send(s.Producer("/t"), 2, 0)
			a := s.Consumer("a", "/t", "s", Exclusive)
			s.read(a, m...)
			a.Acked(0, 0)
			s.serve("served", m...)
			s.final.Cursor(Cursor{Topic: "/t", Subscription: "s", Prefix: 2})
		}},
		"a cursor where it belongs": {"", "", func(s *scene) {
			m := s.send(s.Producer("/t"), 3, 0)
			a := s.Consumer("a", "/t", "s", Exclusive)
			s.read(a, m...)
			a.Acked(0, 0)
			a.AckedUpTo(0, 1)
			a.Confirmed(0, 1)
			s.serve("served", m...)
			s.final.Cursor(Cursor{Topic: "/t", Subscription: "s", Prefix: 2})
		}},
	}
}

func faultPlays() map[string]play {
	return map[string]play{
		"a fault that nobody felt": {"BITE", `1 faults of kind "pause" changed no epoch, failed no send`, func(s *scene) {
			f := s.Fault(Pause, "n1")
			m := s.send(s.Producer("/t"), 2, 0)
			f.Healed(false)
			s.serve("served", m...)
		}},
		"a fault that delayed a send": {"", "", func(s *scene) {
			p := s.Producer("/t")
			seq, payload := p.Begin(64)
			f := s.Fault(Pause, "n1")
			s.now += time.Second
			f.Healed(false)
			p.Acked(seq, 0, 0)
			s.serve("served", sent{payload, 0})
		}},
		"a fault that failed a send": {"", "", func(s *scene) {
			p := s.Producer("/t")
			f := s.Fault(DiskFull, "n1")
			seq, _ := p.Begin(64)
			p.NotStored(seq)
			f.Healed(false)
		}},
	}
}

func TestCheckNamesExactlyWhatIsBroken(t *testing.T) {
	all := goodPlays()
	for _, more := range []map[string]play{lostPlays(), valuePlays(), readerPlays(), subscriptionPlays(), foreignPlays(), cursorPlays(), faultPlays(), ownerPlays()} {
		maps.Copy(all, more)
	}
	for name, test := range all {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			test.act(s)
			report := s.Check(s.final)
			var broken []string
			for _, invariant := range strings.Fields(test.breaks) {
				if report.Broken[invariant] == 0 {
					t.Errorf("%s is broken and not reported", invariant)
				}
				broken = append(broken, invariant)
			}
			if len(report.Broken) != len(broken) || !strings.Contains(report.String(), test.says) {
				t.Errorf("want %q broken and the words %q, got\n%s", test.breaks, test.says, report)
			}
		})
	}
}

func TestMayLoseFollowsTheLevels(t *testing.T) {
	tests := []struct {
		level Level
		kinds []Kind
		want  bool
	}{
		{Local, []Kind{Kill, Pause, PowerLoss, DiskFull, SyncFails, WarmGone}, false},
		{Local, []Kind{DiskGone}, true},
		{Local, []Kind{DiskDamaged}, true},
		{Interval, []Kind{Kill, Pause}, false},
		{Interval, []Kind{PowerLoss}, true},
		{Warm, []Kind{DiskGone, PowerLoss}, false},
		{Warm, []Kind{WarmGone, PowerLoss}, false},
		{Warm, []Kind{DiskGone, WarmGone}, true},
		{Object, []Kind{DiskGone, WarmGone, PowerLoss}, false},
	}
	for _, test := range tests {
		if got := mayLose(test.level, test.kinds); got != test.want {
			t.Errorf("level %s after %q: may lose %v, want %v", test.level, test.kinds, got, test.want)
		}
	}
}

func TestReportCountsWhatItDoesNotSpellOut(t *testing.T) {
	s := newScene()
	s.send(s.Producer("/t"), 3*shown, 0)
	report := s.Check(s.final)
	if report.Broken["I1"] != 3*shown || len(report.Texts) != shown {
		t.Errorf("counted %d and spelled out %d, want %d and %d", report.Broken["I1"], len(report.Texts), 3*shown, shown)
	}
	if want := "FAILED: I1 ×30; 30 sends (30 acked, 0 not stored, 0 unknown), 0 reads, 0 faults"; report.Verdict() != want {
		t.Errorf("verdict %q, want %q", report.Verdict(), want)
	}
}

// BenchmarkCheck judges a million sends, each read once and served once.
func BenchmarkCheck(b *testing.B) {
	s := newScene()
	m := s.send(s.Producer("/t"), 1_000_000, 0)
	s.read(s.Consumer("r", "/t", "", Reader), m...)
	s.serve("served", m...)
	for b.Loop() {
		if report := s.Check(s.final); !report.OK() {
			b.Fatal(report)
		}
	}
}
