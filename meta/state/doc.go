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
// # What holds in every state
//
//   - A partition's epoch, ceiling and log start only grow; the floor grows within an epoch (R3).
//   - LogStart ≤ Floor ≤ Ceiling. The open range ends at the ceiling.
//   - Ranges ascend and do not overlap, and epochs ascend along them (I10); what lies between them is a plain gap. Only the
//     last can be open: of OPEN and SEALING it is, under the partition's epoch, with its owner's store alone; of CLOSED it
//     is not; of OPENING it may be, under an earlier epoch.
//   - Neighbours with the same fate are one range, so a thousand moves that were copied leave a few. An ORPHANED Tail
//     stays by itself, because its end is only a bound.
//   - A SEALED range has a holder that is neither LOST nor REMOVED; an ORPHANED one may be held by its stores; no range
//     names a REMOVED store. Nothing but an operator's adoption brings a LOST range back.
//   - Target and Move are set exactly while SEALING.
//   - A cursor's prefix only grows within a generation, nothing it has acknowledged is forgotten, and nothing in it
//     lies above the ceiling (R18). Superseded offsets, lost ones and plain gaps that a command makes are acknowledged.
//
// # Memory and choices
//
// A topic with one partition and one subscription takes about one and a half KiB. hashicorp/go-memdb was the other
// candidate: its radix trees cost several times that for the same index, and its watches wake readers per record where
// brokers compare epochs and need only "something changed". The B-tree of tidwall/btree has an O(1) copy and no more.
//
// The encoding is described at Encode and in snapshot.go. New fields may be added to any record and command; a field
// that changes what a command does needs a new command version, so that an older release stops with ErrNewerCommand
// instead of diverging.
package state
