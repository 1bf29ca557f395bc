// Package queue puts job messages on Azure Storage queues, claims them, renews
// them, and deletes them when their jobs have ended.
//
//	Put ──▶ visible ──Claim──▶ Lease ──Complete──▶ deleted
//	           ▲                 │
//	           └────Release──────┘   also when the visibility timeout expires
//
// An [Envelope] is the content of a message. [Decode] reads one, and its error says
// why it cannot be used. A payload that is too large for a message is stored in a
// blob ([Payloads], the claim-check pattern).
//
// A message is replaced when its job moves to another queue, and when the message
// expires or was removed ([Lease.ExpiresAt], [Lease.Gone]). [Queue.PutMoved] puts a
// new one that does not depend on the old one, which is then completed.
//
// A [Lease] is one claimed message. It alone owns the message's text and its
// current pop receipt, because every renewal and every put-back changes the
// receipt and must send the text again. A lease says which worker probably runs
// the job, never which may write its record: the record's ETag decides that
// (package checkpoint). So a worker that loses a lease only has to stop.
//
// Every message that this package puts has a time to live of −1 (never expires):
// an expired message is a lost job.
//
// The protocol facts are from the Azure Storage REST reference, "Queue service",
// and from experiments: a stale receipt gets 400 PopReceiptMismatch or 404
// MessageNotFound; a receipt stays valid after the visibility timeout until
// another client dequeues the message.
package queue
