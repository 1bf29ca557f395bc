// Package drain holds the deadlines by which a worker stops: how long handlers
// may run, states may be sent and messages may be released once a VM is about to
// go or the process gets SIGTERM.
//
// # One drain
//
// A [Drain] is the reason why work stops, together with its [Schedule]. It is the
// cause of the context that it cancels, so everything that holds the context can
// ask why and by when (see [Of], [StopOf] and job.StopOf). The clock starts when
// the notice is seen:
//
//	seen ──── handlers stop ────▶ states are sent ────▶ records only ────▶ end
//	           ½ of the budget            ¾                                 1
//
// A more urgent notice shortens the schedule of a drain under way; nothing
// extends it. A [Set] holds all active drains, so that an eviction also shortens the
// drains of jobs that were stopped alone, for a limit that they exceeded or a message
// that was lost.
//
// # Two contexts
//
// A stop ends claiming and handlers at once, but the last writes must outlive it.
// [Outlive] derives a context that continues after the stop, up to a deadline of
// the schedule. All writes that follow a stop use such a context, none uses
// context.Background.
//
// # Departures
//
// A notice of minutes or days is used up rather than obeyed at once. A [Departure]
// says when claiming ends and which jobs can still finish:
//
//	announced ── claiming continues ──▶ closed ── jobs that can finish do ──▶ leave ─▶ gone
//	                                    │ the longer of 5 min and             30 s before, or
//	                                    │ the mean time of a job,             when no job is
//	                                    │ before gone                         active
//
// # The last writes
//
// When many jobs are saved at once, a [Gate] admits a bounded number of writes,
// the smallest first. A [Backlog] says which released jobs go before the others.
package drain
