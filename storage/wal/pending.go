package wal

// Done is Wait without waiting: done is false while the batch is on its way. A
// connection that watches the log asks for each wake-up.
func (p Pending) Done() (done bool, err error) {
	l := p.log
	l.mu.Lock()
	defer l.mu.Unlock()
	return p.outcome()
}

// outcome says what became of the batch, if it is settled. The log's lock is held.
func (p Pending) outcome() (done bool, err error) {
	l := p.log
	switch {
	case p.cut < len(l.cuts) && l.cuts[p.cut] < p.end:
		return true, ErrFull
	case l.ends.shown() >= p.end:
		return true, nil
	case l.door.err != nil:
		return true, l.door.err
	case l.door.closed && l.tail.Pending() == 0:
		return true, ErrClosed
	}
	return false, nil
}
