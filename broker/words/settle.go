package words

import (
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// Settles says which ranges an operator settles in a way: lost, accept-gap or adopt. What was lost by itself, as with the
// power, he gives up too, so that it is known to be missed by nobody.
func Settles(how string) (func(*state.Range) bool, error) {
	switch how {
	case "lost":
		return func(r *state.Range) bool {
			return r.Status == state.RangeOrphaned || r.Status == state.RangeLost && !r.Accepted
		}, nil
	case "accept-gap":
		return func(r *state.Range) bool { return r.Status == state.RangeOrphaned }, nil
	case "adopt":
		return func(r *state.Range) bool { return r.Status == state.RangeLost && len(r.Stores) > 0 }, nil
	}
	return nil, protocol.Errorf(protocol.CodeBadRequest, "resolve: use lost, accept-gap or adopt")
}
