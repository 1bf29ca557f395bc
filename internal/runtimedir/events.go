package runtimedir

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

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
