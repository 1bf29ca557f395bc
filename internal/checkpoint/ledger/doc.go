// Package ledger accounts for the time that a job costs: the time of workers' slots, over
// all deliveries of the job.
//
//	slot     |wait|restore|------------- handler -------------|final save, release|
//	saved              *-----------------*(last recorded report)
//	                    useful            redone
//	          overhead                                          overhead
//
// Each write of the record is correct as the last one, so that no call is made for the
// ledger, and a worker that dies leaves a ledger that is right up to
// then. Time for which the worker was frozen is overhead: the slot was paid for, and no
// handler ran. What followed, up to the death, is estimated by the next owner ([Takeover.Lost]).
//
// A first delivery has no record before its first write, up to 10 s after its start. If its worker
// dies before that, no ledger has the delivery: the next owner cannot tell a handler that died from
// a message that was claimed and never started.
//
// All durations are measured with the monotonic clock of one process. The estimate uses the
// storage service's clock alone. So a clock of a VM that is wrong, or jumps, changes nothing.
package ledger
