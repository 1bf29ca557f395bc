// Package inputs fetches the files that a job names as its inputs, and keeps them on the
// machine for later jobs.
//
//	message ─▶ parse ─▶ Resolve ─▶ Fetch ─▶ Held ─▶ handler
//	                    listings,   cache,
//	                    sizes,      downloads
//	                    paths
//
// [Fetcher.Resolve] finds out which blobs the inputs stand for, in which version, and
// where their files go, and rejects inputs that can never be fetched, before anything is
// downloaded. [Plan.Hash] identifies the result: a delivery that continues from a
// checkpoint must find the same one. [Fetcher.Fetch] makes the files available in a
// folder of the job.
//
// # The cache
//
// All workers of a user on one machine share a folder:
//
//	lock              held for moments: while space is reserved, entries are evicted,
//	                  and workers come and go; its content is the bytes in use
//	boot              the boot of the machine in which the entries were made
//	blobs/HH/HASH     a whole blob; HASH stands for account, container, name and ETag
//	workers/ID.lock   held while a worker is alive
//	workers/ID/       its downloads, and a folder with links to the entries of each job
//
// A download that breaks leaves its part in the worker's folder, under the name of the
// entry: the next try continues there, so the ranges are of one version. It goes when
// others
// need the room, or with the worker.
//
// An ETag never stands for two contents, so an entry never changes. It appears by a
// rename, when its length and, where the service has one, its MD5 have been verified.
// Programs that run as the worker's user could change it all the same. With [Config.Verify]
// each use therefore compares the content with the SHA-256 of this worker's download,
// which it has in memory, or with the service's MD5, and downloads the blob again if they
// differ or neither is known.
//
// The entries of a job are held by hard links in the worker's folder. So the file system
// counts who uses an entry, across processes: an entry with a single link is unused. Only
// such entries are evicted, the longest unused first. When a worker dies, the next worker
// that opens the cache removes its folder and with it the links.
//
// After a reboot the cache begins empty: entries are not flushed to the disk, and a crash
// of the machine may leave torn ones.
package inputs
