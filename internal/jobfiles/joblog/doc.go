// Package joblog keeps the end of a job's own lines: the output of its program and the
// lines of its handler, over all of its deliveries.
//
// A [Log] collects the lines of one delivery in memory, up to a size. They are stored as
// text, in two places:
//
//	handler, program ──▶ Log ──┬─▶ the job's record: the last lines, up to 1 KiB, with
//	                           │   every write of the record; this costs no call
//	                           └─▶ a blob beside the payloads: all that is kept, once
//	                               that does not fit into the record ([Store])
//
// # Sections
//
// A [Document] has a section for each delivery, with the worker's name, and its lines
// are numbered. So two documents of one job can be merged ([Merge]), also if each has
// left out other lines, and nothing in it depends on the order of writes: a reader merges
// the
// blob
// with the record, and the next worker continues from both.
//
// # Fencing
//
// A log decides nothing, and no write of a record waits for it. The blob is only
// written by a claim whose last write of the record took effect, under the ETag of
// the document that the write contains, and never over a section of a later delivery.
// The last lines of a job that an operator cancelled are written under the same rules, but
// never over the log of another job of its id.
// So an owner that was frozen cannot remove the lines of its successor.
//
// The blob is in the container of payloads because workers may write there already.
package joblog
