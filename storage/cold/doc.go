// Package cold is the store behind the cold tier: a bucket, or a folder on a
// mount that is used as one. DESIGN.md says what it promises and why.
//
// [Open] takes a URL and makes a [Store]; [Store.Check] is the self-test that
// comes before the first write. Put makes an object once and for all, ReadAt
// reads a range, List, Stat, Delete and Replace are what they are called.
// [Error] says why a call failed, by [Cause], and whether it makes sense to try
// later. Package keys knows what objects are called, package drivers opens
// clouds, package folder is the driver of folders.
//
// # Goroutines
//
// A Store has none of its own, no queue and no lock that is held while a request
// is under way: how many calls run at once is their callers' choice.
package cold
