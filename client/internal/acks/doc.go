// Package acks is what a consumer remembers of acknowledgements: a [Set] of offsets, and the [Book] of one partition, which
// says what is to be sent, what to be asked for again, and what must not be handed out a second time. It is plain state:
// whoever uses it guards it.
package acks
