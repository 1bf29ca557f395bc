package preempt

import "time"

// Notice is the decision to drain this VM, with its reason and deadline.
type Notice struct {
	// EventID, Type and Status are from the event that caused it.
	EventID string
	Type    string
	Status  string

	// NotBefore is the event's earliest start by the service's clock, zero if
	// not known. It is for people; code uses Deadline.
	NotBefore time.Time

	// SeenAt is the local time of the decision, where the drain's clock starts.
	SeenAt time.Time

	// Deadline is the local time by which all jobs have to be saved and released.
	Deadline time.Time

	// Reason is a short text for the log.
	Reason string
}

// Notice returns the notice of a decision to drain, made at the local time
// seenAt. That time should be the one given to [Document.Now] for the decision.
func (v Verdict) Notice(seenAt time.Time) Notice {
	return Notice{
		EventID:   v.Event.ID,
		Type:      v.Event.Type,
		Status:    v.Event.Status,
		NotBefore: v.Event.NotBefore,
		SeenAt:    seenAt,
		Deadline:  seenAt.Add(v.Budget),
		Reason:    v.Reason,
	}
}

// Error is the cause of a context that was cancelled because of a notice:
//
//	cancel(&preempt.Error{Notice: n})
//
// and, on the other side,
//
//	if e, ok := errors.AsType[*preempt.Error](context.Cause(ctx)); ok {
type Error struct {
	Notice Notice
}

// Error names the event. The log has its other fields once: each job that it stops repeats this text.
func (e *Error) Error() string { return e.Notice.Type + " " + e.Notice.EventID }
