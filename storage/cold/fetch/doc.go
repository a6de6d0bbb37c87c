// Package fetch reads partitions from the cold tier.
//
// A [Tier] holds what all readers of a broker share: blocks of objects, footers,
// catalog pages, under budgets. A [Partition] is one partition by its [Catalog];
// a [Reader] yields its batches as views of shared memory, checked, in the order
// of offsets. Where the catalog has nothing the answer is ErrUncovered, and what
// that means is known by whoever joins the tiers. DESIGN.md has the reasons.
//
// # What holds
//
//   - A view holds whole batches whose CRCs were checked after the last copy, each
//     with the epoch that the catalog gives to its offsets, each beginning where
//     the one before it ended (R19, R21). What is not so is passed over, if it
//     does not exist by R19, or is a *recovery.Damage with exact bounds.
//   - An error leaves a reader where it was. An object that is gone is looked up
//     again; that it is gone is never the end of anything.
//   - A block that several want is asked for once. What nobody wants any more is
//     given up, and Close never waits for the network.
//   - Nothing waits for memory, for another reader's request or for a slot: who
//     reads ahead is refused, who has to have a block asks for it at once.
//
// # Goroutines
//
// One for each request under way, and one while blocks are written to the disk
// cache; [Tier.Close] waits for all. Locks: that of the cache, then one of the notes
// or of the disk cache; none is held during a request, a file's read or write, or a
// call of the Catalog.
package fetch
