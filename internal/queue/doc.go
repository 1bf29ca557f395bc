// Package queue is the way of a job's message: onto an Azure Storage queue,
// into the hands of one worker, and off the queue when the job is over.
//
//	Put ──▶ visible ──Claim──▶ Lease ──Complete──▶ gone
//	           ▲                 │
//	           └────Release──────┘   also by itself, when the visibility runs out
//
// An [Envelope] is what a message says; [Decode] reads one and says what cannot
// be used, and why. A payload too large for a message travels in a blob beside
// it ([Payloads], the claim-check pattern).
//
// A message may have to be replaced, because its job moves to another queue or
// because the message expires or was removed ([Lease.ExpiresAt], [Lease.Gone]):
// [Queue.PutMoved] puts one that needs nothing of the old one, which is then
// completed.
//
// A [Lease] is one claimed message. It alone owns the message's text and its
// current pop receipt, because every renewal and every put-back changes the
// receipt and must repeat the text. A lease says who is likely to hold the job,
// never who may write its record: the record's ETag decides that (package
// checkpoint). A lease that turns out lost therefore needs no panic, only a stop.
//
// Every message that this package puts has time to live −1 (never): a message
// that expires is a lost job.
//
// Protocol facts are from the Azure Storage REST reference, "Queue service",
// and from trying: a stale receipt gets 400 PopReceiptMismatch or 404
// MessageNotFound; a receipt stays good after the visibility ran out until
// somebody else dequeues the message.
package queue
