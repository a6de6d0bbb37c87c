// Package served is a partition that this broker owns, under one epoch: the door for producers and readers, and the
// subscriptions in use on it. Who owns what, and what opens, moves and closes partitions, is not its business.
//
// Its few types are Partition; Producer, a session on one over one connection; and Host, what the partitions of a broker
// have in common.
//
// # Invariants
//
// Nothing is appended but under the epoch that the producer names (R4), with a lease (R8), below a committed ceiling (R3)
// and after the whole batch was checked. What meets a pause waits for it a moment; what meets the end of the epoch is
// refused with the reason. A reader is told of every gap, and of what was stored again where it is to be read (R15).
//
// # Goroutines and locks
//
// One goroutine, Run's, extends ceilings, all that ask at one time in one command. A batch is appended on the goroutine
// that brings it, and no message costs a lock beside the log's. Partition.mu comes before the locks of package delivery,
// and is not held during a read, an append or a proposal.
package served
