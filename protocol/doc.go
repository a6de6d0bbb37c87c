// Package protocol is what goes over a client's socket: frames, the headers of
// requests and answers, and one table of error codes. It knows bytes and no
// sockets beyond io.Reader; it never acts on what it reads.
//
// A [Reader] cuts a stream into frames; [AppendFrame] and [AppendHead] write
// them. Each header type lists its fields once, in headers.go, for both
// directions; bodies are batches (package protocol/batch) or, for [Admin],
// what [EncodeBody] makes. Whatever a peer sends ends in a value, an [*Error]
// or a [*FrameError], never in a panic, and no length it claims is allocated
// before its bytes are there or its limit was checked.
//
// docs/protocol.md describes the same for a client in another language; tests
// hold it to this package.
package protocol
