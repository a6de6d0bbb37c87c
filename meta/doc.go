// Package meta replicates the cluster's metadata: meta/state behind hashicorp/raft, with a database for the log and
// files for the snapshots.
//
// Open gives a Node. Propose replicates a command and answers with its result; View shows the state as far as this
// broker has applied it, immutable and for nothing; Changed and WaitIndex tell when there is more to see. One voter or
// five, the code is the same.
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
// Raft's own three (main loop, state machine, snapshots); one that takes a snapshot when the log has grown by many
// bytes; one for each call whose answer Raft still owes, because Raft may leave it unanswered for ever. Close waits for
// all of them.
//
// Lock order: Node.mu, machine.mu and store.mu are leaves; nothing is called with one held but the file system.
package meta
