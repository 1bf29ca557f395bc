package preempt

import (
	"reflect"
	"strings"
	"time"
)

// Document is one good answer of the scheduled events endpoint.
type Document struct {
	// Incarnation changes when the events do. It is a number to the service,
	// but only inequality means anything, so it is kept as text. Empty if the
	// answer had none.
	Incarnation string

	// Events holds every event of the placement group, also those of other
	// VMs, in the order of the answer.
	Events []Event

	// Date is the service's clock when it answered, from the answer's Date
	// header: UTC, cut to a whole second. Zero if there was none.
	Date time.Time

	// ReceivedAt is the local clock when the answer's header arrived.
	ReceivedAt time.Time
}

// Event is one entry of a [Document].
// The fields are those of api-version 2020-07-01; 2024-07-09 adds a type and a
// status, no field.
type Event struct {
	// ID is the service's name for the event, a GUID.
	ID string

	// Type is what will happen; one of the Type constants in their spelling,
	// or the service's own text for a type that is not among them.
	Type string

	// Status is one of the Status constants in their spelling, or the
	// service's own text.
	Status string

	// Resources names the VMs that the event is about.
	Resources []string

	// NotBefore is the earliest start by the service's clock. Zero if it is
	// not known: blank, as for a Started event, or not readable as a time.
	NotBefore time.Time

	// Description is a sentence for people. A Preempt has none.
	Description string

	// Source is SourcePlatform, SourceUser, or the service's own text.
	Source string

	// Duration is how long the interruption will last, or UnknownDuration.
	Duration time.Duration
}

// Event types. An eviction is a Preempt; a rebalance recommendation says that
// one has become likelier. The others are maintenance, or an operation that a
// person asked for.
const (
	TypePreempt   = "Preempt"
	TypeTerminate = "Terminate"
	TypeReboot    = "Reboot"
	TypeRedeploy  = "Redeploy"
	TypeFreeze    = "Freeze"
	TypeRebalance = "SpotRebalanceRecommendation"
)

// Event statuses. There is none for an event that is over: it is no longer
// listed. An Advisory event has no start and asks for nothing.
const (
	StatusScheduled = "Scheduled"
	StatusStarted   = "Started"
	StatusAdvisory  = "Advisory"
)

// Event sources.
const (
	SourcePlatform = "Platform"
	SourceUser     = "User"
)

// UnknownDuration is the Duration of an event whose length the service does
// not know or did not say.
const UnknownDuration time.Duration = -1

// dateResolution is the resolution of an HTTP Date, which is cut, not rounded.
const dateResolution = time.Second

// Now translates local, a time of the local clock, to the service's clock: the
// answer's Date plus what has passed since. Date is cut to whole seconds, so
// the latest instant it can stand for is taken: a budget that comes out up to a
// second short is harmless, one that outlives the VM is not. Without a Date it
// returns local itself, the best guess left.
func (d Document) Now(local time.Time) time.Time {
	if d.Date.IsZero() || d.ReceivedAt.IsZero() {
		return local
	}
	return d.Date.Add(dateResolution + local.Sub(d.ReceivedAt))
}

// Event returns the event with the given id, compared without case. That an id
// is gone from a later document means the event is over or was withdrawn.
func (d Document) Event(id string) (Event, bool) {
	for _, e := range d.Events {
		if strings.EqualFold(e.ID, id) {
			return e, true
		}
	}
	return Event{}, false
}

// sameEvents reports whether d and other say the same. The incarnation alone
// would do, but for a VM that moved to another host, where numbering may start
// again and meet the old number by chance.
func (d Document) sameEvents(other Document) bool {
	return d.Incarnation == other.Incarnation && reflect.DeepEqual(d.Events, other.Events)
}
