// Package salvage makes the metadata of a cluster again from what is left of it (R22): what segments say of themselves, in
// the cold tier and on the disk of one store, and a manifest if there is one. It reads nothing: evidence goes in, and out
// comes what the state is made of, with all that was left out and why.
//
// # Which value an offset has
//
// R19: the batch that carries the epoch that the offset belongs to. Up to its own version a manifest says which that is,
// and which offsets there are at all. Above that, or without one, the newest epoch has an offset, from its own first
// offset on; so what a zombie stored behind the end of its epoch does not come back.
//
// # Which objects are catalogued
//
// A catalog has been lost, and what was in it is found again by what it promised (R11): within a range there was no hole,
// and no overlap. So of all objects whose every offset has the right epoch those are taken that go on from each other the
// furthest, from the start of the log and behind each hole anew; of two ways as far that with fewer objects, which is the
// one after a merge. What a merge has replaced, what was stored and never committed, and what was stored twice is left over.
// Whether such an object was in a catalog does not matter: epoch and offset have one value, whoever wrote it (I3).
//
// # What is not there
//
// Offsets that there were and nobody has are LOST, with exact bounds; so is what was acknowledged behind the last object at
// a level below object, as far as the manifest knows that offsets were given out. Without a manifest all that lies between
// two objects is LOST: messages may have been there.
//
// # Seams
//
// An object is in a catalog whole or not at all. Where retention has passed what was stored and not committed, or an
// object is damaged, two may overlap of which each has offsets that no other has. One of them is taken, and the rest of the
// other is a Seam: an object with those batches alone makes the catalog whole.
package salvage
