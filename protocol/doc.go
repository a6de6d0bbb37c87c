// Package protocol is what goes over a client's socket: frames, the headers of
// requests and answers, and one table of error codes. It knows bytes and no
// sockets beyond io.Reader; it never acts on what it reads.
package protocol
