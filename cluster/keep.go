package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/danubemq/danube/meta/state"
)

// seeds is which of the configured seeds this run has reached, and who they were.
type seeds struct {
	tried chan struct{} // closed when every seed has been tried once

	mu   sync.Mutex
	all  []seed
	once bool
}

type seed struct {
	address string // as configured, with a port
	who     []state.StoreID
	why     string // it was not reached
	told    bool   // that it is of another cluster
}

func (s *seeds) init(addresses []string) {
	s.tried = make(chan struct{})
	for _, a := range addresses {
		s.all = append(s.all, seed{address: a})
	}
}

// state returns the seeds not reached yet, each with why, and who the others are.
func (s *seeds) state() (missing []string, who []state.StoreID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.all {
		switch {
		case len(e.who) > 0:
			who = append(who, e.who...)
		case e.why != "":
			missing = append(missing, fmt.Sprintf("%s (%s)", e.address, e.why))
		default:
			missing = append(missing, e.address)
		}
	}
	return missing, who
}

func (s *seeds) list() []seed {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

func (s *seeds) reached(i int, who []state.StoreID, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.all[i].why = err.Error()
		return
	}
	s.all[i].who, s.all[i].why, s.all[i].told = who, "", false
}

// strange notes that a seed is of another cluster, and returns whether that is news.
func (s *seeds) strange(i int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	news := !s.all[i].told
	s.all[i].told = true
	return news
}

func (s *seeds) done() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.once {
		s.once = true
		close(s.tried)
	}
}

const (
	keepInterval = time.Second
	// keepFast is how often seeds are tried while the cluster forms.
	keepFast = 200 * time.Millisecond
)

// keepGossip reaches for the seeds and for brokers that are missing, for ever: memberlist itself never heals a partition
// that outlasts its memory of the dead. It also tells this broker's load and looks after rivals. It returns when ctx is
// done.
func (c *Cluster) keepGossip(ctx context.Context) {
	for {
		c.reachSeeds(ctx)
		c.seeds.done()
		c.meetRivals(ctx)
		c.meetAhead(ctx)
		c.askStanding(ctx)
		interval := keepInterval
		if c.node.Load() == nil {
			interval = keepFast
		} else {
			c.reachMissing()
		}
		if c.cfg.Load != nil {
			c.gossip.tell(c.cfg.Load())
		}
		timer := time.NewTimer(interval)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// reachSeeds tries every seed that was not reached yet, or of whom nobody is seen any more. Those of another cluster are
// told of once: nothing will come of them, and whoever gave them takes this broker for a member there.
func (c *Cluster) reachSeeds(ctx context.Context) {
	var strange []string
	var why error
	defer func() {
		if why != nil {
			c.cfg.Log.Warn("seeds are of another cluster than this broker and its data directory", "seeds", strange, "error", why)
		}
	}()
	for i, s := range c.seeds.list() {
		if ctx.Err() != nil {
			return
		}
		if len(s.who) > 0 && slices.ContainsFunc(s.who, c.gossip.sees) {
			continue
		}
		lookup, cancel := context.WithTimeout(ctx, 2*time.Second)
		addresses, err := resolve(lookup, s.address)
		cancel()
		var who []state.StoreID
		if err == nil {
			who, err = c.gossip.contact(addresses)
		}
		if err != nil {
			c.cfg.Log.Debug("seed not reached", "seed", s.address, "error", err)
			err = reason(err)
		}
		if errors.Is(err, ErrWrongCluster) && c.seeds.strange(i) {
			strange, why = append(strange, s.address), err
		}
		c.seeds.reached(i, who, err)
	}
}

// reason is the innermost cause of a failed contact, short enough for a status line.
func reason(err error) error {
	if joined, ok := errors.AsType[interface {
		error
		WrappedErrors() []error
	}](err); ok && len(joined.WrappedErrors()) > 0 {
		return joined.WrappedErrors()[0]
	}
	return err
}

// reachMissing tries the brokers that are gone.
func (c *Cluster) reachMissing() {
	for _, m := range c.gossip.members() {
		if m.State == Dead && m.Store != c.cfg.Identity.Store {
			if _, err := c.gossip.contact([]string{m.Gossip}); err == nil {
				return // it brings what it knows; one a round is enough
			}
		}
	}
}

// meetRivals looks whether whoever gossips under this store's id runs on a copy of its data directory, or is only the
// memory of an earlier run. A broker that has not opened the metadata gives way; of two that have, the metadata fence
// the one that registered first.
func (c *Cluster) meetRivals(ctx context.Context) {
	for _, address := range c.gossip.rivals() {
		err := c.peers.Greet(ctx, address, c.cfg.Identity.Store)
		if !errors.Is(err, ErrDuplicate) {
			continue // nil: this very process
		}
		c.cfg.Log.Error("a second copy of this data directory runs", "at", address, "error", err)
		if c.node.Load() != nil {
			continue
		}
		c.fail(fmt.Errorf("%w at %s: %w", ErrDuplicate, address, err))
	}
}
