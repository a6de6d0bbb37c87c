package calls

import (
	"context"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// decideTime bounds how long a request waits for a majority of the voters. A
// client need name no deadline, and is answered all the same: it may ask again,
// and what the cluster decides for itself goes on trying.
const decideTime = 5 * time.Second

// Request has the leader commit a command for somebody who waits for the answer,
// and who is refused when no majority answers soon.
func (p *Peers) Request(ctx context.Context, c state.Command) (state.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, decideTime)
	defer cancel()
	return p.Meta.Decide(ctx, c)
}

// RequestEach is Request of a batched command; it returns the answer to each entry.
func (p *Peers) RequestEach(ctx context.Context, c state.Command, entries int) ([]error, error) {
	ctx, cancel := context.WithTimeout(ctx, decideTime)
	defer cancel()
	return p.Meta.DecideEach(ctx, c, entries)
}
