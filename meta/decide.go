package meta

import (
	"context"

	"github.com/danubemq/danube/meta/state"
)

// Decide is Propose for who does not tell a refusal from a failure: either is the error.
func (n *Node) Decide(ctx context.Context, c state.Command) (state.Result, error) {
	res, err := n.Propose(ctx, c)
	if err == nil {
		err = res.Err
	}
	return res, err
}

// DecideEach commits a batched command of entries and returns the answer to each. Without entries there is nothing to
// commit.
func (n *Node) DecideEach(ctx context.Context, c state.Command, entries int) ([]error, error) {
	errs := make([]error, entries)
	if entries == 0 {
		return errs, nil
	}
	res, err := n.Decide(ctx, c)
	if err != nil {
		return nil, err
	}
	copy(errs, res.Entries)
	return errs, nil
}
