// Package operate is what an operator does to jobs that were given up: look at
// the poison queue, replay what may go on, purge what may not. It also finds jobs
// whose messages were lost, and puts new ones ([PoisonQueue.Orphans], [PoisonQueue.Requeue]).
//
//	             ┌─ Replay ─▶ record open ─▶ new message ─┐
//	poison queue ┤                                        ├─▶ poison message gone
//	             └─ Purge ──▶ record cancelled ─▶ payload gone ┘
//
// The record is read first, and decides. Only a job that is given up
// ([checkpoint.Record.GivenUp]) is replayed or purged; one that has ended
// otherwise, or is at work again, loses nothing but its poison message, which is
// an old duplicate then; an id that was used for other work is refused. Every
// step may be repeated after a crash, because the poison message goes last: what
// was begun is found again, and ended.
//
// A purged job is cancelled, not forgotten: for as long as its record is kept, no
// old message of it begins it anew.
//
// Looking changes nothing as far as the service allows: it shows the 32 messages
// at the front ([PoisonQueue.Peek]). What lies behind them must be claimed, and is
// hidden from other operators until this one is through, or for [hold] after it
// died.
package operate
