package broker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/danubemq/danube/broker/calls"
	"github.com/danubemq/danube/broker/served"
	"github.com/danubemq/danube/broker/words"
	"github.com/danubemq/danube/meta/state"
	"github.com/danubemq/danube/protocol"
)

// A planned move (R16), at the broker that gives a partition away. The metadata
// say SEALING; the target gets ready; the log is paused at its exact end; the
// target hears of that; one command seals the epoch here and opens the next one
// there. Whatever goes wrong before that command is proposed ends in an abort,
// after which everything goes on here as if nothing had been; once it was
// proposed, only the metadata say how it ended (R5).

const (
	// decideTime bounds one attempt to commit how a move ends.
	decideTime = 5 * time.Second
	// settleTime bounds what comes after the decision: the last cursors, and word of them to the new owner.
	settleTime = time.Second
	// moveRetry is the pause before a move is tried again that could be neither ended nor aborted.
	moveRetry = time.Second
)

// errMoveOver says that the move is not the one the metadata have.
var errMoveOver = errors.New("the move was aborted")

func (b *Broker) isMoving(key served.Key) bool {
	b.owning.lock.Lock()
	defer b.owning.lock.Unlock()
	return b.moves[key]
}

// moveBeside carries a move out in the background.
func (b *Broker) moveBeside(ctx context.Context, p *served.Partition, m *state.Partition) {
	b.owning.lock.Lock()
	on := b.moves[p.Key]
	b.moves[p.Key] = true
	b.owning.lock.Unlock()
	if on {
		return
	}
	b.background(ctx, func() {
		b.carryOut(ctx, p, m)
		b.owning.lock.Lock()
		delete(b.moves, p.Key)
		b.owning.lock.Unlock()
		b.compareAgain(p.Key)
	})
}

// carryOut moves a partition or takes the move back.
func (b *Broker) carryOut(ctx context.Context, p *served.Partition, m *state.Partition) {
	began := time.Now()
	b.cfg.At("move.sealing")
	err := b.giveAway(ctx, p, m)
	if err == nil {
		b.log.Debug("partition moved", "partition", p.Name(), "to", b.brokerName(m.Target.Store), "took", time.Since(began))
		return
	}
	if ctx.Err() != nil {
		return // the process ends; whoever leads finishes what is in the metadata
	}
	b.log.Warn("partition not moved", "partition", p.Name(), "to", b.brokerName(m.Target.Store), "err", err)
	if err := b.takeBack(ctx, p, m); err != nil && ctx.Err() == nil {
		b.log.Warn("move not aborted, trying again", "partition", p.Name(), "err", err)
		calls.Pause(ctx, moveRetry)
	}
}

// makeReady does what can be done while producers go on: the target opens the log
// as far as it goes, and what was acknowledged is committed. The rest follows
// under the next epoch.
func (b *Broker) makeReady(ctx context.Context, p *served.Partition, m *state.Partition) error {
	q := &prepareArg{Partition: calls.Of(m), Move: m.Move, End: m.Floor}
	if p.Log != nil {
		q.End = p.Log.Committed()
	}
	var flushing sync.WaitGroup
	if p.Unsettled() {
		flushing.Go(func() { b.carrier.Flush(ctx) })
	}
	_, err := calls.AskSoon[prepareAnswer](ctx, b.peers, m.Target.Store, opReady, q)
	flushing.Wait()
	if errors.Is(err, protocol.Errorf(protocol.CodeInternal, "")) {
		return nil // an earlier release does not know what is asked; all of it is done behind the pause
	}
	return err
}

// How long a move waits for the cold tier. Where it is away others copy from here
// what it lacks, as without one.
const (
	exportTime = 10 * time.Second        // of what lies there when it begins, while producers go on
	tailTime   = 1500 * time.Millisecond // of what came since, while they wait
)

// giveAway does a move. With an error the partition is still this broker's,
// perhaps paused, and either no hand-over was ever proposed or the metadata say
// that it will not happen.
//
// What producers wait for lies between the pause and letGo: one sync of what is on
// its way here, two at the target for the producer table, and one command.
func (b *Broker) giveAway(ctx context.Context, p *served.Partition, m *state.Partition) error {
	if err := b.makeReady(ctx, p, m); err != nil {
		return fmt.Errorf("make the target ready: %w", err)
	}
	b.cfg.At("move.ready")
	cold := p.Log != nil && b.exported(ctx, p.Key.ID(), p.Log.Settled(), exportTime)
	p.Pause()
	q := &prepareArg{Partition: calls.Of(m), Move: m.Move, End: m.Floor}
	if p.Log != nil {
		var err error
		if q.End, err = p.Log.Pause(); err != nil {
			return fmt.Errorf("pause %s: %w", p.Name(), err)
		}
		b.cfg.At("move.paused")
		if q.Sessions, err = p.Log.Sessions(); err != nil {
			return err
		}
		if cold {
			b.exported(ctx, p.Key.ID(), q.End, tailTime)
			b.cfg.At("move.exported")
		}
	}
	if _, err := calls.AskSoon[prepareAnswer](ctx, b.peers, m.Target.Store, opPrepare, q); err != nil {
		return fmt.Errorf("prepare the target: %w", err)
	}
	b.cfg.At("move.prepared")
	epoch, err := b.handOver(ctx, p, m, q.End)
	if err != nil {
		return err
	}
	b.cfg.At("move.handed-over")
	b.letGo(ctx, p, m, epoch)
	b.cfg.At("move.over")
	return nil
}

// handOver commits the end of the epoch here and the next one at the target,
// and returns that. It does not return before the outcome is known.
func (b *Broker) handOver(ctx context.Context, p *served.Partition, m *state.Partition, end uint64) (epoch uint64, err error) {
	c := &state.HandOver{Owner: b.self(), Entries: []state.PartitionHandOver{{
		Topic: m.Topic, Partition: m.Number, Epoch: m.Epoch, Move: m.Move, End: end, To: m.Target,
	}}}
	for {
		attempt, cancel := context.WithTimeout(ctx, decideTime)
		errs, err := b.proposeEach(attempt, c, 1)
		cancel()
		now := b.meta.View().Partition(m.Topic, m.Number)
		switch {
		case now == nil:
			return 0, nil // deleted meanwhile
		case now.Epoch != m.Epoch:
			return now.Epoch, nil // by this command, or by a loss that the cluster decided
		case now.State != state.Sealing || now.Move != m.Move:
			return 0, errMoveOver
		case err == nil && errs[0] != nil:
			return 0, fmt.Errorf("hand over: %w", errs[0])
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		}
		b.log.Warn("whether the partition was handed over is not known, asking again", "partition", p.Name(), "err", err)
	}
}

// letGo ends a partition here whose next epoch is another broker's. Producers are
// told at once. What consumers acknowledged since the last commit is committed
// under that epoch, and the new owner hears of it, before they are told to go
// there: so nothing that was acknowledged comes again.
func (b *Broker) letGo(ctx context.Context, p *served.Partition, m *state.Partition, epoch uint64) {
	view := b.meta.View()
	t, now := view.TopicByID(m.Topic), view.Partition(m.Topic, m.Number)
	if t == nil || now == nil || epoch == 0 {
		b.retire(p, words.DeletedTopic(p.Topic))
		return
	}
	why := b.notMine(view, t, now)
	if now.Owner == m.Target {
		p.HandOver(epoch)
		p.SendAway(why)
		b.cfg.At("move.sent-away")
		settle, cancel := context.WithTimeout(ctx, settleTime)
		b.carrier.Settle(settle, p.Unsettled)
		q := &settledArg{Partition: calls.Partition{Topic: m.Topic[:], Number: m.Number, Epoch: epoch}, Index: b.meta.View().Index()}
		if _, err := calls.AskSoon[struct{}](settle, b.peers, m.Target.Store, opSettled, q); err != nil {
			b.log.Debug("new owner not told that cursors are settled", "partition", p.Name(), "err", err)
		}
		cancel()
	}
	b.retire(p, why)
}

// takeBack aborts a move, and lets the partition go on here once it is.
func (b *Broker) takeBack(ctx context.Context, p *served.Partition, m *state.Partition) error {
	abort, cancel := context.WithTimeout(ctx, decideTime)
	defer cancel()
	errs, err := b.proposeEach(abort, &state.AbortMoves{Entries: []state.MoveAbort{{
		Topic: m.Topic, Partition: m.Number, Epoch: m.Epoch, Move: m.Move,
	}}}, 1)
	now := b.meta.View().Partition(m.Topic, m.Number)
	switch {
	case now == nil || now.Epoch != m.Epoch:
		return nil // it is over here; the reconciler closes it
	case now.State == state.Sealing && now.Move == m.Move:
		return errors.Join(append(errs, err)...)
	}
	b.cfg.At("move.aborted")
	return p.Resume()
}
