// Package handlers holds the kinds of jobs that come with the worker.
//
// [Digest] is the SHA-256 of a blob. It does real work for whoever checks the
// fixity of an archive, and it is the example of an interruptible handler: the
// state of the hash is the checkpoint, so an eviction in the middle of a large
// blob costs the bytes since the last report and no more.
//
// [Compress] makes a zstd blob of a blob. It is the example of a handler with an
// effect outside: what an evicted or a frozen worker has staged is either used by
// its successor or the same once more, and there is one target, made once.
package handlers
