// Package cluster makes one cluster of several brokers: it finds them by gossip, forms or joins the cluster, carries
// Raft and the brokers' requests over one port, and keeps this broker's lease.
//
// Open listens and gossips; nothing is decided yet. Form blocks until this data directory belongs to a cluster. Opened
// lets Raft's streams in. Attach hands over the metadata of that cluster: from then on the lease is renewed and, where
// this broker leads, other brokers' leases are granted. Control does the leader's duties. Failed says that the cluster
// goes on without this broker. Call and Handle carry requests between brokers. The few types are Cluster, Controller and
// Member; DESIGN.md has the paths and what was rejected.
//
// Nothing here decides on gossip alone: a suspicion starts an inquiry (R7), the leader's table of leases and its own
// probe answer it, and a command in the metadata decides.
//
// # Pure cores
//
// Forming (package founding), the leader's duties (package plan), the owner's lease (lease) and the leader's table of
// leases (leases) have no clock, socket or goroutine of their own: what happened is an argument. The shells are form.go,
// controller.go and renew.go.
//
// # Files
//
//	cluster/record    the cluster this data directory belongs to, for ever; before that, the one proposal of a new
//	                  cluster that this broker holds to; the newest history its metadata were in (R22)
//
// # Goroutines
//
// Those of the peer port are in package peer. One keeps the gossip whole, one renews the lease, one keeps on disk in
// which history the metadata are, and memberlist has its own. One is the controller; while it leads, one watches the term, each probe under way
// has one, and so has a change of Raft's configuration. Close waits for all of them.
//
// Lock order: Cluster.mu, which is held while the founder's record is written, comes before seeds.mu and gossip.mu. All
// other locks are leaves. memberlist calls back with its own lock held, so a callback takes gossip.mu and nothing more,
// and memberlist is never called with gossip.mu held.
package cluster
