// Package operate has the operator's actions on jobs that were dead-lettered: list the
// poison queue, replay jobs, and purge them. It also finds jobs whose messages were
// lost, and puts new ones ([PoisonQueue.Orphans], [PoisonQueue.Requeue]). A
// [Canceller] cancels jobs that wait or run.
//
//	             ┌─ Replay ─▶ record open ─▶ new message ─┐
//	poison queue ┤                                        ├─▶ poison message gone
//	             └─ Purge ──▶ record cancelled ─▶ payload gone ┘
//
// The job's record is read first, and decides. Only a job that was dead-lettered
// ([checkpoint.Record.GivenUp]) is replayed or purged. A job that has ended
// otherwise, or runs again, only loses its poison message, which is an old
// duplicate. An id that was used for other work is refused. Every step may be
// repeated after a crash, because the poison message is deleted last: a repeat
// finds it and finishes the action.
//
// A purged job is cancelled, not forgotten: for as long as its record is kept, no
// old message can start it again.
//
// [PoisonQueue.Peek] changes nothing, but the service shows it only the 32 messages
// at the front. Messages behind them must be claimed, which hides them from other
// operators until the scan has ended, or for two minutes after a crash.
//
// A job without a record may wait for its first worker, since queues cannot be searched. A cancel
// looks at the 32 messages at the front and at the count of all, which the service may overstate and
// never understates. It makes a record only where these leave the question open.
package operate
