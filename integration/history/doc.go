// Package history records what clients of a run were told and judges it against the invariants I1 to I9, I13 and I14.
//
// A Run has a clock and hands out Producers and Consumers; each records one client's operations as that client saw
// them. Payloads are made by Producer.Begin and carry run, producer, sequence and a checksum, so that every read can be
// traced to the send that wrote it. Faults go into the same Run. At the end the caller fills a Final with what the
// brokers hold once everything is healed, and Run.Check judges all of it and nothing else: the package knows no client,
// no broker and no file, so that it can judge any of them.
//
// Producers and Consumers may be used from several goroutines, but the order of a producer is the order of its Begin
// calls and the order of a consumer is the order of its Read calls: give each to one goroutine, or to one per partition.
package history
