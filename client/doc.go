// Package client is the Go client of a Danube cluster: [Dial] gives a [Client],
// and that a [Producer], a [Consumer], a [Reader] or the [Admin] operations.
//
// A Client keeps one connection to each broker it needs, shared by everything
// opened on it: two goroutines a connection, one that reads and one that
// writes. Programs that need more than one connection can carry dial again.
// What broke is mended by itself: connections are dialled again after 50 ms,
// doubling to 500 ms, over all the addresses given; producers and consumers find
// the owner of their partition and go on where they were.
//
// # Sending
//
// A message is copied into the open batch of its partition before SendAsync
// returns. The connection's writing goroutine takes open batches as they are
// due: at once while nothing of the partition is in flight, in growing batches
// while something is. Batches are kept, byte for byte, until their outcome is
// known, and sent again in order under the same sequences after every doubt, so
// that the broker stores them once (R17 of the ownership rules).
//
// A batch that is refused for good used no sequence at the broker. The batches
// behind it are never renumbered: one of them may be stored under its number
// without our knowing. Instead the session is opened again, naming the lowest
// sequence still to come; the broker demands nothing below that.
//
// # Receiving
//
// A Consumer takes messages ahead, up to its queue; only what Receive handed
// out counts towards the ack timeout. Acknowledgements are gathered into ranges
// and sent every few milliseconds. What was acknowledged but is not known to be
// committed is remembered over a reconnect, and dropped when the broker sends
// it again.
//
// # Locks and goroutines
//
// Lock order: Producer.mu or Consumer.mu, then conn.mu, then nothing. Client.mu
// is held with no other. Callbacks run with no lock held. Besides the two of each connection there are
// goroutines only while something is being mended (one for each partition of a
// producer or consumer), and one for each partition of an open Reader.
package client
