// Package offline is what the files of a stopped broker say: the batches of a segment file, whether a log is whole, and
// metadata made anew from segments. It reads files, judges and describes; it changes none.
package offline
