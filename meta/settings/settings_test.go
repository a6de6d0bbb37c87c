package settings

import (
	"strings"
	"testing"
	"time"
)

func TestNamesOfTopicsAreHeldToTheRules(t *testing.T) {
	long := strings.Repeat("x", MaxNameBytes)
	for name, why := range map[string]string{
		"/default/a":            "",
		"/ns/A-b_c.9":           "",
		"/ns/" + long:           "",
		"/ns/" + long + "x":     "at most 255",
		"a":                     "not of the form",
		"/a":                    "not of the form",
		"//a":                   "namespace name is empty",
		"/ns/":                  "topic name is empty",
		"/ns/a b":               "letters, digits",
		"/n s/a":                "letters, digits",
		"/ns/a/b":               "letters, digits",
		"/ns/\xff":              "letters, digits",
		strings.Repeat("/", 99): "namespace name is empty",
	} {
		namespace, topic, err := SplitTopic(name)
		switch {
		case why == "" && (err != nil || "/"+namespace+"/"+topic != name):
			t.Errorf("%q gives %q, %q, %v", name, namespace, topic, err)
		case why != "" && (err == nil || !strings.Contains(err.Error(), why)):
			t.Errorf("%q is refused with %v, want %q in it", name, err, why)
		}
	}
}

func TestSettingsThatNoTopicHasAreRefused(t *testing.T) {
	good := Topic{Partitions: 3, Reliable: true, Durability: LevelWarm, RetentionTime: time.Hour}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Topic){
		"no partition":             func(s *Topic) { s.Partitions = 0 },
		"too many":                 func(s *Topic) { s.Partitions = MaxPartitions + 1 },
		"reliable without a level": func(s *Topic) { s.Durability = LevelNone },
		"a level for nothing":      func(s *Topic) { s.Reliable = false },
		"a level of a newer one":   func(s *Topic) { s.Durability = LevelObject + 1 },
		"negative time":            func(s *Topic) { s.RetentionTime = -1 },
	} {
		bad := good
		if spoil(&bad); bad.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
		if d := good.Difference(bad); d == "" {
			t.Errorf("%s: no difference", name)
		}
	}
	if d := good.Difference(good); d != "" {
		t.Errorf("from itself it differs in %s", d)
	}
}

func TestOptionsOfSubscriptions(t *testing.T) {
	good := Subscription{MaxUnacked: 5, AckTimeout: time.Second, KeyFilters: []string{"a*"}, Poison: PoisonDeadLetter, DeadLetter: "/ns/dead"}
	if err := good.Check(); err != nil || !good.Equal(good) {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*Subscription){
		"negative timeout": func(s *Subscription) { s.AckTimeout = -1 },
		"unknown policy":   func(s *Subscription) { s.Poison = PoisonDrop + 1 },
		"no topic's name":  func(s *Subscription) { s.DeadLetter = "dead" },
	} {
		bad := good
		if spoil(&bad); bad.Check() == nil || bad.Equal(good) {
			t.Errorf("%s: accepted", name)
		}
	}
	other := good
	if other.KeyFilters = []string{"b*"}; other.Equal(good) {
		t.Error("other filters are equal")
	}
	if other.KeyFilters = nil; other.Equal(good) {
		t.Error("no filters are equal")
	}
}
