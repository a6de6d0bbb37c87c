package main

import (
	"math"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestJudgeTakesTheMedianOfPairs(t *testing.T) {
	row := row{work: "w", best: (&bench{}).bestMode(1)}
	us, them := []result{{Rate: 300}, {Rate: 500}, {Rate: 100}}, []result{{Rate: 100}, {Rate: 100}, {Rate: 100}}
	l := judge(row, rate(3), "async", us, them)
	if !l.reached || l.ratio != 3 || l.smallest != 1 || l.largest != 5 || l.ours != 300 || l.theirs != 100 {
		t.Errorf("judged %+v", l)
	}
	if l := judge(row, rate(3.1), "", us, them); l.reached || !l.measured {
		t.Errorf("a median ratio of 3 reached 3.1: %+v", l)
	}
	if l := judge(row, rate(0), "", us, them); !l.reached || l.bound != "" {
		t.Errorf("a row without a bound: %+v", l)
	}
	if l := judge(row, rate(3), "", us, nil); l.reached || l.measured {
		t.Errorf("half a pair counted: %+v", l)
	}
}

func TestJudgeHoldsOursAloneAgainstABound(t *testing.T) {
	us := []result{{P50: 400, P99: 3000}}
	if l := judge(row{}, median(500), "", us, nil); !l.reached || l.bound != "at most 500" {
		t.Errorf("400 under 500: %+v", l)
	}
	if l := judge(row{}, p99(2500), "", us, nil); l.reached || !l.measured {
		t.Errorf("3000 under 2500: %+v", l)
	}
}

func TestSummariseRanksTimes(t *testing.T) {
	var times []time.Duration
	for i := 1000; i > 0; i-- {
		times = append(times, time.Duration(i)*time.Microsecond)
	}
	r := summarise(2000, 10, 4*time.Second, times)
	if r.P50 != 500 || r.P99 != 990 || r.P999 != 999 || r.Max != 1000 || r.Rate != 500 || r.Bytes != 20000 {
		t.Errorf("summarised %+v", r)
	}
	if math.IsNaN(summarise(1, 1, time.Second, nil).P50) {
		t.Error("no times gave no number")
	}
}

func TestStampIsCheckedWhole(t *testing.T) {
	b := make([]byte, 100)
	stamp(b, 7, time.Second)
	if n, due, err := unstamp(append([]byte(nil), b...)); n != 7 || due != time.Second || err != nil {
		t.Fatalf("read back %d %v %v", n, due, err)
	}
	for i := range b {
		damaged := append([]byte(nil), b...)
		damaged[i] ^= 4
		if _, _, err := unstamp(damaged); err == nil {
			t.Fatalf("byte %d damaged and taken", i)
		}
	}
}

func TestRowsCoverEveryFigureOnce(t *testing.T) {
	s, err := parseSettings([]string{"-quick"})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{settings: s}
	seen := map[string]bool{}
	for _, r := range b.rows() {
		if seen[r.name] || r.ours == nil || len(r.goals) == 0 || r.work == "" {
			t.Errorf("row %q is there twice or not whole", r.name)
		}
		seen[r.name] = true
		// Without programs a row says so, and does not panic.
		if _, err := r.ours(t.Context()); err != errNoDanube {
			t.Errorf("row %s without danube: %v", r.name, err)
		}
	}
	if len(seen) != 19 {
		t.Errorf("%d rows", len(seen))
	}
}

func TestSettingsRefuseNonsense(t *testing.T) {
	if s, err := parseSettings([]string{"-bytes", "3MiB", "-only", "^publish"}); err != nil || s.bytes != 3<<20 || !s.only.MatchString("publish-128") {
		t.Errorf("parsed %+v, %v", s, err)
	}
	for _, args := range [][]string{{"-bytes", "much"}, {"-only", "("}, {"-kind", "tape"}} {
		if _, err := parseSettings(args); err == nil {
			t.Errorf("took %q", args)
		}
	}
}

func TestReportIsOneTable(t *testing.T) {
	text := report{args: []string{"-danube", "/x/danube", "--quick"}, lines: []line{
		{work: "a", figure: "msg/s", bound: "at least 3 times", ratio: 2, smallest: 1, largest: 3, paired: true, measured: true, ours: 200, theirs: 100},
		{work: "b", figure: "msg/s", note: "· no danube program"},
	}}.markdown()
	for _, want := range []string{"| a | msg/s | at least 3 times | 2.00 (1.00–3.00) | 200 | 100 | **not reached** |", "not measured: no danube program", "bench-peers --quick`"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if regexp.MustCompile(`/x/`).MatchString(text) {
		t.Error("the report names a path of this machine")
	}
}

func TestPlainFiguresMeasureSomething(t *testing.T) {
	r, err := writePlain(t.TempDir(), 4096, 40960, true, false)
	if err != nil || r.Messages != 10 || r.P50 <= 0 {
		t.Errorf("plain writes: %+v, %v", r, err)
	}
	for _, echoed := range []bool{false, true} {
		r, err := loopback(100, 50, echoed)
		if err != nil || r.Bytes != 5000 || r.Seconds <= 0 {
			t.Errorf("loopback: %+v, %v", r, err)
		}
	}
}
