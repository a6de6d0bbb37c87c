package client

import "github.com/danubemq/danube/protocol"

// ackBook is what a consumer knows of the messages of one partition that it
// handed to the application. It is plain state: Consumer.mu guards it.
type ackBook struct {
	held    rangeSet // handed out, neither acknowledged nor given back
	fresh   rangeSet // handed out, not reported as received, neither acknowledged nor given back
	pending rangeSet // acknowledged, not sent
	sent    rangeSet // acknowledged and sent, since the confirmation under way was asked for
	asked   rangeSet // what the confirmation under way covers
	asking  bool

	// From connections that are over:
	old     rangeSet // handed out then, not acknowledged, and not handed out again
	carried rangeSet // acknowledged, and not known to be committed: the broker may send it again
}

// hand notes that the message at offset goes to the application. False: it was
// acknowledged before, on a connection that is over; it is acknowledged again instead.
func (b *ackBook) hand(offset uint64) bool {
	if b.carried.n > 0 && b.carried.remove(offset) {
		b.pending.add(offset, offset+1)
		return false
	}
	if b.old.n > 0 {
		b.old.remove(offset)
	}
	b.held.add(offset, offset+1)
	b.fresh.add(offset, offset+1)
	return true
}

// ack notes that the application is done with the message at offset. Doing it twice does nothing.
func (b *ackBook) ack(offset uint64) {
	if b.held.remove(offset) {
		b.fresh.remove(offset)
		b.pending.add(offset, offset+1)
	} else if b.old.n > 0 && b.old.remove(offset) {
		b.carried.add(offset, offset+1)
	}
}

// ackBelow notes that the application is done with all it holds below end.
func (b *ackBook) ackBelow(end uint64) {
	b.fresh.cut(end, nil)
	b.held.cut(end, b.pending.add)
	b.old.cut(end, b.carried.add)
}

// nack notes that the application gives the message at offset back. False: it
// does not hold it on this connection, so there is nothing to tell the broker.
func (b *ackBook) nack(offset uint64) bool {
	if !b.held.remove(offset) {
		b.old.remove(offset)
		return false
	}
	b.fresh.remove(offset)
	return true
}

// flushed notes that pending was sent, and with confirm that its commit, and
// that of all sent before it, was asked for.
func (b *ackBook) flushed(confirm bool) {
	b.sent.join(&b.pending)
	b.pending.clear()
	if confirm {
		b.asking = true
		b.asked.join(&b.sent)
		b.sent.clear()
	}
}

// confirmed notes that what was asked for is committed.
func (b *ackBook) confirmed() {
	b.asking = false
	b.asked.clear()
}

// refused notes that the broker did not answer what was asked for.
func (b *ackBook) refused() {
	b.asking = false
	b.sent.join(&b.asked)
	b.asked.clear()
}

// lose notes that the connection is over: what is acknowledged is to be kept
// from being handed out again, what is not will come again.
func (b *ackBook) lose() {
	for _, s := range []*rangeSet{&b.asked, &b.sent, &b.pending} {
		b.carried.join(s)
		s.clear()
	}
	b.old.join(&b.held)
	b.held.clear()
	b.fresh.clear()
	b.asking = false
}

// resume notes that the subscription's acknowledged prefix is cursor.
func (b *ackBook) resume(cursor uint64) { b.carried.cut(cursor, nil) }

// unconfirmed is everything acknowledged that is not known to be committed.
func (b *ackBook) unconfirmed() []protocol.Range {
	var all rangeSet
	for _, s := range []*rangeSet{&b.asked, &b.sent, &b.pending, &b.carried} {
		all.join(s)
	}
	return all.r
}
