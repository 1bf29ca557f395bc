package runtimedir

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Event is a scheduled event that a worker of this VM left for: it handed
// everything over and takes nothing more until the event is over, since from then
// on the event may be let go ahead.
type Event struct {
	// ID is the service's name for it, compared without case.
	ID string `json:"id"`

	// NotBefore is the time for which the worker left; zero if the event had none.
	// An event that was put off to a later one is another matter.
	NotBefore time.Time `json:"not_before"`

	// Acknowledged says that a worker of this VM lets the event go ahead.
	Acknowledged bool `json:"acknowledged"`

	// LeftAt is when the first worker left.
	LeftAt time.Time `json:"left_at"`
}

// ErrTaken is the error of [Dir.Acknowledge] when another worker of this VM has
// acknowledged the event, or is about to.
var ErrTaken = errors.New("another worker of this VM acknowledges the event")

// BusyError says which workers of this VM have, or may get, work.
type BusyError struct{ Instances []string }

func (e *BusyError) Error() string {
	return "workers of this VM still have work: instance " + strings.Join(e.Instances, ", ")
}

// BeginWork says that this worker has work, or may get it, until done is called,
// and returns the events that a worker of this VM has left for. If one of them
// still stands, this worker must take no work. Done must be called whatever the
// error is.
func (d *Dir) BeginWork(ctx context.Context) (done func(), left []Event, err error) {
	done = func() {}
	err = d.exclusively(ctx, func() error {
		l, err := take(d.file(workPrefix + d.Instance))
		if err != nil {
			return fmt.Errorf("runtime folder: %w", err)
		}
		done = l.release
		left, err = d.events()
		return err
	})
	return done, left, err
}

// Leave records events that this worker leaves for, before it says so to anybody.
func (d *Dir) Leave(ctx context.Context, leaving []Event) error {
	return d.exclusively(ctx, func() error {
		left, err := d.events()
		if err != nil {
			return err
		}
		for _, e := range leaving {
			e.LeftAt = time.Now()
			left = put(left, e)
		}
		return d.setEvents(left)
	})
}

// Acknowledge reports whether this worker is to acknowledge an event that it left
// for: no worker of this VM has work any more, and no other has acknowledged it.
// The error is a [BusyError], [ErrTaken], or that of the folder. From here on the
// event counts as acknowledged.
func (d *Dir) Acknowledge(ctx context.Context, event Event) error {
	return d.exclusively(ctx, func() error {
		left, err := d.events()
		if err != nil {
			return err
		}
		i := find(left, event.ID)
		if i >= 0 && left[i].Acknowledged {
			return ErrTaken
		}
		busy, err := d.held(workPrefix)
		if err != nil {
			return err
		}
		if len(busy) > 0 {
			return &BusyError{Instances: busy}
		}
		event.Acknowledged, event.LeftAt = true, time.Now()
		return d.setEvents(put(left, event))
	})
}

// put adds an event, or replaces what is known of it.
func put(events []Event, e Event) []Event {
	i := find(events, e.ID)
	if i < 0 {
		return append(events, e)
	}
	e.LeftAt = events[i].LeftAt
	e.Acknowledged = e.Acknowledged || events[i].Acknowledged && !e.NotBefore.After(events[i].NotBefore)
	events[i] = e
	return events
}

func find(events []Event, id string) int {
	return slices.IndexFunc(events, func(e Event) bool { return strings.EqualFold(e.ID, id) })
}
