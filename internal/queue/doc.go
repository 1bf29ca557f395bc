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
// expires or was removed ([Lease.ExpiresAt], [Lease.Gone]). [Queue.PutMoved] puts a new,
// independent message; the old one is then completed.
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
//
// # Several queues
//
// The limit of a queue is its partition's, so more messages a second need more queues
// ([Shards]). The first keeps its name, and programs that do not know the number use it alone.
// The number is in its metadata, which a worker's start reads anyway: a setting on each party
// could disagree, and a queue that no worker takes from loses jobs for their owner. It is two
// numbers: over how many queues jobs are put, and from how many they are taken. To use fewer
// queues, the first number falls, and the second follows when the others are empty.
//
// A hash of the job's id chooses the queue, so producers need no common counter, and a duplicate
// usually is on the same queue. No rule depends on that. Poison queue, on-demand queue and the
// queue First stay one each: they have few messages, and operators look in one place.
package queue
