package catalog

import (
	"errors"
	"fmt"
)

// Input names a segment of a catalog that is to be replaced.
type Input struct {
	Start  uint64 `msgpack:"s,omitempty"`
	Object Object `msgpack:"o"`
}

// Inputs returns the neighbours that list names, which must stand in the catalog just so (R12).
func (c *Catalog) Inputs(list []Input) ([]Segment, error) {
	if len(list) == 0 {
		return nil, errors.New("nothing is to be replaced")
	}
	out := make([]Segment, 0, len(list))
	for s := range c.From(list[0].Start) {
		i := len(out)
		if i == len(list) || (Input{s.Start, s.Object}) != list[i] || i > 0 && out[i-1].End != s.Start {
			break
		}
		out = append(out, s)
	}
	if len(out) < len(list) {
		return nil, fmt.Errorf("segment at %d is not in the catalog as it was", list[len(out)].Start)
	}
	return out, nil
}

// Replaces refuses outputs that do not cover the offsets and the times of inputs, each with an object of its own and one
// that is new. Both are neighbours, at least one.
func Replaces(outputs, inputs []Segment) error {
	from, to := inputs[0], inputs[len(inputs)-1]
	at, last := from.Start, from.FirstTime
	for _, out := range outputs {
		if !out.Valid() || out.Object.Kind != Own || out.Start != at || out.FirstTime < last {
			return fmt.Errorf("segment [%d, %d) does not go on at %d", out.Start, out.End, at)
		}
		if Alone(out, inputs) == out.Object {
			return fmt.Errorf("segment [%d, %d) would take its own place", out.Start, out.End)
		}
		at, last = out.End, out.LastTime
	}
	if at != to.End || outputs[0].FirstTime != from.FirstTime || last != to.LastTime {
		return fmt.Errorf("segments up to %d do not cover those up to %d, or not their times", at, to.End)
	}
	return nil
}

// Alone returns the object of the input that has the offsets of out, the zero one if none has.
func Alone(out Segment, inputs []Segment) Object {
	for _, in := range inputs {
		if in.Start == out.Start && in.End == out.End {
			return in.Object
		}
	}
	return Object{}
}
