// Package herald keeps beside the data in the cold tier what a rebuild needs of the metadata (R22): once a minute the
// leader writes a manifest, if something has changed, and that the cluster lives. docs/format.md holds the bytes, package
// manifest of meta makes them.
//
// It also tells whose the bucket is. A rebuild elsewhere begins a newer history of this cluster on the same objects; from
// then on nobody of the older one may delete any. So every broker looks once a minute, and Mine says what it saw last.
//
// # What holds
//
//   - A manifest is of one version of the metadata and is named for it; two leaders that write that of one version write
//     the same, but for the time.
//   - No manifest is deleted but those that a newer one of the same history has taken the place of, and the newest ones stay.
//   - The object of a cluster that is another, or in a later history, is never overwritten.
//
// # Goroutines
//
// None of its own: Run returns when its context ends. Methods may be called at any time. The lock is a leaf and is not
// held during a request.
package herald
