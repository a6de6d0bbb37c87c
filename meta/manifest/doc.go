// Package manifest is what a cluster writes beside its data in the cold tier, so that the bucket is enough to make its
// metadata again (R22): what no object says of itself. docs/format.md holds the bytes.
//
// Segments tell offsets, epochs and the names of their topics. A Manifest tells the rest as of one version of the state:
// namespaces, topics and their settings, tombstones, which offsets there are and under which epoch (R19), where logs
// begin, subscriptions and all they have acknowledged. A Beat says which cluster lives in a bucket, and that it does.
//
// # Why one object
//
// One for each topic and one a broker for cursors would be written where the changes are made. But then topics and cursors
// are of different versions; a new leader must list the bucket to know which are up to date; and ten thousand topics
// cost ten thousand requests. All of it is in the state of every broker, a few hundred bytes a topic, so the leader writes
// it whole, once a minute and only if something changed: one request.
//
// The catalogs are not in it: they are long, change all the time, and the names and footers of the objects say the same.
package manifest
