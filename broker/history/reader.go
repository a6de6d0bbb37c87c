package history

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/cluster"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
	"github.com/danubemq/danube/storage"
	"github.com/danubemq/danube/storage/cold"
	"github.com/danubemq/danube/storage/cold/fetch"
)

// Reader yields the batches of a partition wherever they lie: from this store's
// log, or page by page from the stores that the metadata name (R19). One page
// is read ahead. Not safe for concurrent use.
type Reader struct {
	p      *Partition
	ctx    context.Context
	cancel context.CancelFunc
	log    *storage.Stream
	next   uint64
	page   page        // what was fetched and is not handed out yet, from next on
	ahead  *pageFuture // the page behind it

	// Once says that nothing is read ahead: the reader is for a single page.
	Once bool
}

// page is a run of whole batches of another store.
type page struct {
	data []byte
	end  uint64
}

// pageFuture is a page on its way.
type pageFuture struct {
	from uint64
	done chan struct{}
	page page
	err  error
}

// pageBytes is the most that one request asks of another store.
const pageBytes = 1 << 20

// Reader returns a reader whose first batch is the one that holds from. ctx
// bounds what it asks of other brokers.
func (p *Partition) Reader(ctx context.Context, from uint64) *Reader {
	ctx, cancel := context.WithCancel(ctx)
	return &Reader{p: p, ctx: ctx, cancel: cancel, log: p.stream(from), next: from}
}

// Seek goes on at another offset.
func (r *Reader) Seek(offset uint64) {
	if offset != r.next {
		r.next, r.page = offset, page{}
		r.log.Seek(offset)
	}
}

// Close gives memory back and waits for the page that is on its way.
func (r *Reader) Close() {
	r.cancel()
	if r.ahead != nil {
		<-r.ahead.done
	}
	r.log.Close()
}

// Next returns the next batches as [storage.Reader.Next] does, those of other
// stores included. *AwayError: the stores that hold them are away. ErrStale: the
// log and the metadata disagree for a moment. The reader has not moved then.
func (r *Reader) Next(maxBytes int) (storage.View, error) {
	for {
		if len(r.page.data) > 0 {
			return r.cut(maxBytes), nil
		}
		if w := r.p.hidden.Load(); w != nil && w.from <= r.next && r.next < w.to {
			return storage.View{}, &storage.Gap{From: r.next, To: w.to, Status: storage.RangeOrphaned}
		}
		view, err := r.log.Next(r.ctx, maxBytes)
		if err == nil {
			r.next = view.End
			return view, nil
		}
		other, is := errors.AsType[*storage.Elsewhere](err)
		if !is {
			return view, asAway(err, r.next, r.next+1)
		}
		if r.page, err = r.take(other); err != nil {
			return view, err
		}
	}
}

// cut makes a view of the front of the page and moves the reader behind it.
func (r *Reader) cut(maxBytes int) storage.View {
	data := batch.Batch(r.page.data)
	view := storage.View{Base: data.Base()}
	n := 0
	for n < len(data) {
		b := data[n:]
		if n > 0 && n+b.Len() > maxBytes {
			break
		}
		view.End = b.End()
		n += b.Len()
	}
	view.Data = data[:n:n]
	r.page.data = data[n:]
	r.next = view.End
	r.log.Seek(view.End)
	return view
}

// take returns the page that begins with the batch of the reader's offset and
// begins to read the one behind it.
func (r *Reader) take(other *storage.Elsewhere) (page, error) {
	var got page
	var err error
	if a := r.ahead; a != nil {
		r.ahead = nil
		<-a.done
		if a.from == r.next {
			got, err = a.page, a.err
		}
	}
	if got.data == nil {
		got, err = r.p.h.fetchPage(r.ctx, r.p.id, r.next, other.To, false)
	}
	if err == nil && got.end < other.To && !r.Once {
		a := &pageFuture{from: got.end, done: make(chan struct{})}
		r.ahead = a
		go func() { // returns with the page; Close and the next page wait for it
			defer close(a.done)
			a.page, a.err = r.p.h.fetchPage(r.ctx, r.p.id, a.from, other.To, false)
		}()
	}
	return got, err
}

// AwayError says that the messages [From, To) lie on brokers that cannot be asked
// now, or in the cold tier, which cannot be read now.
type AwayError struct {
	From, To uint64
	Brokers  []string // none: the cold tier
	Err      error    // what became of the last attempt
}

func (e *AwayError) Error() string {
	return fmt.Sprintf("offsets %d to %d lie %s: %v", e.From, e.To, e.Where(), e.Err)
}

// Where says in words where the messages lie.
func (e *AwayError) Where() string {
	if len(e.Brokers) == 0 {
		return "in the cold tier, which cannot be read now"
	}
	return "on broker " + strings.Join(e.Brokers, " or ") + ", which is away"
}

// asAway makes an [AwayError] of what the cold tier said of a read at from: its
// messages are there, and who reads tries again. Everything else stays as it is.
func asAway(err error, from, to uint64) error {
	if in, is := errors.AsType[*storage.InCold](err); is {
		return &AwayError{From: in.From, To: in.To, Err: errNoCold}
	}
	_, missing := errors.AsType[*fetch.Missing](err)
	_, refused := errors.AsType[*cold.Error](err)
	if missing || refused || errors.Is(err, fetch.ErrClosed) {
		return &AwayError{From: from, To: to, Err: err}
	}
	return err
}

// errNoCold: what was exported in another mode can be read in that mode alone.
var errNoCold = errors.New("this broker has no cold tier (storage.mode is local), or has not heard where it lies")

func (e *AwayError) Unwrap() error { return e.Err }

// ErrStale says that what was looked at has changed meanwhile: look again. It is never the end of anything (R19).
var ErrStale = errors.New("where these offsets lie has changed just now")

// fetchPage reads a page from a store that holds the offset, as one version of
// the metadata says. returned: the offset is ORPHANED or LOST, and a store may
// have come back with it.
func (h *History) fetchPage(ctx context.Context, id storage.PartitionID, from, to uint64, returned bool) (page, error) {
	view := h.cfg.Meta.View()
	m := view.Partition(id.Topic, id.Partition)
	if m == nil {
		return page{}, ErrStale
	}
	rg := m.Range(from)
	if rg == nil || (rg.Status == state.RangeSealed) == returned || rg.Status == state.RangeOpen {
		return page{}, ErrStale
	}
	to = min(to, rg.End)
	q := &fetchArg{Partition: calls.Of(m), From: from, To: to, Max: pageBytes, Index: view.Index(), Returned: returned}
	away := &AwayError{From: rg.Start, To: rg.End}
	for _, store := range h.cfg.Peers.Nearest(rg.Stores) {
		if store == h.cfg.Self().Store {
			return page{}, ErrStale // its files are here, and the log learns of them in a moment
		}
		got, err := h.fetchFrom(ctx, store, q, rg)
		if err == nil {
			return got, nil
		}
		if d, is := errors.AsType[*storage.Damage](err); is {
			return page{}, d
		}
		away.Brokers, away.Err = append(away.Brokers, h.cfg.Peers.Name(store)), err
	}
	return page{}, away
}

// fetchTime bounds one page.
const fetchTime = 5 * time.Second

// fetchFrom reads a page from one store and holds it against the range (R19, R21).
func (h *History) fetchFrom(ctx context.Context, store state.StoreID, q *fetchArg, rg *state.Range) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	body, err := protocol.EncodeBody(q)
	if err != nil {
		return page{}, err
	}
	data, err := h.cfg.Peers.Cluster.Call(ctx, store, OpFetch, body)
	if err != nil {
		return page{}, h.fetchError(store, q, err)
	}
	end, err := checkPage(data, q, rg)
	if err != nil {
		return page{}, fmt.Errorf("fetch offset %d from broker %s: %w", q.From, h.cfg.Peers.Name(store), err)
	}
	return page{data, end}, nil
}

// fetchError is what became of a request for a page.
func (h *History) fetchError(store state.StoreID, q *fetchArg, err error) error {
	remote, is := errors.AsType[*cluster.RemoteError](err)
	if is && remote.Code == damagedCode {
		d := &storage.Damage{From: q.From, To: q.To, File: "broker " + h.cfg.Peers.Name(store)}
		var text string
		if _, err := fmt.Sscanf(remote.Text, "%d %d %q", &d.From, &d.To, &text); err == nil {
			d.From, d.To = max(d.From, q.From), min(d.To, q.To)
		}
		if d.Err = errors.New(text); d.From < d.To {
			return d
		}
	}
	return h.cfg.Peers.Error(store, err)
}

// wireLimits are what is taken from another store: it was checked against the limits of its day.
var wireLimits = batch.Limits{Message: 1 << 30, Batch: 64 << 20, Body: 1 << 30, Messages: 1 << 24}

// checkPage returns the end of a page whose batches follow each other from the
// one that holds q.From on, each whole and of the epoch that gives its offsets
// their value (R19). Whatever another store sends beside that does not exist.
func checkPage(data []byte, q *fetchArg, rg *state.Range) (end uint64, err error) {
	end = q.From
	for at := 0; at < len(data); {
		b, err := batch.Check(data[at:], wireLimits)
		switch {
		case err != nil:
			return 0, fmt.Errorf("batch at byte %d: %w", at, err)
		case b.Epoch() != rg.Epoch(b.Base()) || b.Base() < rg.Start:
			return 0, fmt.Errorf("batch of offset %d has epoch %d, the range has %d", b.Base(), b.Epoch(), rg.Epoch(b.Base()))
		case b.Base() > end || at > 0 && b.Base() != end || b.End() <= end || b.Control():
			return 0, fmt.Errorf("batch of offsets %d to %d does not follow offset %d", b.Base(), b.End(), end)
		case b.End() > rg.End || b.End() > nextEpoch(rg, b.Base()):
			return 0, fmt.Errorf("batch of offsets %d to %d goes beyond its epoch", b.Base(), b.End())
		}
		end = b.End()
		at += len(b)
	}
	if end == q.From {
		return 0, errors.New("the answer is empty")
	}
	return end, nil
}

// nextEpoch is where the epoch that holds offset n of a range ends.
func nextEpoch(rg *state.Range, n uint64) uint64 {
	for _, e := range rg.Epochs {
		if e.Start > n {
			return e.Start
		}
	}
	return rg.End
}
