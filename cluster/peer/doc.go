// Package peer is the one port between brokers: requests with their answers, and Raft's streams, told apart by the first
// byte of a connection. It knows who calls and whom it reaches by their hellos, and nothing of what they say to each
// other: operations are names with bytes, and who belongs to the cluster beyond what two hellos show is for its user to
// judge (Config.Judge).
//
// Its few types are Port, Target, Hello and Refusal. To another broker there is one connection, made when there is
// something to send and again after it broke; many requests share it, and a small frame waits for one large frame at
// most. Until a caller is known it makes us hold no more than one hello; what one connection may have in the works is
// bounded in number and bytes.
//
// Whether a request was carried out is never guessed (R5): ErrUnreachable says that it was not, ErrUnanswered that
// nobody here knows.
//
// # Goroutines
//
// One accepts. Each accepted connection has one that says hello and then reads it; each request that is being handled
// has one; a Raft stream belongs to Raft. Each connection to a broker has one that reads and one that watches it. Close
// waits for all of them. Every lock is a leaf, and no handler or function of Config is called with one held.
package peer
