// Package catalog is what a partition has in the cold tier: which objects hold which of its offsets. It is data and
// nothing else; who may change it, and when, is decided in package state. R-numbers are the design's ownership rules.
//
// A Segment is a run of offsets and where its bytes lie: an object of its own, or a piece of a cut, which is one object
// for the small segments of many partitions. What a segment does not say is told elsewhere: its epochs by the
// partition's ranges, and by the segment itself, and the topic of its object by the catalog that it stands in.
//
// A Page stands for up to MaxPage segments that an object of its own lists, so that the metadata stay small however
// long a partition is kept. It lists no pieces of cuts: whether a cut is still needed must be known without reading
// pages. The bytes of that object have one encoding, so whoever knows the segments knows its checksum, and whoever has
// the bytes can prove what the page lists.
//
// # What holds
//
//   - Segments ascend and do not overlap, nor do pages, nor a segment and a page. A segment may lie between two pages: it
//     belongs to a range that was away when what follows was exported.
//   - Every offset in [Start, End) of a page lies in a segment of it, or in no range of its partition.
//
// # Memory
//
// A segment takes about thirty bytes: segments lie encoded against each other in chunks of at most 64, which catalogs
// share. To add one at the end, which a partition of level object does four times a second, copies a chunk and the list
// of chunks; every other change packs the chunks anew that it touches.
package catalog
