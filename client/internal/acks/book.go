package acks

import "github.com/danubemq/danube/protocol"

// Book is what a consumer knows of the messages of one partition that it
// handed to the application. The zero value is one that handed out none.
type Book struct {
	held    Set // handed out, neither acknowledged nor given back
	fresh   Set // handed out, not reported as received, neither acknowledged nor given back
	pending Set // acknowledged, not sent
	sent    Set // acknowledged and sent, since the confirmation under way was asked for
	asked   Set // what the confirmation under way covers
	asking  bool

	// From connections that are over:
	old     Set // handed out then, not acknowledged, and not handed out again
	carried Set // acknowledged, and not known to be committed: the broker may send it again
}

// Hand notes that the message at offset goes to the application. Not wanted: it was
// acknowledged before, on a connection that is over; it is acknowledged again
// instead. Again: the application had it before, by such a connection.
func (b *Book) Hand(offset uint64) (wanted, again bool) {
	if b.carried.n > 0 && b.carried.Remove(offset) {
		b.pending.Add(offset, offset+1)
		return false, true
	}
	again = b.old.n > 0 && b.old.Remove(offset)
	b.held.Add(offset, offset+1)
	b.fresh.Add(offset, offset+1)
	return true, again
}

// Ack notes that the application is done with the message at offset. Doing it twice does nothing.
func (b *Book) Ack(offset uint64) {
	if b.held.Remove(offset) {
		b.fresh.Remove(offset)
		b.pending.Add(offset, offset+1)
	} else if b.old.n > 0 && b.old.Remove(offset) {
		b.carried.Add(offset, offset+1)
	}
}

// AckBelow notes that the application is done with all it holds below end.
func (b *Book) AckBelow(end uint64) {
	b.fresh.Cut(end, nil)
	b.held.Cut(end, b.pending.Add)
	b.old.Cut(end, b.carried.Add)
}

// Nack notes that the application gives the message at offset back. False: it
// does not hold it on this connection, so there is nothing to tell the broker.
func (b *Book) Nack(offset uint64) bool {
	if !b.held.Remove(offset) {
		b.old.Remove(offset)
		return false
	}
	b.fresh.Remove(offset)
	return true
}

// Unreported are the messages that were handed out and are neither reported as received nor done with: valid until the
// next change.
func (b *Book) Unreported() []protocol.Range { return b.fresh.r }

// Reported notes that those were reported.
func (b *Book) Reported() { b.fresh.Clear() }

// Pending are the acknowledgements to be sent: valid until the next change. n is how many messages they are of.
func (b *Book) Pending() (ranges []protocol.Range, n uint64) { return b.pending.r, b.pending.n }

// Asking reports whether a confirmation is under way: one is at a time.
func (b *Book) Asking() bool { return b.asking }

// Flushed notes that pending was sent, and with confirm that its commit, and
// that of all sent before it, was asked for.
func (b *Book) Flushed(confirm bool) {
	b.sent.Join(&b.pending)
	b.pending.Clear()
	if confirm {
		b.asking = true
		b.asked.Join(&b.sent)
		b.sent.Clear()
	}
}

// Confirmed notes that what was asked for is committed.
func (b *Book) Confirmed() {
	b.asking = false
	b.asked.Clear()
}

// Refused notes that the broker did not answer what was asked for.
func (b *Book) Refused() {
	b.asking = false
	b.sent.Join(&b.asked)
	b.asked.Clear()
}

// Lose notes that the connection is over: what is acknowledged is to be kept
// from being handed out again, what is not will come again.
func (b *Book) Lose() {
	for _, s := range []*Set{&b.asked, &b.sent, &b.pending} {
		b.carried.Join(s)
		s.Clear()
	}
	b.old.Join(&b.held)
	b.held.Clear()
	b.fresh.Clear()
	b.asking = false
}

// Resume notes that the subscription's acknowledged prefix is cursor.
func (b *Book) Resume(cursor uint64) { b.carried.Cut(cursor, nil) }

// Confirming notes that the application is done with the messages of set, which are sent as they are, by a call of their
// own. It reports whether one of them was handed out on a connection that is over.
func (b *Book) Confirming(set *Set) (late bool) {
	for _, r := range set.r {
		for o := r.From; o < r.To; o++ {
			if b.held.Remove(o) {
				b.fresh.Remove(o)
				b.sent.Add(o, o+1)
			} else if b.old.Remove(o) {
				b.carried.Add(o, o+1)
			}
			late = late || b.carried.Has(o)
		}
	}
	return late
}

// Late reports whether something acknowledged was handed out on a connection that is over, and is not known to be
// committed.
func (b *Book) Late() bool { return b.carried.n > 0 }

// Unconfirmed is everything acknowledged that is not known to be committed.
func (b *Book) Unconfirmed() []protocol.Range {
	var all Set
	for _, s := range []*Set{&b.asked, &b.sent, &b.pending, &b.carried} {
		all.Join(s)
	}
	return all.r
}
