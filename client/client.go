package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danubemq/danube/client/internal/retry"
	"github.com/danubemq/danube/protocol"
)

// Client is a cluster as a program sees it. Safe for concurrent use.
type Client struct {
	cfg   Config
	addrs []string
	// life ends with Close. It bounds the mending that no caller waits for.
	life context.Context
	end  context.CancelFunc
	wg   sync.WaitGroup // connections and dials

	mu     sync.Mutex // guards what follows
	links  map[string]*link
	former []*conn // replaced, and not over yet: their brokers have said that they will close
	open   map[closer]struct{}
	closed bool
}

// closer is what is open on a Client: it is closed with it.
type closer interface{ abandon() }

// link is the connection to one address, or the attempt to make one.
type link struct {
	ready  chan struct{} // closed when conn or err stands
	conn   *conn
	err    error
	fails  int       // attempts in a row that failed, this one included
	failed time.Time // when
}

// Dial connects to a cluster through the first of addrs (host:port) that
// answers; each is tried once. The Client lives until Close, whatever becomes
// of ctx or of that broker.
func Dial(ctx context.Context, addrs []string, cfg Config) (*Client, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if len(addrs) == 0 {
		return nil, errors.New("dial: no address")
	}
	c := &Client{cfg: cfg, addrs: addrs, links: map[string]*link{}, open: map[closer]struct{}{}}
	c.life, c.end = context.WithCancel(context.WithoutCancel(ctx))
	ctx, cancel := context.WithTimeout(ctx, cfg.Timeout)
	defer cancel()
	if _, err := c.any(ctx); err != nil {
		c.Close()
		return nil, fmt.Errorf("dial %s: %w", strings.Join(addrs, ", "), err)
	}
	return c, nil
}

// Close ends everything that is open on the Client, without flushing: close
// producers and consumers first. It returns when all goroutines have. It must not be called from a callback.
func (c *Client) Close() {
	c.mu.Lock()
	c.closed = true
	open, links, former := c.open, c.links, c.former
	c.open, c.links, c.former = map[closer]struct{}{}, map[string]*link{}, nil
	c.mu.Unlock()
	c.end()
	for o := range open {
		o.abandon()
	}
	for _, l := range links {
		<-l.ready
		if l.conn != nil {
			l.conn.fail(ErrClosed)
		}
	}
	for _, old := range former {
		old.fail(ErrClosed)
	}
	c.wg.Wait()
}

// Broker says which broker and cluster answered last: names and release.
func (c *Client) Broker(ctx context.Context) (protocol.HelloOK, error) {
	conn, err := c.any(ctx)
	if err != nil {
		return protocol.HelloOK{}, err
	}
	return conn.sock.Hello, nil
}

// adopt takes o into the care of the Client.
func (c *Client) adopt(o closer) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.open[o] = struct{}{}
	return nil
}

func (c *Client) release(o closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, o)
}

// conn returns the connection to address, and makes it if there is none. All
// who ask meanwhile share one attempt, which waits after failures before it.
func (c *Client) conn(ctx context.Context, address string) (*conn, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	l := c.links[address]
	if l == nil || l.over() {
		if l != nil && l.conn != nil {
			c.former = slices.DeleteFunc(append(c.former, l.conn), (*conn).ended)
		}
		l = c.redial(address, l)
		c.links[address] = l
	}
	c.mu.Unlock()
	select {
	case <-l.ready:
		return l.conn, l.err
	case <-ctx.Done():
		return nil, retry.Stopped(ctx, "connect to "+address, nil)
	}
}

// over reports whether the link has failed or its connection takes no requests any more.
func (l *link) over() bool {
	select {
	case <-l.ready:
		return l.conn == nil || !l.conn.usable()
	default:
		return false
	}
}

// redial begins an attempt to connect; last is the link before, or nil. The caller holds c.mu.
func (c *Client) redial(address string, last *link) *link {
	l := &link{ready: make(chan struct{})}
	var wait time.Duration
	if last != nil && last.err != nil {
		l.fails = last.fails
		wait = retry.Backoff(last.fails) - time.Since(last.failed)
	}
	c.wg.Go(func() { // returns when the connection stands, cannot be made, or the Client is closed
		defer close(l.ready)
		if l.err = retry.Pause(c.life, wait); l.err == nil {
			l.conn, l.err = connect(c.life, c, address)
		}
		if l.err != nil {
			l.fails, l.failed = l.fails+1, time.Now()
			if c.life.Err() != nil {
				l.err = ErrClosed
			}
		}
	})
	return l
}

// any returns a connection to some broker: one that stands, or else the first
// of the Client's addresses that answers. One that is doubted comes last.
func (c *Client) any(ctx context.Context) (*conn, error) {
	var doubted *conn
	c.mu.Lock()
	for _, l := range c.links {
		if l.pending() || l.over() {
			continue
		}
		if !l.conn.doubtful() {
			c.mu.Unlock()
			return l.conn, nil
		}
		doubted = l.conn
	}
	c.mu.Unlock()
	if doubted != nil {
		if other, err := c.elsewhere(ctx); err == nil || ctx.Err() != nil {
			return other, err
		}
		return doubted, nil
	}
	return c.first(ctx, c.addrs)
}

// first returns a connection to the first of addrs that answers.
func (c *Client) first(ctx context.Context, addrs []string) (*conn, error) {
	var errs []error
	for _, a := range addrs {
		conn, err := c.conn(ctx, a)
		if err == nil {
			return conn, nil
		}
		if errs = append(errs, err); ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(errs...)
}

func (l *link) pending() bool {
	select {
	case <-l.ready:
		return false
	default:
		return true
	}
}

// persist does an operation until it succeeds, is refused for good, or ctx
// ends. Time without a deadline of ctx is bounded by the configured timeout.
func (c *Client) persist(ctx context.Context, op string, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	return c.insist(ctx, op, do)
}

// insist is persist without a bound of its own.
func (c *Client) insist(ctx context.Context, op string, do func(context.Context) error) error {
	var last error
	var leaderless time.Time // since when brokers answer that there is no leader; zero: they do not
	for fails := 0; ; fails++ {
		if err := retry.Pause(ctx, retry.Backoff(fails)); err != nil {
			return retry.Stopped(ctx, op, last)
		}
		asked := time.Now()
		err := do(ctx)
		switch {
		case err == nil:
			return nil
		case c.life.Err() != nil:
			return fmt.Errorf("%s: %w", op, ErrClosed)
		case ctx.Err() != nil:
			if last == nil || !errors.Is(err, ctx.Err()) {
				last = err
			}
			return retry.Stopped(ctx, op, last)
		case !retry.Verdict(err).Retriable:
			return err
		}
		last = err
		if !hasCode(err, protocol.CodeNoLeader) {
			leaderless = time.Time{}
			continue
		}
		if leaderless.IsZero() {
			leaderless = asked // it was so all the time that the broker waited for one
		}
		if c.cfg.NoLeader > 0 && time.Since(leaderless) >= c.cfg.NoLeader {
			return err
		}
	}
}

// lookup asks for the owners of a topic's partitions.
func (c *Client) lookup(ctx context.Context, topic string, create *protocol.TopicConfig) (*protocol.LookupOK, error) {
	conn, err := c.any(ctx)
	if err != nil {
		return nil, err
	}
	ok := new(protocol.LookupOK)
	err = conn.call(ctx, protocol.TypeLookup, &protocol.Lookup{Topic: topic, Create: create}, nil, &call{
		op: "look up " + topic, want: protocol.TypeLookupOK,
		decode: func(f protocol.Frame) error { return ok.Decode(f.Header) },
	})
	if err == nil && len(ok.Partitions) == 0 {
		err = retry.Lost(conn.address, fmt.Errorf("look up %s: the answer names no partition", topic))
	}
	return ok, err
}

// directed returns what a broker said of the owner of a partition, if that is of a later epoch than one that is known;
// else nil. Whoever goes by it gets to later and later epochs, and in no circle.
func directed(err error, known uint64) *protocol.Error {
	if e, ok := errors.AsType[*protocol.Error](err); ok && e.Code == protocol.CodeMoved && e.Address != "" && e.Epoch > known {
		return e
	}
	return nil
}

// owner returns a connection to the broker that owns a partition, and the epoch of that. to is what the owner before said
// of it, which may be more than others know yet; nil: nothing.
func (c *Client) owner(ctx context.Context, topic string, partition int, to *protocol.Error) (*conn, uint64, error) {
	if to != nil {
		conn, err := c.conn(ctx, to.Address)
		return conn, to.Epoch, err
	}
	info, err := c.lookup(ctx, topic, nil)
	if err != nil {
		return nil, 0, err
	}
	if partition >= len(info.Partitions) {
		return nil, 0, wireError("look up "+topic, protocol.Errorf(protocol.CodeNoSuchPartition,
			"%s has %s, there is no partition %d", topic, counted(len(info.Partitions), "partition"), partition))
	}
	o := info.Partitions[partition]
	if o.Address == "" {
		conn, err := c.any(ctx)
		return conn, o.Epoch, err
	}
	conn, err := c.conn(ctx, o.Address)
	return conn, o.Epoch, err
}

// partitions looks a topic up as a user named it and returns its full name,
// what is known of it, and the partitions that are meant.
func (c *Client) partitions(ctx context.Context, name string, create *protocol.TopicConfig) (string, *protocol.LookupOK, []int, error) {
	topic, one, err := protocol.ParseTopic(name)
	if err != nil {
		return "", nil, nil, err
	}
	var info *protocol.LookupOK
	err = c.persist(ctx, "look up "+topic, func(ctx context.Context) error {
		info, err = c.lookup(ctx, topic, create)
		return err
	})
	if err != nil {
		return "", nil, nil, err
	}
	if one >= len(info.Partitions) {
		return "", nil, nil, wireError("look up "+topic, protocol.Errorf(protocol.CodeNoSuchPartition,
			"%s has %s, there is no partition %d", topic, counted(len(info.Partitions), "partition"), one))
	}
	if one >= 0 {
		return topic, info, []int{one}, nil
	}
	all := make([]int, len(info.Partitions))
	for i := range all {
		all[i] = i
	}
	return topic, info, all, nil
}

// randomName is a name nobody else has.
func randomName() string { return strings.ToLower(rand.Text()[:16]) }
