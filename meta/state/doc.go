// Package state is the cluster's metadata as a pure state machine: who owns which partition under which epoch, what is
// known of its offsets, and what each subscription has acknowledged (section 2 of the design's ownership rules).
//
// State has no clock, no goroutine, no lock and no I/O. Commands go in, in the order of the Raft log; every broker that
// applies the same ones has the same state, and Hash says so (I16). Whatever depends on time or chance, such as ids,
// nonces and time stamps, is drawn by the proposer and lies in the command.
//
// # Commands
//
// Every Command is a compare-and-set: it names what it expects (an epoch, a generation, an incarnation, the settings of
// a name) and is refused with an *Error if something else is there. Applying it twice does it once, so a proposal
// whose outcome is unknown is simply proposed again (R5). Batched commands carry many entries, each with an answer of
// its own, because an entry of the Raft log costs a disk sync and there are ten thousand topics.
//
// # Views
//
// Freeze returns a View in constant time: state and view share the nodes of their B-trees until the state writes to
// one. Records are never changed in place; a command that changes one puts a copy in its place. So a reader, a
// snapshot and the state machine run side by side without a lock.
//
// # Ownership
//
// A partition passes from owner to owner in one of three ways, each under a new epoch. The next run of the same store
// opens it at the end that it proved (R6). A lost store's partitions are granted (OPENING) and opened at the ceiling, over
// an orphaned range of what the lost disk may hold (R3, R15). A planned move (SEALING) ends with a hand-over at the exact
// end (R16). Until one of the three is applied the epoch before goes on: its open range stays open and unsealed, even while
// a grant already bears the next epoch.
//
// The view's Decided tells a broker when to look at what it owns and holds again, and Since at what of it: so a decision
// costs as much among ten thousand partitions as among ten. Placed counts partitions for placement. They are made from the
// state, and neither Hash nor a snapshot has them.
//
// # Cold tier
//
// A partition's Catalog says which objects hold what of it (R11); an object that no catalog names is nothing. What is added
// begins at the lowest offset that is SEALED or OPEN and not covered, and is the owner's, in its epoch, to add; into an
// ORPHANED range its exporter adds in the same way (R15). So within a range the catalog has no hole, but where an ORPHANED
// range that was passed comes back and joins its neighbours: then that hole is what is exported next.
//
// Covered offsets need no store: Stores names who holds the others. What the catalog covers is not ORPHANED when the last
// of its stores is lost, every store may drop its copy of it (R16), and no epoch ends below it (R10). A takeover goes by
// Takeover.
//
// Merging (SwapSegments), pages (PageCatalog, UnpageCatalog) and retention are each a compare-and-set on what stands in the
// catalog, so of two that race the later is refused, and its run gives up what it made for that. An object ends in one of these ways: a
// catalog named it and none does any more (superseded, expired, deleted), or none ever will: its run is over, or its run
// gives it up (CondemnObjects). From then on nothing brings it back, however late a proposal comes. Whoever deletes
// objects waits the grace from Garbage.Since on and then says ForgetObjects. What a page lists is condemned with it, by its
// bytes (CondemnPage), before the page is forgotten.
//
// # What holds in every state
//
//   - A partition's epoch, ceiling and log start only grow; the floor grows within an epoch (R3).
//   - LogStart ≤ Floor ≤ Ceiling. The open range ends at the ceiling.
//   - Ranges ascend and do not overlap, and epochs ascend along them (I10); what lies between them is a plain gap. Only the
//     last can be open: of OPEN and SEALING it is, under the partition's epoch, with its owner's store alone; of CLOSED it
//     is not; of OPENING it may be, under an earlier epoch.
//   - Neighbours with the same fate are one range, so a thousand moves that were copied leave a few. An ORPHANED Tail
//     stays by itself, because its end is only a bound.
//   - What is SEALED is in the catalog, or has a holder that is neither LOST nor REMOVED; an ORPHANED range may be held by
//     its stores, its exporter's among them; no range names a REMOVED store. Nothing but an operator's adoption brings a LOST
//     range back.
//   - Target and Move are set exactly while SEALING.
//   - A cursor's prefix only grows within a generation, nothing it has acknowledged is forgotten, and nothing in it
//     lies above the ceiling (R18). Superseded offsets, lost ones and plain gaps that a command makes are acknowledged.
//   - Segments and pages of a catalog do not overlap; each lies below the ceiling and ends above the log's start, and what
//     of it lies above the log's start lies in ranges (I11). A page covers all that ranges hold of its offsets, and lists no
//     pieces of cuts. What is covered stays covered until the log's start has passed it, and keeps its epochs.
//   - An object is named by catalogs or is garbage, never both, and leaves the one only for the other. Garbage ends only by
//     ForgetObjects.
//
// # Memory and choices
//
// A topic with one partition and one subscription takes about one and a half KiB. hashicorp/go-memdb was the other
// candidate: its radix trees cost several times that for the same index, and its watches wake readers per record where
// brokers compare epochs and need only "something changed". The B-tree of tidwall/btree has an O(1) copy and no more.
//
// A segment of a catalog takes about thirty bytes, see package catalog; a piece of garbage about 300. Garbage names objects by
// what their names are made of: package keys of the cold tier spells it. Strings would take three times the bytes, and a parser
// here. Segments carry no epochs, because the ranges have them; a commit carries them to be compared.
//
// The encoding is described at Encode and in snapshot.go. New fields may be added to any record and command; a field
// that changes what a command does needs a new command version, so that an older release stops with ErrNewerCommand
// instead of diverging.
package state
