package job

import "fmt"

// MaxNeeds is the longest text that [Progress] may have as Needs, in bytes.
const MaxNeeds = 1 << 10

// NeedsError is the error of a state that this worker cannot continue from.
type NeedsError struct {
	// Reason says what differs here.
	Reason string
}

// Error returns the reason.
func (e *NeedsError) Error() string { return e.Reason }

// CheckNeeds returns a [*NeedsError] if the workers of a kind check the needs of a state
// ([Progress]) and this worker does not meet them. A handler checks by its own method
// CheckNeeds(needs string) error. The worker calls it before it acquires the job, and fetches
// nothing of the state if it fails.
func CheckNeeds(h Handler, needs string) error {
	check, ok := methodOf[interface{ CheckNeeds(needs string) error }](h)
	if needs == "" || !ok {
		return nil
	}
	if err := check.CheckNeeds(needs); err != nil {
		return &NeedsError{Reason: fmt.Sprintf("it cannot continue here: %v", err)}
	}
	return nil
}

// Offer returns the first word of the needs that this worker meets for a kind: the result of
// the handler's own method Offer, empty without one. Heartbeats have it, so that other workers
// know whether a job waits for a worker that exists. An offer may end in `+` and a set of bits in
// base64 (for URLs, without padding): it also meets needs with the same beginning and a set of the
// same length, if it has all their bits.
func Offer(h Handler) string {
	if offers, ok := methodOf[interface{ Offer() string }](h); ok {
		return offers.Offer()
	}
	return ""
}

// methodOf returns the outermost of a handler and the handlers within that has a method.
func methodOf[T any](h Handler) (has T, ok bool) {
	for ; h != nil; h = within(h) {
		if has, ok = h.(T); ok {
			return has, true
		}
	}
	return has, false
}
