// Package outputs stores the files that jobs write for others: their outputs.
//
// Each file is a blob in a container of its own, and a manifest, another blob, lists the files of
// a job:
//
//	<hhh>/<job id>/<generation>-<token>/<path>     a file; <generation>-<token> is the
//	                                               claim that sent it
//	<hhh>/<job id>/manifest-<sha256>.json          what the job has sent so far
//
// # Promises
//
// A blob is written once: under If-None-Match, into a folder of its claim. So an owner that was
// frozen and continues cannot change its successor's files, nor can two deliveries of one job mix
// their files. The job's record names one manifest by its hash, and the manifest names each file
// with its blob, size, SHA-256 and ETag. The record is written under its own ETag, so the files
// of a job are exactly the files of the delivery that committed it, all at once. Files that no
// manifest names are garbage: the rest of a delivery that was killed, lost its job, or sent a
// file that changed later.
//
// # During the run
//
// Files may be sent at any time before the commit. Every save of the job's state names a
// manifest, so the next owner knows the sent files, and sends none of them again. A [Set] holds
// the files of one delivery.
//
// # Memory
//
// A file is read once, in blocks of 4 MiB, and hashed as it is sent. All files that a [Store]
// sends at the same time share 64 MiB of blocks. A manifest is held whole.
//
// # Outputs are part of a state
//
// The files that a state relies on are sent before the state is recorded, and the same write
// names both. In a drain files have four fifths of the time of the states, so that the manifest
// of the sent files is recorded in any case. If some cannot be sent, the state is left out: an
// older checkpoint with its files is right, a newer state without its files is not. A clear,
// refusal or replacement of a state does the same with its outputs.
//
// An upload of unknown outcome that the SDK repeats finds its own blob: the blob's metadata has
// the claim's token, so the answer that it exists counts as success. A later try uses another
// folder, since the file may have changed by then. A manifest is rewritten whole with each save
// that has new files, which bounds their number.
package outputs
