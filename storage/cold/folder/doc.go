// Package folder is a gocloud driver for a folder on a mounted file system:
// what file:// opens. gocloud's own fileblob is not enough for a log: it syncs
// nothing, checks "not there yet" and renames in two steps that two machines can
// take at once, and lists what an interrupted write left as an object.
//
// # What holds
//
//   - An object is there, under its key, only when all its bytes are on stable
//     storage: bytes go to a file of another name, are synced, and get the key by
//     link(2), which fails when the key exists and lets one of many machines win,
//     over NFS too. Then the directory is synced, and the ones that were made.
//   - A conditional write that is refused has synced what it found: the writer
//     that reads its own bytes back may call them durable.
//   - What an interrupted write leaves lies in a folder of its own, never shows
//     in a listing, and is removed by a later Open when it is a day old.
//   - An absent object is told from an absent mount: a marker in the root is
//     looked for before "not found" is said and before anything is written.
//   - A call on a mount that hangs returns when its context ends. The goroutine
//     that hangs keeps one of a bounded number of slots until the mount answers.
//   - A directory whose sync failed takes no more objects in this process (R20).
//
// It has neither attributes, copies nor signed URLs, and lists without delimiters.
//
// # Goroutines
//
// One for each call of the file system, until it returns; [Bucket] closed waits
// two seconds for those that hang.
package folder
