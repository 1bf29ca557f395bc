package vmshare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// Event is a scheduled event for which a worker of this VM is ready: it has saved or
// released its jobs, as the event requires. After a release, no worker claims messages
// until the event is over, since it may start at any moment.
type Event struct {
	// ID is the service's id, compared without case.
	ID string `json:"id"`

	// NotBefore is the event's NotBefore; zero if none. If it is postponed, the workers
	// have to get ready again.
	NotBefore time.Time `json:"not_before"`

	// Ready are the instances that are ready for it.
	Ready []string `json:"ready"`

	// Acknowledged reports that a worker of this VM has acknowledged it, or is about to:
	// instance By, which said so at ReservedAt.
	Acknowledged bool      `json:"acknowledged"`
	By           string    `json:"by,omitempty"`
	ReservedAt   time.Time `json:"reserved_at,omitzero"`

	// At is when the first worker was ready for it.
	At time.Time `json:"at"`
}

// ErrTaken is the error of [Dir.Acknowledge] if another worker of this VM has acknowledged
// the event, or is about to.
var ErrTaken = errors.New("another worker of this VM acknowledges the event")

// BusyError names the workers of this VM that are not ready for an event yet.
type BusyError struct{ Instances []string }

func (e *BusyError) Error() string {
	return "workers of this VM are not done yet: instance " + strings.Join(e.Instances, ", ")
}

// BeginWork records that this worker has jobs, or may claim some, until done is called. It
// returns the events for which workers of this VM are ready, so that the caller can decide
// whether to claim. The caller must call done, even after an error.
func (d *Dir) BeginWork(ctx context.Context) (done func(), known []Event, err error) {
	done = func() {}
	err = d.exclusively(ctx, func() error {
		l, err := take(d.file(workPrefix + d.Instance))
		if err != nil {
			return fmt.Errorf("runtime folder: %w", err)
		}
		done = l.release
		known, err = d.events()
		return err
	})
	return done, known, err
}

// Ready records that this worker is ready for the events. Call it before the worker reports
// that anywhere else.
func (d *Dir) Ready(ctx context.Context, events []Event) error {
	return d.exclusively(ctx, func() error {
		known, err := d.events()
		if err != nil {
			return err
		}
		for _, e := range events {
			e.Ready, e.At = []string{d.Instance}, time.Now()
			known = put(known, e)
		}
		return d.setEvents(known)
	})
}

// Acknowledge reserves the acknowledgement of an event for this worker, which must be ready
// for it. It succeeds if no other worker of this VM has reserved it and all of them are
// ready. A reservation ends with its worker's process, or after 75 s: the worker may be
// frozen, and a second acknowledgement is harmless. With handedOver, for an event that ends all work on the VM, they are ready when
// none has a job; for any other event, when each that has jobs has called Ready.
// The error is a [BusyError], [ErrTaken], or the folder's. Without an error the event
// counts as acknowledged.
func (d *Dir) Acknowledge(ctx context.Context, event Event, handedOver bool) error {
	return d.exclusively(ctx, func() error {
		known, err := d.events()
		if err != nil {
			return err
		}
		event.Ready, event.At = []string{d.Instance}, time.Now()
		known = put(known, event)
		e := &known[find(known, event.ID)]
		if reserved, err := d.isReserved(*e); err != nil {
			return err
		} else if reserved {
			return ErrTaken
		}
		busy, err := d.held(workPrefix)
		if err != nil {
			return err
		}
		if !handedOver {
			busy = slices.DeleteFunc(busy, func(name string) bool { return slices.Contains(e.Ready, name) })
		}
		if len(busy) > 0 {
			return &BusyError{Instances: busy}
		}
		e.Acknowledged, e.By, e.ReservedAt = true, d.Instance, time.Now()
		return d.setEvents(known)
	})
}

// isReserved reports whether another worker acknowledges e. The caller holds workersFile.
func (d *Dir) isReserved(e Event) (bool, error) {
	switch {
	case !e.Acknowledged:
		return false, nil
	case time.Since(e.ReservedAt) > reservationLimit:
		return false, nil
	case e.By == d.Instance:
		return !e.ReservedAt.Before(d.opened), nil // before that, by an earlier process
	}
	if err := ValidateInstance(e.By); err != nil {
		return false, nil //nolint:nilerr // no worker has such a name
	}
	free, err := isFree(d.file(instancePrefix + e.By))
	if err != nil {
		return false, fmt.Errorf("runtime folder: %w", err)
	}
	return !free, nil
}

// put adds an event, or updates the event with its id. If it was postponed, it replaces
// the old one.
func put(events []Event, e Event) []Event {
	i := find(events, e.ID)
	if i < 0 {
		return append(events, e)
	}
	before := events[i]
	if e.NotBefore.After(before.NotBefore) {
		events[i] = e
		return events
	}
	before.NotBefore = e.NotBefore
	if !slices.Contains(before.Ready, e.Ready[0]) {
		before.Ready = append(before.Ready, e.Ready[0])
	}
	events[i] = before
	return events
}

func find(events []Event, id string) int {
	return slices.IndexFunc(events, func(e Event) bool { return strings.EqualFold(e.ID, id) })
}

const (
	eventsFile = "events.json"

	// forgetAfter is how long an event is kept: far longer than one takes to start and
	// end.
	forgetAfter = 24 * time.Hour

	// reservationLimit is longer than all tries of an acknowledgement together.
	reservationLimit = 75 * time.Second
)

// events returns the events for which workers of this VM are ready, and none from a damaged
// file, which no crash of a worker can cause. The caller of this and of setEvents holds
// workersFile.
func (d *Dir) events() ([]Event, error) {
	content, err := os.ReadFile(d.file(eventsFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("runtime folder: %w", err)
	}
	var left []Event
	if err := json.Unmarshal(content, &left); err != nil {
		d.Log.Warn("list of events that workers are ready for is damaged; it starts empty", "file", d.file(eventsFile), "error", err)
		return nil, nil
	}
	return slices.DeleteFunc(left, func(e Event) bool { return time.Since(e.At) > forgetAfter }), nil
}

// setEvents replaces the list atomically.
func (d *Dir) setEvents(left []Event) error {
	content, err := json.Marshal(left)
	if err != nil {
		return fmt.Errorf("runtime folder: %w", err)
	}
	fresh := d.file(eventsFile + ".new")
	if err := os.WriteFile(fresh, content, 0o600); err != nil {
		return fmt.Errorf("runtime folder: %w", err)
	}
	if err := os.Rename(fresh, d.file(eventsFile)); err != nil {
		return fmt.Errorf("runtime folder: %w", err)
	}
	return nil
}
