package cold

import (
	"context"
	"errors"
	"sync"
	"time"

	"gocloud.dev/blob"
)

const (
	listPage  = 1000
	firstWait = 100 * time.Millisecond // pause before the second attempt, doubled for each further one
	slowWait  = time.Second            // the same when the store asks for fewer requests
	maxWait   = 10 * time.Second
)

func firstPage() []byte { return blob.FirstPageToken }

func listOptions(prefix string) *blob.ListOptions { return &blob.ListOptions{Prefix: prefix} }

// call is one call of the store's interface: some requests, each with attempts of
// its own, under one deadline. The deadlines of all its attempts and pauses
// together end before its own, so that whoever waits for it always gets an answer.
type call struct {
	s        *Store
	op, key  string
	deadline time.Time // of the inner work, earlier than the context's
	cancel   context.CancelFunc
	attempts int
	renewed  bool // credentials were read again once already
}

// begin starts a call that moves about size bytes. The context it returns ends with the call's own time.
func (s *Store) begin(ctx context.Context, op, key string, size int64) (context.Context, *call) {
	now := s.cfg.Now()
	outer := now.Add(s.cfg.Call + s.transfer(size))
	if d, ok := ctx.Deadline(); ok && d.Before(outer) {
		outer = d
	}
	ctx, cancel := context.WithDeadline(ctx, outer)
	left := outer.Sub(now)
	margin := min(left/20, 100*time.Millisecond) // for what is left to do once the last attempt was given up
	return ctx, &call{s: s, op: op, key: s.prefix + key, deadline: outer.Add(-margin), cancel: cancel}
}

func (c *call) end() { c.cancel() }

// transfer is the time that bytes may take.
func (s *Store) transfer(size int64) time.Duration {
	return time.Duration(float64(size) / float64(s.cfg.Rate) * float64(time.Second))
}

// result makes the error of a call; nil stays nil.
func (c *call) result(err error) error {
	if err == nil {
		return nil
	}
	f, ok := errors.AsType[*failure](err)
	if !ok {
		f = &failure{cause: c.s.bucket.causeOf(err, context.Background(), context.Background()), err: err}
	}
	return &Error{Op: c.op, Key: c.key, Cause: f.cause, Attempts: c.attempts, Err: scrub(f.err)}
}

// failure is the error of run: the last attempt's, with its cause.
type failure struct {
	cause Cause
	err   error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }
func (f *failure) Is(target error) bool {
	c, ok := target.(Cause)
	return ok && c == f.cause
}

// run makes attempts of one request, which moves size bytes, until one succeeds, the cause is one that a repetition
// does not mend, or time, attempts or the store's budget of retries are used up.
func (c *call) run(ctx context.Context, size int64, request func(context.Context) error) error {
	for n := 1; ; n++ {
		err := c.attempt(ctx, size, n < c.s.cfg.Attempts, request)
		if err == nil {
			c.s.budget.earn()
			return nil
		}
		f := &failure{err: err.err, cause: err.cause}
		again := f.cause.again() && n < c.s.cfg.Attempts
		if f.cause == Denied && !c.renewed && c.s.bucket.Renew != nil {
			c.renewed, again = true, true
			c.s.bucket.Renew()
		}
		left := c.deadline.Sub(c.s.cfg.Now())
		if !again || left <= 0 {
			return f
		}
		pause := min(c.pause(n, f.cause), left/4) // a pause must leave time for what comes after it
		if !c.s.budget.spend() {
			c.s.m.exhausted.Inc()
			return f
		}
		c.s.cfg.Log.Debug("cold tier request failed", "op", c.op, "key", c.key, "cause", f.cause.Error(), "attempt", n, "pause", pause, "err", scrub(f.err))
		if err := c.s.cfg.Wait(ctx, pause); errors.Is(err, context.Canceled) {
			return &failure{cause: Canceled, err: errors.Join(err, f.err)}
		}
	}
}

// pause grows with the attempts and lies between a half and all of what it grew to, so that many callers that failed
// together do not come back together.
func (c *call) pause(n int, cause Cause) time.Duration {
	first := firstWait
	if cause == Throttled {
		first = slowWait
	}
	full := min(first<<min(n-1, 10), maxWait)
	return full/2 + time.Duration(c.s.cfg.Jitter()*float64(full/2))
}

// attempt makes one request within its own time. While another may follow, it takes at most two thirds of what is
// left: a request that hangs must not use up the time of the one that would have worked.
func (c *call) attempt(ctx context.Context, size int64, more bool, request func(context.Context) error) *failure {
	began := c.s.cfg.Now()
	left := c.deadline.Sub(began)
	limit := min(c.s.cfg.Attempt+c.s.transfer(size), left)
	if more {
		limit = min(limit, left*2/3)
	}
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c.attempts++
	c.s.m.inFlight.Inc()
	err := request(inner)
	c.s.m.inFlight.Dec()
	c.s.m.seconds.WithLabelValues(c.op).Observe(c.s.cfg.Now().Sub(began).Seconds())
	if err == nil {
		return nil
	}
	f := &failure{err: err, cause: c.s.bucket.causeOf(err, ctx, inner)}
	c.s.m.failed(c.op, f.cause)
	return f
}

// budget bounds the retries of a store: each costs one, each request that succeeds gives one back. So a store that fails
// half of all requests is asked twice as often, and one that fails them all is not asked several times as often.
type budget struct {
	mu    sync.Mutex
	spent int
}

// budgetSize is how many more retries than successes there may be.
const budgetSize = 50

func (b *budget) spend() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.spent == budgetSize {
		return false
	}
	b.spent++
	return true
}

func (b *budget) earn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-1)
}
