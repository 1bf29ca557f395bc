// Package handlers has the built-in kinds of jobs.
//
// [Digest] computes the SHA-256 of a blob, for instance to check the integrity of an
// archive. It is the example of an interruptible handler: its checkpoint is the state
// of the hash, so an eviction in the middle of a large blob loses only the bytes since
// the last report.
//
// [Compress] compresses a blob into a zstd blob. It is the example of a handler with a
// side effect: blocks that an evicted or frozen worker has staged are reused by its
// successor or staged again with the same content, and the target is committed once.
package handlers
