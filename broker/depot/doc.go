// Package depot joins the partitions that this broker serves with the cold tier:
// it has their logs exported, their objects merged and collected, what the catalog
// covers freed on the disk, and gives readers the cold tier as one partition sees it.
//
// A [Depot] has the store of the cold tier, which passes its self-test before
// anything is written. [Depot.Part] is a partition for readers, [Depot.Producers]
// what the cold tier knows of producers, [Depot.Urgent] waits until a log is
// exported so far. What is in the cold tier the catalogs in the metadata say, as
// this broker has applied them; nothing here remembers any of it.
//
// # Goroutines
//
//   - Run, which passes the self-test and then has one exporter and one keeper at
//     work for each run of the broker (another incarnation, another pair)
//   - those of the exporter and the keeper, for which Run waits
//   - the one that frees what the catalog covers: Run waits for it
//   - those of package fetch: Close waits for them
//
// # Locks
//
// One, for field access; the exporter's is taken inside it, nothing else is.
package depot
