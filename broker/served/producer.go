package served

import (
	"github.com/danubemq/danube/broker/delivery"
	"github.com/danubemq/danube/broker/outbox"
	"github.com/danubemq/danube/protocol"
)

// Producer is a producer's session on one partition over one connection.
type Producer struct {
	ID      uint64
	Session uint32
	Handle  uint32      // by which its client knows it
	Lane    outbox.Lane // the answers to its frames

	part *Partition // set by Open
	stop func()     // ends the watch on the log
}

// Publish takes a batch of the producer's, as [Partition.Publish].
func (prod *Producer) Publish(h *protocol.Produce, body []byte) outbox.Ack {
	return prod.part.Publish(h, prod, body)
}

// Watch has the log say at wake that answers to the producer may be ready.
func (prod *Producer) Watch(wake chan<- struct{}) {
	if prod.part.Log != nil {
		prod.stop = prod.part.Log.Watch(wake)
	}
}

// Open opens a producer's session here, once it is known what its partition has
// stored elsewhere and after a move, or a moment at most; done ends the wait.
func (p *Partition) Open(done <-chan struct{}, prod *Producer, q *protocol.OpenProducer) (ok *protocol.OpenProducerOK, err error) {
	if p.Past != nil {
		p.Past.AwaitProducers(done)
	}
	err = p.AfterMove(done, func() error {
		ok, err = p.attach(prod, q)
		return err
	})
	return ok, err
}

func (p *Partition) attach(prod *Producer, q *protocol.OpenProducer) (*protocol.OpenProducerOK, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.over != nil:
		return nil, p.over
	case !p.h.cfg.Leased():
		return nil, delivery.ErrNoLease
	case p.exclusive != nil && p.exclusive.ID != prod.ID:
		return nil, protocol.Errorf(protocol.CodeProducerBusy, "%s has an exclusive producer", p.Name())
	case q.Exclusive && p.othersThan(prod.ID):
		return nil, protocol.Errorf(protocol.CodeProducerBusy, "%s has other producers; an exclusive one must be alone", p.Name())
	}
	ok := &protocol.OpenProducerOK{Epoch: p.Epoch}
	if p.Log != nil {
		last, known, err := p.Log.OpenSession(q.Producer, q.Session, q.Lowest)
		if err != nil {
			return nil, err
		}
		ok.Last, ok.Stored = last, known
	}
	prod.part = p
	p.producers[prod] = struct{}{}
	if q.Exclusive {
		p.exclusive = prod
	}
	return ok, nil
}

func (p *Partition) othersThan(id uint64) bool {
	for o := range p.producers {
		if o.ID != id {
			return true
		}
	}
	return false
}

// Leave ends a producer's session on this connection; its table entry stays.
func (prod *Producer) Leave() {
	p := prod.part
	p.mu.Lock()
	delete(p.producers, prod)
	if p.exclusive == prod {
		p.exclusive = nil
	}
	p.mu.Unlock()
	if prod.stop != nil {
		prod.stop()
	}
}
