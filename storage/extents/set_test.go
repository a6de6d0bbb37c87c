package extents

import (
	"math/rand/v2"
	"testing"
)

// A set holds what was put into it, in runs as long as can be.
func TestSet(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		var c Set
		var have [60]bool
		for range rnd.IntN(12) {
			o := Run{uint64(rnd.IntN(50)), 0}
			o.To = o.From + uint64(rnd.IntN(8))
			c = c.With(o)
			for n := o.From; n < o.To; n++ {
				have[n] = true
			}
		}
		for n := range uint64(59) {
			want := n
			for want < 59 && have[want] {
				want++
			}
			if got := c.End(n); got != want {
				t.Fatalf("%v: at %d up to %d, want %d", c, n, got, want)
			}
		}
		var left [60]bool
		c.Without(Run{5, 55}, func(o Run) {
			for n := o.From; n < o.To; n++ {
				left[n] = true
			}
		})
		for n := range 60 {
			if left[n] != (!have[n] && n >= 5 && n < 55) {
				t.Fatalf("%v: %d is left out: %t", c, n, left[n])
			}
		}
		for i := 1; i < len(c); i++ {
			if c[i].From <= c[i-1].To {
				t.Fatalf("%v is not joined", c)
			}
		}
	}
}
