package job

// Idempotent returns h marked as naturally idempotent: running it twice with the same
// payload, also at the same time or after it has ended, does no harm, and no one reads
// its result. A worker then saves the write of the job's record where it can: 1 + 1/32
// storage calls for a short job instead of 2 + 1/32.
//
// No job is lost, but two other promises are weaker. A duplicate of the message runs
// the job again, also after its end, because nothing records that end. And the job
// cannot be waited for by its id, unless it was put by somebody who said that they
// would.
//
// A record is written all the same for a job that returns a result, saves a state, runs
// for 10 s, fails or is dead-lettered; for a job with an id that the producer chose or
// a payload in a blob; and for every delivery after the first.
func Idempotent(h Handler) Handler { return idempotent{h} }

type idempotent struct{ Handler }

func (idempotent) Idempotent() bool { return true }

// Limits returns the limits of the handler within.
func (h idempotent) Limits() Limits { return LimitsOf(h.Handler) }

// IsIdempotent reports whether a handler is marked by [Idempotent], or by its own
// method Idempotent.
func IsIdempotent(h Handler) bool {
	marked, ok := h.(interface{ Idempotent() bool })
	return ok && marked.Idempotent()
}
