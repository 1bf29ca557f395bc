package runtimedir

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

// Event is a scheduled event that a worker of this VM is done for: it has saved,
// or handed over, what the event calls for. In the second case no worker takes
// work until the event is over, since it may be let go ahead at any moment.
type Event struct {
	// ID is the service's name for it, compared without case.
	ID string `json:"id"`

	// NotBefore is the time that the event had; zero if none. One that was put off
	// to a later time is another matter.
	NotBefore time.Time `json:"not_before"`

	// Ready are the instances that are done for it.
	Ready []string `json:"ready"`

	// Acknowledged says that a worker of this VM lets the event go ahead.
	Acknowledged bool `json:"acknowledged"`

	// At is when the first worker was done for it.
	At time.Time `json:"at"`
}

// ErrTaken is the error of [Dir.Acknowledge] when another worker of this VM has
// acknowledged the event, or is about to.
var ErrTaken = errors.New("another worker of this VM acknowledges the event")

// BusyError says which workers of this VM are not done for an event yet.
type BusyError struct{ Instances []string }

func (e *BusyError) Error() string {
	return "workers of this VM are not done yet: instance " + strings.Join(e.Instances, ", ")
}

// BeginWork says that this worker has work, or may get it, until done is called,
// and returns the events that workers of this VM are done for. If this worker
// must not take work under one of them, it finds that out itself. Done must be
// called whatever the error is.
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

// Ready records events that this worker is done for, before it says so to anybody.
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

// Acknowledge asks whether this worker is to acknowledge an event that it is done
// for: no other has, and all workers of this VM are done for it. That means for an
// event that ends what runs on the VM, with handedOver, that none has work any
// more; for any other, that each that has work has recorded that it is ready. The
// error is a [BusyError], [ErrTaken], or that of the folder; without one the event
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
		if e.Acknowledged {
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
		e.Acknowledged = true
		return d.setEvents(known)
	})
}

// put adds what is known of an event. What was known of one that was put off since
// does not count any more.
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

	// forgetAfter is how long an event is remembered: far longer than one
	// takes to start and end.
	forgetAfter = 24 * time.Hour
)

// events returns the events that workers of this VM are done for. A file that is
// damaged, which no end of a worker can cause, holds none. The caller of this and
// of setEvents holds workersFile.
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
		d.Log.Warn("list of events that workers are done for is damaged; it begins anew", "file", d.file(eventsFile), "error", err)
		return nil, nil
	}
	return slices.DeleteFunc(left, func(e Event) bool { return time.Since(e.At) > forgetAfter }), nil
}

// setEvents replaces the list in one step.
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
