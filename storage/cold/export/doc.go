// Package export brings what the write-ahead log holds into the cold tier: the
// shell around package plan, which decides, that cuts, puts, commits and tries
// again.
//
// An [Exporter] is given a [Source] for each partition whose log this broker
// exports. It looks at them when [Exporter.Changed] says so, and at all of them
// now and then; what is planned becomes an attempt: one object, of one partition
// or, at level object, a cut of many (package bundle). Catalogs are somebody
// else's: Config.Commit proposes, and what a source says is the truth.
//
// # What holds
//
//   - An attempt takes its steps in one order (R11): a key that was never used, the
//     bytes, the store's word that it has them all, the commit. Whatever ends in
//     between leaves an object that no catalog names, and nothing else.
//   - Unknown stays unknown (R5): an attempt whose put or commit had no clear answer
//     is kept and goes on with the same bytes under the same key, until it is
//     in the catalog, was refused, or the catalog has passed it by.
//   - A partition has one attempt at a time, and it begins where the catalog ends.
//   - Who waits in [Exporter.Urgent] hears of the catalog, never of the store.
//   - Nothing is kept on disk: after a kill the next run begins where the catalogs
//     end, under an incarnation and with keys of its own.
//
// # Goroutines
//
// [Exporter.Run] is one, and has one more for each attempt that is under way, at
// most Config.Slots. It waits for all of them. None belongs to a partition.
//
// # Locks
//
// One, for field access; nobody is called with it held.
package export
