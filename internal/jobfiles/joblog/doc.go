// Package joblog keeps the end of a job's own lines: the output of its program and the
// lines of its handler, over all of its deliveries.
//
// A [Log] collects the lines of one delivery in memory, up to a size. They are stored as
// text, in two places:
//
//	handler, program ──▶ Log ──┬─▶ the job's record: the last lines, up to 1 KiB, with
//	                           │   every write of the record; this costs no call
//	                           └─▶ the delivery's blob, in the container of payloads: all kept
//	                               lines, if the record has no room for them ([Store])
//
// # Sections
//
// A [Document] has a section for each delivery, with the worker's name, and its lines are
// numbered. The blob of a delivery has its own section, after the lines that its record had
// when it began. A reader merges ([Merge]) the blobs of the last 16 deliveries and the record.
//
// # Fencing
//
// A log decides nothing, and no write of a record waits for it. The name of a blob has the
// creation of the job's record and the generation of the claim, so one delivery alone writes
// it, and an owner that was frozen cannot remove the lines of its successor.
//
// The blobs are in the container of payloads because workers may write there already.
package joblog
