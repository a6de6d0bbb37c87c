// Package gather reads what lies in a cold tier, without any metadata: which segments there are, whole objects and the
// pieces of cuts, and what headers, footers and indexes say of them. It is for a rebuild, and for a person who looks.
//
// [Bucket] lists a store and opens every segment by ranges: the end, which holds the footer, and the beginning. It tells
// damage, which is a Problem of one object and stops nothing, from a store that does not answer, which is an error: what
// was not read is never taken for damaged. [Open] looks at one object by its name.
//
// # Goroutines
//
// Bucket has a few while it runs and returns when all have.
package gather
