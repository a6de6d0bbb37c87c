package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/danubemq/danube/client/internal/acks"
	"github.com/danubemq/danube/client/internal/incoming"
	"github.com/danubemq/danube/protocol"
	"github.com/danubemq/danube/protocol/batch"
)

// stream is a consumer's attachment to one partition. Consumer.mu guards it.
type stream struct {
	k          *Consumer
	partition  int
	conn       *conn // nil while the stream is being mended
	handle     uint32
	generation uint64
	info       protocol.SubscribeOK
	fails      int  // mendings in a row
	attached   bool // at least once

	inbox
	book  acks.Book
	timer *time.Timer // sends what is owed
	armed bool
	asked time.Time // when a confirmation was last asked for
}

// inbox is what was delivered and not handed out, and what of it the broker is owed.
type inbox struct {
	box      *incoming.Box
	listed   bool // in Consumer.ready
	granted  int  // messages the broker may deliver
	returned int  // messages dealt with since credit was last given
	credit   protocol.Credit
}

const (
	ackPause     = 5 * time.Millisecond   // acknowledgements wait for company so long
	confirmPause = 500 * time.Millisecond // between confirmations
	rangesMost   = 4096                   // ranges in a frame
	liveBytes    = 64 << 20               // of a non-reliable topic that may wait for the application
)

func newStream(k *Consumer, partition int) *stream {
	s := &stream{k: k, partition: partition}
	s.box = incoming.NewBox(k.c.cfg.Limits)
	s.timer = time.AfterFunc(time.Hour, s.tick)
	s.timer.Stop()
	return s
}

// op names what is done on the partition, for errors.
func (s *stream) op(verb string) string {
	return fmt.Sprintf("%s %s:%d (subscription %s)", verb, s.k.topic, s.partition, s.k.cfg.Subscription)
}

// deliver takes a delivery from the connection. It runs on its reading
// goroutine; body is valid until it returns. An error ends the connection.
func (s *stream) deliver(c *conn, d *protocol.Deliver, body []byte) error {
	b, err := incoming.Check(d, body, c.sock.Limits)
	k := s.k
	k.mu.Lock()
	if err != nil {
		k.odd = wireError(s.op("receive from"), protocol.Errorf(protocol.CodeCorruptBatch, "%v", err))
		notify(k.wake)
		k.mu.Unlock()
		return err
	}
	gap, err := s.accept(c, d, b)
	if k.waiting > 0 && len(k.ready) > 0 {
		notify(k.wake)
	}
	k.mu.Unlock()
	if gap != nil {
		k.report(gap)
	}
	return err
}

// accept puts a delivery into the inbox, or says which messages had no room. The
// caller holds k.mu, as for all that follow.
func (s *stream) accept(c *conn, d *protocol.Deliver, b batch.Batch) (*GapError, error) {
	k := s.k
	if s.conn != c || k.closing {
		return nil, nil
	}
	if d.Generation > s.generation {
		s.adopt(d.Generation)
	}
	n := int(d.Count)
	if s.granted -= n; s.granted < -(1<<16) && k.reliable {
		return nil, errors.New("malformed delivery: far more messages than were asked for")
	}
	if d.Generation < s.generation {
		s.give(n)
		return nil, nil
	}
	if !k.reliable && s.box.Bytes() > liveBytes {
		s.give(n)
		return &GapError{Topic: k.topic, Partition: s.partition, From: d.First, To: d.First + uint64(n), Status: "slow"}, nil
	}
	s.box.Put(d, b)
	if !s.listed {
		s.listed = true
		k.ready = append(k.ready, s)
	}
	return nil, nil
}

// next hands out the next message.
func (s *stream) next(m *Message) bool {
	for {
		d, dropped, err := s.box.Next()
		if dropped > 0 {
			s.give(dropped)
		}
		if err != nil {
			s.damaged(err)
		}
		if d == nil {
			return false
		}
		s.give(1)
		wanted, again := true, false
		if s.k.reliable {
			wanted, again = s.book.Hand(d.Offset)
		}
		if wanted {
			m.fill(&d.Message, d.AppendTime)
			m.Topic, m.Partition, m.Deliveries, m.Late = s.k.topic, s.partition, d.Attempt, d.Late
			if again { // a broker that was killed forgot a first delivery: offsets go back nowhere without a mark (I7)
				m.Deliveries = max(m.Deliveries, 2)
			}
			m.from, m.generation = s, s.generation
		}
		s.owe(d.Attempt)
		if wanted {
			return true
		}
	}
}

// damaged deals with a delivery that cannot be decoded although its checks
// passed: the application is told, and the broker asked again over a new connection.
func (s *stream) damaged(err error) {
	s.k.odd = wireError(s.op("receive from"), protocol.Errorf(protocol.CodeCorruptBatch, "%v", err))
	notify(s.k.wake)
	if s.conn != nil {
		s.conn.fail(err)
	}
}

// give notes that n messages were dealt with, and gives the broker credit for
// more when that is half the queue.
func (s *stream) give(n int) {
	s.returned += n
	if half := max(s.k.cfg.Queue/2, 1); s.returned < half || s.conn == nil {
		return
	}
	s.credit = protocol.Credit{Handle: s.handle, Messages: uint32(s.returned)}
	s.granted += s.returned
	s.returned = 0
	s.conn.post(protocol.TypeCredit, &s.credit, nil)
}

// owe sees to it that what the broker is to know is sent: at once when it is
// much, and when the message handed out was delivered before, so that one that
// kills whoever gets it is counted; else within ackPause. attempt is how often that was.
func (s *stream) owe(attempt int) {
	if !s.k.reliable || s.conn == nil {
		return
	}
	_, pending := s.book.Pending()
	unreported := len(s.book.Unreported()) > 0
	if p := int(pending); p > 0 && p >= s.bunch() || attempt > 1 && unreported {
		s.settle()
		return
	}
	if !s.armed && (pending > 0 || unreported) {
		s.armed = true
		s.timer.Reset(ackPause)
	}
}

// bunch is how many acknowledgements are sent at once: few enough that the
// broker's window does not run empty meanwhile.
func (s *stream) bunch() int {
	window := s.info.MaxUnacked
	if window <= 0 {
		window = 1000
	}
	return max(min(window/4, 8192), 1)
}

// tick is the timer of what is owed.
func (s *stream) tick() {
	s.k.mu.Lock()
	defer s.k.mu.Unlock()
	s.armed = false
	if s.conn != nil && !s.k.closing {
		s.settle()
	}
}

// settle sends what the broker is to know.
func (s *stream) settle() {
	b := &s.book
	if fresh := b.Unreported(); len(fresh) > 0 {
		s.say(protocol.TypeReceived, fresh)
		b.Reported()
	}
	ranges, n := b.Pending()
	if n == 0 {
		return
	}
	now := time.Now()
	confirm := !b.Asking() && now.Sub(s.asked) >= confirmPause
	for len(ranges) > rangesMost {
		s.say(protocol.TypeAck, ranges[:rangesMost])
		ranges = ranges[rangesMost:]
	}
	if !confirm {
		s.say(protocol.TypeAck, ranges)
	} else {
		s.asked = now
		s.request(ranges)
	}
	b.Flushed(confirm)
}

// say sends ranges, cut into frames of a size the broker takes.
func (s *stream) say(t protocol.Type, ranges []protocol.Range) {
	for len(ranges) > 0 {
		n := min(len(ranges), rangesMost)
		r := protocol.Ranges{Handle: s.handle, Generation: s.generation, Ranges: ranges[:n]}
		if t == protocol.TypeAck {
			s.conn.post(t, &protocol.Ack{Ranges: r}, nil)
		} else {
			s.conn.post(t, &r, nil)
		}
		ranges = ranges[n:]
	}
}

// request sends acknowledgements and asks to be told when they, and those before
// them, are committed. Nobody waits for the answer.
func (s *stream) request(ranges []protocol.Range) {
	c, generation := s.conn, s.generation
	c.post(protocol.TypeAck, &protocol.Ack{
		Ranges: protocol.Ranges{Handle: s.handle, Generation: generation, Ranges: ranges}, Confirm: true,
	}, &call{want: protocol.TypeAckOK, then: func(err error) {
		s.k.mu.Lock()
		defer s.k.mu.Unlock()
		switch {
		case s.conn != c || s.generation != generation:
		case err == nil:
			s.book.Confirmed()
		default:
			s.book.Refused()
		}
	}})
}

// gap passes on that offsets will not come.
func (s *stream) gap(g *protocol.GapNotice) {
	s.k.report(&GapError{Topic: s.k.topic, Partition: s.partition, From: g.From, To: g.To, Status: g.Status})
}

// report tells the application of a gap. No lock is held.
func (k *Consumer) report(g *GapError) {
	if k.cfg.OnGap != nil {
		k.cfg.OnGap(*g)
		return
	}
	k.c.cfg.Logger.Warn("gap in what is delivered", "topic", g.Topic, "partition", g.Partition, "from", g.From, "to", g.To, "status", g.Status)
}

// adopt takes over that the subscription was moved: nothing from before counts.
func (s *stream) adopt(generation uint64) {
	s.empty(true)
	s.book = acks.Book{}
	s.generation = generation
}

// empty drops what was not handed out; with credit the broker may send as much again.
func (s *stream) empty(credit bool) {
	if n := s.box.Empty(); credit {
		s.give(n)
	}
}
