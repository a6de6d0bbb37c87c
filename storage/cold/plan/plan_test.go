package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

var epoch = time.Unix(1_800_000_000, 0)

func at(d time.Duration) time.Time { return epoch.Add(d) }

func named(n byte) ID { return ID{Topic: [16]byte{n}} }

// waiting is a partition with ten messages of a kilobyte each to export, the oldest so old.
func waiting(n byte, age time.Duration, change func(*Partition)) Partition {
	p := Partition{ID: named(n), Next: 100, End: 110, Bytes: 10 << 10, Sealed: 100, Oldest: at(-age)}
	if change != nil {
		change(&p)
	}
	return p
}

// told writes jobs as a line each: reason and partitions with offsets.
func told(jobs []Job) string {
	var lines []string
	for _, j := range jobs {
		line := j.Reason.String()
		for _, p := range j.Pieces {
			line += fmt.Sprintf(" %d[%d,%d)", p.ID.Topic[0], p.From, p.To)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

func TestNext(t *testing.T) {
	sealed := func(p *Partition) { p.Sealed, p.SealedBytes = 105, 5<<10 }
	object := func(p *Partition) { p.Object = true }
	leaving := func(p *Partition) { p.Leaving = true }
	idle := State{Now: epoch, Slots: 4, Free: 4}
	for name, test := range map[string]struct {
		state func(*State)
		parts []Partition
		want  string
		wake  time.Duration // after now; 0: never
	}{
		"nothing":              {},
		"nothing to export":    {parts: []Partition{{ID: named(1), Next: 5, End: 5}}},
		"young":                {parts: []Partition{waiting(1, 20*time.Second, nil)}, wake: 40 * time.Second},
		"old":                  {parts: []Partition{waiting(1, time.Minute, nil)}, want: "age 1[100,110)"},
		"a whole file":         {parts: []Partition{waiting(1, 0, sealed)}, want: "size 1[100,105)"},
		"old, and a file":      {parts: []Partition{waiting(1, time.Hour, sealed)}, want: "age 1[100,105)"},
		"leaving":              {parts: []Partition{waiting(1, 0, leaving)}, want: "leaves 1[100,110)"},
		"leaving, and object":  {parts: []Partition{waiting(1, 0, func(p *Partition) { p.Leaving, p.Object = true, true })}, want: "leaves 1[100,110)"},
		"leaving, file first":  {parts: []Partition{waiting(1, 0, func(p *Partition) { sealed(p); leaving(p) })}, want: "leaves 1[100,105)"},
		"under way":            {parts: []Partition{waiting(1, time.Hour, func(p *Partition) { p.Busy = true })}},
		"full disk":            {state: func(s *State) { s.Pressed = true }, parts: []Partition{waiting(1, 0, nil), waiting(2, 0, func(p *Partition) { p.Bytes = 1 << 30 })}, want: "room 2[100,110); room 1[100,110)"},
		"object, young":        {parts: []Partition{waiting(1, 50*time.Millisecond, object)}, wake: 200 * time.Millisecond},
		"object, in time":      {parts: []Partition{waiting(1, 250*time.Millisecond, object)}, want: "acks 1[100,110)"},
		"object, enough":       {parts: []Partition{waiting(1, 0, object), waiting(2, 0, func(p *Partition) { p.Object, p.Bytes = true, 4<<20 })}, want: "acks 1[100,110) 2[100,110)"},
		"object, one cut":      {state: func(s *State) { s.Cutting = true }, parts: []Partition{waiting(1, time.Hour, object)}},
		"object, all together": {parts: []Partition{waiting(3, 0, object), waiting(1, time.Second, object), waiting(2, 0, object)}, want: "acks 1[100,110) 2[100,110) 3[100,110)"},
		"order": {
			parts: []Partition{waiting(1, 0, sealed), waiting(2, 2*time.Minute, nil), waiting(3, 0, leaving), waiting(4, time.Second, object), waiting(5, time.Hour, nil)},
			state: func(s *State) { s.Slots, s.Free = 9, 9 },
			want:  "leaves 3[100,110); acks 4[100,110); age 5[100,110); age 2[100,110); size 1[100,105)",
		},
		"last slot is kept": {
			parts: []Partition{waiting(1, 0, sealed), waiting(2, 0, sealed)}, state: func(s *State) { s.Free = 2 },
			want: "size 1[100,105)",
		},
		"last slot is used":   {parts: []Partition{waiting(1, 0, sealed), waiting(2, 0, leaving)}, state: func(s *State) { s.Free = 1 }, want: "leaves 2[100,110)"},
		"one slot in all":     {parts: []Partition{waiting(1, 0, sealed)}, state: func(s *State) { s.Slots, s.Free = 1, 1 }, want: "size 1[100,105)"},
		"no slot":             {parts: []Partition{waiting(2, 0, leaving)}, state: func(s *State) { s.Free = 0 }},
		"paused":              {parts: []Partition{waiting(1, time.Hour, sealed), waiting(2, time.Hour, leaving), waiting(3, time.Hour, object)}, state: func(s *State) { s.Paused = true }, want: "leaves 2[100,110); acks 3[100,110)"},
		"failed a moment ago": {parts: []Partition{waiting(1, time.Hour, func(p *Partition) { p.Failures, p.Failed = 3, at(-time.Second) })}, wake: 3 * time.Second},
		"failed long ago":     {parts: []Partition{waiting(1, time.Hour, func(p *Partition) { p.Failures, p.Failed = 30, at(-time.Minute) })}, want: "age 1[100,110)"},
		"failed, acks wait":   {parts: []Partition{waiting(1, time.Hour, func(p *Partition) { p.Object, p.Failures, p.Failed = true, 30, at(-time.Second) })}, wake: 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := idle
			if test.state != nil {
				test.state(&s)
			}
			jobs, wake := Config{}.Next(s, test.parts)
			if got := told(jobs); got != test.want {
				t.Errorf("jobs %q, want %q", got, test.want)
			}
			if test.wake == 0 != wake.IsZero() || test.wake != 0 && wake != at(test.wake) {
				t.Errorf("wakes at %v, want %v from now", wake, test.wake)
			}
		})
	}
}

func TestSameFactsSameJobs(t *testing.T) {
	var parts []Partition
	for n := range byte(40) {
		parts = append(parts, waiting(n, time.Duration(n%5)*time.Minute, func(p *Partition) { p.Object = n%3 == 0 }))
	}
	s := State{Now: epoch, Slots: 20, Free: 20}
	want, _ := Config{}.Next(s, parts)
	slices.Reverse(parts)
	got, _ := Config{}.Next(s, parts)
	if told(got) != told(want) {
		t.Errorf("in another order %q, not %q", told(got), told(want))
	}
}

func TestShareIsFair(t *testing.T) {
	for name, test := range map[string]struct {
		has  []int64
		most int64
		want []int64
	}{
		"all fit":        {[]int64{10, 20, 30}, 100, []int64{10, 20, 30}},
		"one large":      {[]int64{1000, 10, 20}, 100, []int64{70, 10, 20}},
		"two large":      {[]int64{1000, 10, 900}, 100, []int64{45, 10, 45}},
		"more than room": {[]int64{5, 5, 5}, 3, []int64{1, 1, 1}},
	} {
		var parts []*Partition
		for _, n := range test.has {
			parts = append(parts, &Partition{Bytes: n})
		}
		if got := share(parts, test.most); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
