// Package delivery brings messages to consumers: it is the shell around the pure state of package dispatch, which says who
// gets which message next.
//
// Its few types are Subscription, one on one partition while somebody uses it; Consumer, one of those over one connection;
// Live, the partition of a non-reliable topic, where what is published goes to who is attached and is kept nowhere; and
// Carrier, which makes them and commits cursors.
//
// # Invariants
//
// A subscription never skips in silence: what it passes is counted and told to its consumers (R18). What lies in other
// stores comes as if it lay here; what may come back is waited for, then left unacknowledged (R15). A cursor that could not
// be committed, or of whose commit nobody knows, is committed again, whole (R5); one that is refused belongs to an epoch or
// generation that is over. A client hears of the end of a consumer behind the answer that names it, never before.
//
// # Goroutines
//
// One for each subscription with consumers: it returns when the last leaves. One, Run's, commits the cursors of all that
// changed in one command. Acknowledgements go to dispatch on the caller's.
//
// # Locks
//
// A subscription's lock, or a Live's, comes before the connection's (Client.Drop), the cursor keeper's and the outbox's. It
// is not held during a read of the log or a proposal.
package delivery
