package outbox

import (
	"errors"

	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/storage"
)

// Lane is the answers to one producer's frames, in the order of the frames.
type Lane struct {
	// Closed is called on the writing goroutine when the producer's close is
	// answered; afterwards nothing more may come.
	Closed func()
	acks   ackQueue
}

// Ack is the answer to one produce frame, in the making.
type Ack struct {
	ID      uint64
	Pending storage.Pending
	Err     *protocol.Error // refused at the door
	Done    bool            // there is nothing to wait for
	Level   protocol.Level
	Came    int64 // when the request was read, Unix ns

	closed bool // it answers CloseProducer
}

// ackQueue is a ring of acks in the order of the frames.
type ackQueue struct {
	ring []Ack
	head int
	n    int
}

func (q *ackQueue) empty() bool { return q.n == 0 }

func (q *ackQueue) push(a Ack) {
	if q.n == len(q.ring) {
		grown := make([]Ack, max(8, 2*len(q.ring)))
		for i := range q.n {
			grown[i] = q.ring[(q.head+i)%len(q.ring)]
		}
		q.ring, q.head = grown, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = a
	q.n++
}

func (q *ackQueue) front() *Ack { return &q.ring[q.head] }

func (q *ackQueue) pop() {
	q.ring[q.head] = Ack{}
	q.head = (q.head + 1) % len(q.ring)
	q.n--
}

// takeAcks encodes the answers that are ready behind w.heads and returns the
// producers that have others to come. The caller holds the outbox's lock.
func (o *Outbox) takeAcks(w *writer, acking []*Lane) []*Lane {
	rest := acking[:0]
	for _, l := range acking {
		for !l.acks.empty() {
			a := l.acks.front()
			if !o.takeAck(w, a) {
				break
			}
			closed := a.closed
			l.acks.pop()
			o.inflight--
			if closed {
				o.closing = append(o.closing, l)
			}
		}
		if !l.acks.empty() {
			rest = append(rest, l)
		}
	}
	clear(acking[len(rest):])
	if len(w.heads) > 0 {
		o.room.Broadcast()
	}
	return rest
}

// takeAck encodes one answer if it is ready.
func (o *Outbox) takeAck(w *writer, a *Ack) bool {
	err := a.Err
	if err == nil && !a.Done {
		ready, failed := a.Pending.Done()
		if !ready {
			return false
		}
		if failed != nil {
			err = pendingError(failed)
		}
	}
	if err != nil {
		w.heads = protocol.AppendHead(w.heads, protocol.TypeError, a.ID, err, 0)
		return true
	}
	if a.closed {
		w.heads = protocol.AppendHead(w.heads, protocol.TypeClosed, a.ID, nil, 0)
		return true
	}
	o.cfg.Acked.Observe(float64(o.cfg.Now().UnixNano()-a.Came) / 1e9)
	w.ok = protocol.ProduceOK{Base: a.Pending.Base, AppendTime: a.Pending.AppendTime, Duplicate: a.Pending.Duplicate, Level: uint8(a.Level)}
	w.heads = protocol.AppendHead(w.heads, protocol.TypeProduceOK, a.ID, &w.ok, 0)
	return true
}

// pendingError is what became of a batch that the log took: nobody knows, or
// the store failed. The client sends it again under the same sequence (R5).
func pendingError(err error) *protocol.Error {
	if errors.Is(err, storage.ErrPoisoned) {
		return protocol.Errorf(protocol.CodeStorageFailed, "%s", err.Error())
	}
	return protocol.Errorf(protocol.CodeUnknownOutcome, "%s", err.Error())
}
