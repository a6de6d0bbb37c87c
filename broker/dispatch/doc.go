// Package dispatch decides who gets which message next: it is the delivery
// state of one subscription on one partition. It is pure. It has no goroutine,
// clock, lock or I/O; what happens comes in as calls, time as an argument (Unix
// nanoseconds that never run backwards within a process), and what is to be
// done comes out as values.
//
// # Types
//
// A [Subscription] is made by [New] from a [Config] and the [Cursor] that the
// metadata holds. Each offset at or above the cursor's prefix is fresh, held by
// a consumer, waiting for redelivery, acknowledged, a hole or poisoned; the
// state is a sorted list of runs of offsets with one fate, never a record per
// message.
//
// # How a shell drives it
//
// One goroutine per active subscription, or one lock:
//
//   - [Subscription.Next] says which offset to read, or why there is nothing to
//     do and when to ask again.
//   - The shell reads the batch that holds the offset and gives it to
//     [Subscription.Offer], which answers with deliveries: send these offsets
//     of the batch to that consumer.
//   - Join, Leave, Grant, Ack, AckUpTo, Nack, Received, Tick and Reset tell
//     what consumers and operators do; Gap, Hole and Fill what becomes of the
//     log.
//   - Every half second [Subscription.TakeDelta] gives what changed in the
//     cursor. An ack that asked to be confirmed is answered when the first
//     delta taken after it, and without More, is committed.
//   - [Subscription.Poisoned] lists messages that were given up; Bury ends it.
//
// A delivered message may be sent again after a lost write: the shell calls
// Leave, and everything unacknowledged comes back.
//
// # Invariants
//
//   - An acknowledged offset is never delivered again, also after a restart
//     from any committed cursor; no other offset is ever skipped (R18). A
//     cursor read back may be behind, never ahead of what was acknowledged.
//   - An offset is with one consumer at most. Only that consumer, in the
//     generation of the delivery, can settle it.
//   - Messages with consumers never exceed MaxUnacked. Fresh ones go out only
//     while those waiting for redelivery fit into the window as well, which
//     bounds memory and cursor however long they are delayed.
//   - Acknowledged ranges above the prefix are never forgotten. At RangeLimit
//     delivery of new messages pauses until gaps have closed.
//   - A hole is neither delivered nor acknowledged nor stepped over by the
//     prefix (R18).
//   - Among first deliveries that are not late the offsets that one consumer is
//     given grow (I7). A consumer here is a session: who attaches anew, after
//     its connection was lost or with a new owner, begins with the oldest
//     message that nobody acknowledged. What the client had handed out before
//     it marks as delivered before, whatever the broker remembers.
//
// # Delivery counts
//
// The number of a delivery rises when it is made and outlives restarts: the
// cursor has the number of the next one, where that is above one. A first
// delivery that is still out is not in the cursor; it is once it has ended
// without an ack. Later deliveries are when the application has received them,
// and do not count otherwise: what was merely prefetched by a consumer that
// vanished is not brought to its limit by that, see [Subscription.Leave]. After
// one delivery and MaxRedeliveries more [Poison] says what follows.
//
// Failover and key-shared will be further ways to choose the consumer in
// Offer; Consumer already has name, priority and filters, Batch the keys.
package dispatch
