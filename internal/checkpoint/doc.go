// Package checkpoint stores one record per job: a blob that holds the job's
// progress, owner and final outcome.
//
// A [Record] is the blob's metadata; its body is the state that the handler
// reported last, or the result once the job is done. A [Store] reads and lists
// records. A [Claim] is one delivery's right to write one record:
//
//	Lookup ──▶ Acquire ──▶ Restore ──▶ Save, Touch … ──▶ Commit
//	 │                                          └───▶ Release, Fail, Poison
//	 └──▶ nothing to do, or not ours
//
// # Fencing
//
// There are no blob leases. Every write is conditional on the record's ETag:
// a create on If-None-Match, every later write on If-Match. Acquiring a record
// changes its ETag, so an earlier owner can write nothing more, however long it
// was frozen. This alone protects the record; message leases only make it rare
// that two workers run the same job.
//
// # Conflict and doubt
//
// When a condition is refused, or no reply arrives, the caller does not know
// whether the write took effect: the SDK repeats requests, and a request may
// arrive late. Every write therefore carries the claim's token (a fencing token)
// and a sequence number that never repeats within the claim, and one read decides
// ([OnConflict]). A claim sends its writes strictly one after another, and settles
// a write in doubt before the next one. [OnDelivery] decides what a delivery may
// do with the record that it finds.
//
// These rules implement the section on recovery of docs/DESIGN.md. They were
// model-checked; change them only together with the model.
package checkpoint
