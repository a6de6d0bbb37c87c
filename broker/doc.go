// Package broker is one node: it joins metadata, log, cluster and clients.
//
// Its types are few. A [Broker] owns what the process owns. A conn is one
// client's connection, with an outbox of what is to be written to it; a producer
// or a consumer belongs to a conn and to a partition, which is package served's,
// with its subscriptions (package delivery) and its past (package history). What
// is left here is which partitions those are: what the metadata say of who owns
// what is compared with what is served, and opened, moved, closed (owning.go).
//
// What is asked of topics, subscriptions and the cluster is package admin's;
// here.go says what this broker does for it as the owner of partitions, beside.go
// what the packages beside this one are made of.
//
// # Goroutines
//
//   - the accept loop: returns when the listener is closed
//   - two for each connection, reader and writer: both return when it ends
//   - one for each request that needs the metadata or the disk, at most 64 a
//     connection, and for each fetch that waits for messages, at most 256
//   - one for each subscription with consumers, and one that commits cursors: package delivery
//   - one that extends ceilings, package served's, and one that applies retention: return when the broker stops
//   - the reconciler, which compares the metadata with what is served: returns when the broker stops
//   - one for each partition that is being opened, closed or moved, at most 64 of those in the background
//   - those of package history, of its readers, of package depot and of package web
//   - one for each request of another broker: those of package cluster
//   - those of the log's committer and of Raft
//
// Everything on a produce frame's way, from the read of the socket to the
// log's memory, happens on the connection's reader; the acknowledgement is
// written by its writer, which the log wakes when a commit round is done. No
// channel and no allocation per frame.
//
// # Lock order
//
//	Broker.mu
//	then those of package served
//	then those of package delivery
//	then conn.mu or owning.lock
//	then those of packages outbox and history
//	then the log's own
//
// None is held during a read of the log, a proposal or a write to a socket.
//
// # Back-pressure
//
// A connection has at most [outbox.Window] produce frames in flight and is not read
// while it has; the log's Append waits while too much is not synced yet; a
// consumer whose connection has 4 MiB to write gets nothing more until it has
// taken half. Readers pull by offset, so that a slow one costs nobody else.
package broker
