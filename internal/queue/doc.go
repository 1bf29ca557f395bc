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
// usually is on the same queue. No rule depends on that. Poison and on-demand queue stay one each:
// they have few messages, and operators look in one place.
//
// # Several accounts
//
// The limit of an account is 20,000 calls a second ([Accounts]). All data of a job is in one
// account. The queue of its message determines the account, so a delivery needs no lookup. Only
// the first account has heartbeats and the control document. Ids, circuit breakers, slots and
// memory belong to the worker; renewals, log writes, pace and moves belong to an account, since
// one account must not wait for another.
//
// The list of accounts is configuration, and not data: a token for storage is valid for every
// account, and a person who may write metadata must not be able to redirect it. The metadata of
// the first queue has the names and how many of them are in use, so that a program with another
// list or order notices.
//
// A new random id may go to any account. A chosen id must meet its record when it is put again,
// even before it has one. So chosen ids have a number of accounts of their own, which changes only
// in an empty deployment or by an operator who accepts a second run. Epochs of the list, or a
// lookup before each put, would miss a message that waits for its first worker; a consistent hash
// would move ids. A copy of the metadata in each account would let an id run twice when stale, so
// a program that starts while the first account is unavailable refuses chosen ids.
package queue
