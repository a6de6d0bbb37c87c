// Package wal is the hot tier: the write-ahead log of one data directory.
//
// A [Tier] holds the logs of all its partitions, one journal and one commit
// loop. A [Log] is one partition: Append orders, [Pending.Wait] says when a
// batch is durable, a [Reader] yields what is committed as [View]s of shared
// memory. [Tier.Log] recovers a partition from an [Opening], what the metadata
// says of it, and tells in [Found] what an unclean stop left. [Log.Close] gives it
// up so that it can be opened again; a [Copy] takes over another store's history.
// For the cold tier [Log.Backlog] tells what there is to export, [Log.Cut] makes a
// segment of it, and [Log.Release] gives up what a catalog covers.
//
// Invariants:
//   - committed <= next, and no reader is shown anything at or above committed (R1).
//   - A position of a segment file is given one value only: each epoch writes
//     files of its own (R6), and what was cut off for want of space was never
//     journaled. A mark is the exception: the next batch takes its place.
//   - Bytes of a segment file that were not synced lie in the journal, in spans
//     that are not used again before a checkpoint has synced the file and the
//     directories that lead to it.
//   - After the first error of a sync nothing is acknowledged (R20).
//
// Goroutines, all waited for by [Tier.Close]: the commit loop, which lives while
// something is pending; one checkpoint at a time; one that lets the journal
// grow; and one timer that sweeps logs at rest. None belongs to a partition.
//
// Locks, in the order they are taken: that of the journal's frames, a log's, the
// tier's, then one of the cache's, the journal's own, a file's index. The commit
// loop holds none but the first during a write, and none during a sync.
//
// The files, their formats and what was rejected: DESIGN.md of package storage,
// packages journal, hotdir and segment. What is in memory: package memory.
package wal
