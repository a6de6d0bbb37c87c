// Package history is what a broker knows and does of offsets before the epochs that it serves: it reads them wherever
// they lie, brings them to this store, takes back what a lost store returns with, and gives other brokers what this one
// holds (R15, R16, R19).
//
// Its few types are History, one for a broker; Partition, the past of one that is served; and Reader, which yields a
// partition's batches, those of other stores included. The archive within is what this store holds of partitions that
// others serve.
//
// # Invariants
//
// The value of an offset is the batch that carries the epoch its range gives it, whatever else a store sends. A store
// gives out what the metadata list for it and nothing else. Nothing is listed for a store that is not there, whole and
// synced. A log is open once: for whoever serves the partition, or in the archive. What was acknowledged is passed over
// as LOST, or as ORPHANED after a wait, never as a plain gap; where the log and the metadata disagree for a moment the
// answer is ErrStale, and that is never the end of anything. A range that is not in doubt has no message that a later
// owner has stored again, superseded ones aside.
//
// No event is remembered: what the metadata say is compared with what is here, so that what failed or was cut short is
// simply still different, after a restart too. What was decided since the last look says where to look first, and a look at
// everything follows every second.
//
// # Goroutines
//
// Run has one that looks what is to be brought, up to six that copy or take back for it, and one that commits damage; it
// returns when all have. A Reader has one while a page is read ahead. Requests run on the caller's.
//
// # Locks
//
// Every lock is a leaf, and none is held during a read, a request or a proposal, but that of a place in the archive: it
// is held, for reading, while a page is read, and to open or close the log there. No function of Config and no method of
// Served is called with a lock held.
package history
