// Package outbox is what waits to be written to one client's connection, and the goroutine that writes it.
//
// Its few types are Outbox; Lane, the answers to one producer's frames; and Ack, one of them in the making. Frames and the
// heads of deliveries lie back to back in one buffer, bodies are slices of the log's memory, and one writev takes all
// there is. A view that was given is released once, written or not.
//
// Answers of a lane leave in the order of its frames, refusals included, and none before the log says that its batch is
// durable (R1); what the log could not tell of is an unknown outcome (R5). At most [Window] produce frames are in flight:
// Admit waits. A peer that is behind by 4 MiB is full until it has taken half; whoever asked is woken then.
//
// Nothing is allocated per frame, and no channel carries one. Write is the one goroutine, its caller's to wait for. The
// lock is held for the queue alone: never while anything is written.
package outbox
