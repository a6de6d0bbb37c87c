// Package keeper keeps the cold tier in order: it merges small segments into large ones, folds long catalogs into pages,
// deletes what nobody needs any more and compares the store with the catalogs. What is to be done package upkeep decides;
// what is decided the cluster's state accepts or refuses, through the functions in [Config].
//
// A Keeper runs on every broker, for the partitions that the broker owns; [Keeper.Collect] and [Keeper.Audit] are for one
// broker of the cluster at a time, which is a matter of thrift and not of safety: each step is a command that may be
// proposed twice.
//
// # A merge
//
// Inputs are read in ranges, each batch is checked (CRCs, offset, epoch: R19) and goes unchanged into a temporary file
// behind a new header; the footer has a new index and the producer table of the last input. The file is put under a key
// never used before, read back from the store and checked batch by batch (R12), and only then proposed in the place of its
// inputs. Merges that read cuts run side by side, so that a cut is read once for all of them.
//
// From the first byte of an upload until the swap is accepted the object is owed to the garbage: whatever ends the merge,
// the Keeper condemns it, and tries until that is accepted. A Keeper that is killed condemns nothing: its run is over then,
// and the next audit finds what it left.
//
// # Goroutines
//
// [Keeper.Run] has Slots workers while there are merges to do, and waits for them. Nothing is kept between passes but what
// is owed, and which objects are damaged.
package keeper
