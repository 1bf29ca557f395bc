// Package handlers holds the kinds of jobs that come with the worker.
//
// There is one: [Digest], the SHA-256 of a blob. It does real work for whoever
// checks the fixity of an archive, and it is the example of an interruptible
// handler: the state of the hash is the checkpoint, so an eviction in the
// middle of a large blob costs the bytes since the last report and no more.
package handlers
