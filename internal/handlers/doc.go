// Package handlers has the built-in kind of jobs.
//
// [Digest] computes the SHA-256 of a blob, for instance to check the integrity of an
// archive. It is the example of an interruptible handler: its checkpoint is the state
// of the hash, so an eviction in the middle of a large blob loses only the bytes since
// the last report.
package handlers
