package meters

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

func TestAllOrNothing(t *testing.T) {
	counter := func(name string) prometheus.Collector {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: name})
	}
	count := func(reg *prometheus.Registry) int {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		return len(families)
	}
	set := Set{counter("one"), counter("two"), counter("three")}
	if err := set.Register(nil); err != nil {
		t.Fatal(err)
	}
	set.Unregister(nil)

	reg := prometheus.NewRegistry()
	if err := set.Register(reg); err != nil || count(reg) != 3 {
		t.Fatalf("%d of three registered, %v", count(reg), err)
	}
	set.Unregister(reg)
	if n := count(reg); n != 0 {
		t.Errorf("%d are left", n)
	}
	if err := (Set{counter("three")}).Register(reg); err != nil {
		t.Fatal(err)
	}
	if err := set.Register(reg); err == nil || count(reg) != 1 {
		t.Errorf("with one that is there already: %v, %d are registered", err, count(reg))
	}
}
