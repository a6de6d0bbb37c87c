// Package meta replicates the cluster's metadata: meta/state behind hashicorp/raft, with a database for the log and
// files for the snapshots.
//
// Open gives a Node. Propose replicates a command and answers with its result; View shows the state as far as this
// broker has applied it, immutable and for nothing; Changed and WaitIndex tell when there is more to see. One voter or
// five, the code is the same: a follower forwards what it proposes to the leader and returns when its own view shows it.
//
// Leader, Leading and Leadership say who leads; AddServer, Promote, Demote, RemoveServer and Transfer change who may.
// Backup, Restore and Recover are for the day on which the majority is gone.
//
// # Files
//
//	cluster                       marker: this directory has had a cluster, so it never forms one again (R9)
//	raft/raft.db                  log, term and vote
//	raft/snapshots/<term>-<index>-<ms>/   a snapshot: meta.json, state.bin
//	raft/reserve                  16 MiB given up when the disk is full, so that Raft is not the first to suffer (R20)
//
// # Goroutines
//
// Raft's own three (main loop, state machine, snapshots), and on a leader two for each follower; one that takes a
// snapshot when the log has grown by many bytes; one that watches who leads; one for each call whose answer Raft still
// owes, because Raft may leave it unanswered for ever; one for each request at the leader, to give it up when another
// leads; one for each incoming stream; one for each server that this one has led, to tell it what is committed. Close
// waits for all of them.
//
// Lock order: transport.mu before streams.mu; the other locks are leaves. Nothing is called with one held but the file
// system.
package meta
