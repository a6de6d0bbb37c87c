package admin

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// transfers are snapshots of the metadata on their way from or to a caller, at
// the leader: page by page, because one answer is bounded.
type transfers struct {
	mu   sync.Mutex // guards all
	list map[string]*transfer
}

type transfer struct {
	used time.Time // guarded by the transfers' mu

	mu    sync.Mutex // guards what follows; one page at a time
	data  bytes.Buffer
	whole bool
}

const (
	// snapshotPage is the most of a snapshot in one answer.
	snapshotPage = 4 << 20
	// transferIdle is how long a transfer is kept that nobody goes on with.
	transferIdle = 2 * time.Minute
	// transferMost bounds the transfers at one time, transferBytes what is restored.
	transferMost  = 8
	transferBytes = 4 << 30
)

func (b *Board) snapshot(ctx context.Context, q *protocol.SnapshotPage) (any, error) {
	return calls.Errand[protocol.SnapshotPage, protocol.SnapshotPage]{Op: opSnapshot, Limit: changeTime, Here: b.snapshotHere}.OnLeader(ctx, b.cfg.Peers, q)
}

func (b *Board) restore(ctx context.Context, q *protocol.SnapshotPage) (any, error) {
	return calls.Errand[protocol.SnapshotPage, protocol.SnapshotPage]{Op: opRestore, Limit: changeTime, Here: b.restoreHere}.OnLeader(ctx, b.cfg.Peers, q)
}

// begin makes a transfer, or finds the one that is named.
func (t *transfers) begin(id string, now time.Time) (string, *transfer, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, x := range t.list {
		if now.Sub(x.used) > transferIdle {
			delete(t.list, name)
		}
	}
	if id != "" {
		x := t.list[id]
		if x == nil {
			return id, nil, protocol.Errorf(protocol.CodeBadRequest, "transfer %q is not known here: another broker leads now, or it took too long; begin again", id)
		}
		x.used = now
		return id, x, nil
	}
	if len(t.list) >= transferMost {
		return "", nil, protocol.Errorf(protocol.CodeOverloaded, "%d snapshots are on their way already", len(t.list))
	}
	var raw [8]byte
	if _, err := rand.Read(raw[:]); err != nil {
		return "", nil, fmt.Errorf("draw an id: %w", err)
	}
	if t.list == nil {
		t.list = map[string]*transfer{}
	}
	id = hex.EncodeToString(raw[:])
	x := &transfer{used: now}
	t.list[id] = x
	return id, x, nil
}

func (t *transfers) end(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.list, id)
}

// snapshotHere answers a page of the metadata as this broker, the leader, has them.
func (b *Board) snapshotHere(ctx context.Context, q *protocol.SnapshotPage) (*protocol.SnapshotPage, error) {
	id, x, err := b.transfers.begin(q.ID, b.cfg.Now())
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.whole {
		err := b.cfg.Meta.Barrier(ctx) // everything that is committed now is in it
		if err == nil {
			x.data.Reset()
			err = b.cfg.Meta.Backup(&x.data)
		}
		if err != nil {
			b.transfers.end(id)
			return nil, fmt.Errorf("take a snapshot: %w", err)
		}
		x.whole = true
	}
	data := x.data.Bytes()
	out := &protocol.SnapshotPage{ID: id, Offset: q.Offset, Size: int64(len(data))}
	if q.Offset < 0 || q.Offset > out.Size {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "offset %d of a snapshot of %d bytes", q.Offset, out.Size)
	}
	out.Data = data[q.Offset:min(out.Size, q.Offset+snapshotPage)]
	if out.Last = q.Offset+int64(len(out.Data)) == out.Size; out.Last {
		b.transfers.end(id)
	}
	return out, nil
}

// restoreHere takes a page of a snapshot; the last one puts it in place of the
// metadata there are and begins a new history (R22).
func (b *Board) restoreHere(ctx context.Context, q *protocol.SnapshotPage) (*protocol.SnapshotPage, error) {
	id, x, err := b.transfers.begin(q.ID, b.cfg.Now())
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	out := &protocol.SnapshotPage{ID: id, Offset: q.Offset, Size: q.Size, Last: q.Last}
	switch at := int64(x.data.Len()); {
	case q.Offset+int64(len(q.Data)) == at && len(q.Data) > 0 && !q.Last:
		return out, nil // this page again
	case q.Offset != at || at+int64(len(q.Data)) > transferBytes:
		return nil, protocol.Errorf(protocol.CodeBadRequest, "page at offset %d does not follow the %d bytes that are here", q.Offset, at)
	}
	x.data.Write(q.Data)
	if !q.Last {
		return out, nil
	}
	defer b.transfers.end(id)
	if q.Size != 0 && int64(x.data.Len()) != q.Size {
		return nil, protocol.Errorf(protocol.CodeBadRequest, "the snapshot has %d bytes, %d came", q.Size, x.data.Len())
	}
	before := b.cfg.Meta.View()
	if err := b.cfg.Meta.Restore(ctx, bytes.NewReader(x.data.Bytes())); err != nil {
		if errors.Is(err, state.ErrDamaged) {
			b.cfg.Log.Info("refused what was to be restored", "err", err)
			return nil, &protocol.Error{Code: protocol.CodeBadRequest, Text: "this is no snapshot of the metadata, or a damaged one; nothing was changed",
				Hint: "danube cluster snapshot writes one"}
		}
		return nil, fmt.Errorf("restore the metadata: %w", err)
	}
	now := b.cfg.Meta.View()
	out.Vanished, out.Gone = vanished(before, now)
	b.cfg.Log.Warn("the metadata were restored from a snapshot; a new history begins", "history", now.Cluster().History, "topics_gone", out.Gone)
	return out, nil
}

// vanished names the topics of before that are not in now, at most mostListed of them, and counts them. One that was
// deleted and made again under its name is another topic: what was in it has vanished.
func vanished(before, now *state.View) (names []string, n int) {
	for t := range before.Topics("") {
		if same := now.TopicByID(t.ID); same != nil && !same.Deleted() {
			continue
		}
		if n++; len(names) < mostListed {
			names = append(names, t.Name)
		}
	}
	return names, n
}
