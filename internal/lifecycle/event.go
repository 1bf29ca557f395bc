package lifecycle

import "fmt"

// Event is something that happened to a worker and may change its state.
type Event uint8

const (
	// Warm says that warm-up is complete.
	Warm Event = iota
	// Known says that it is known how the last run ended and which events are
	// announced.
	Known
	// Ready says that the worker can take work and reports itself healthy.
	Ready
	// Notice says that an event of the platform names this VM and leaves no
	// more time to work, so that jobs have to be released now. It may repeat.
	Notice
	// Terminate says that the process is to end, by SIGTERM or another
	// request, or by a fault that it cannot outlive. It may repeat and is
	// never taken back.
	Terminate
	// Drained says that the worker holds nothing. It may
	// repeat.
	Drained
	// Withdrawn says that no event that called for a Notice stands any more.
	// Where several stood, it comes with the last of them.
	Withdrawn
	// Hold says that an operator drains this worker: it releases its jobs and
	// idles. It may repeat.
	Hold
	// Unhold says that the operator takes that back.
	Unhold
)

var eventNames = [...]string{
	Warm:      "warm",
	Known:     "known",
	Ready:     "ready",
	Notice:    "notice",
	Terminate: "terminate",
	Drained:   "drained",
	Withdrawn: "withdrawn",
	Hold:      "hold",
	Unhold:    "unhold",
}

// Events returns all events, beginning with the events of a start.
func Events() []Event {
	return []Event{Warm, Known, Ready, Notice, Terminate, Drained, Withdrawn, Hold, Unhold}
}

// String returns the lower-case name that logs show.
func (e Event) String() string {
	if int(e) < len(eventNames) {
		return eventNames[e]
	}
	return fmt.Sprintf("event(%d)", uint8(e))
}

// MarshalText makes JSON and slog show the name rather than the number.
func (e Event) MarshalText() ([]byte, error) {
	return []byte(e.String()), nil
}
