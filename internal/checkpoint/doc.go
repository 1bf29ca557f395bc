// Package checkpoint keeps what is known about a job: one blob per job, which
// says how far the job is, who may write it, and in the end what came of it.
//
// A [Record] is the blob's metadata; its body is the state that the handler
// reported last, or the result once the job is done. A [Store] reads and lists
// records. A [Claim] is one delivery's right to write one record:
//
//	Look ──▶ Claim ──▶ Restore ──▶ Save, Touch … ──▶ Commit
//	 │                                         └───▶ Release, Fail, Poison
//	 └──▶ nothing to do, or not ours
//
// # Fencing
//
// There are no blob leases. Every write is conditional on the record's ETag:
// a create on If-None-Match, every later one on If-Match. Claiming a record
// changes its ETag, so whoever held it before can write nothing more, however
// long it was frozen. That is the whole of the protection: message leases only
// make it rare that two workers have the same job in hand.
//
// # Conflict and doubt
//
// A refused condition, or a reply that never came, does not tell whether the
// write took effect: the SDK repeats requests, and a request may arrive late.
// Every write therefore carries the claim's token and a number that never
// repeats within the claim, and one read decides ([OnConflict]). The writes of a
// claim go strictly one after another, and an open doubt is settled before the
// next. What a delivery may do with the record that it finds is [OnDelivery].
//
// These rules are docs/DESIGN.md's section on recovery, as code. They were
// model-checked; change them only together with the model.
package checkpoint
