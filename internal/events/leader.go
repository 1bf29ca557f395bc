package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/preempt"
)

const (
	// freshFor is how old a heartbeat may be to count.
	freshFor = 3 * presence.Every

	// retryAcknowledge is the wait before the workers that an acknowledgement waits for
	// are asked again.
	retryAcknowledge = 2 * time.Second
)

// askOtherVMs returns nil when the workers of all VMs that e names are ready for it.
func (r *Responder) askOtherVMs(ctx context.Context, e preempt.Event) error {
	var seen []presence.Listed
	for _, vm := range e.Resources {
		found, err := r.Presences.ListVM(ctx, vm)
		if err != nil {
			return err
		}
		seen = append(seen, found...)
	}
	if whom := awaited(e, seen); len(whom) > 0 {
		return errors.New(strings.Join(whom, "; "))
	}
	return nil
}

// awaited returns whom the acknowledgement of e waits for, in words, given the
// heartbeats of all workers of the VMs that it names. It is empty if e may be
// acknowledged.
//
// Every worker with a fresh heartbeat must list this event as ready, and every VM must
// have such a worker. A VM without one is not ours, or its
// workers are dead or too old to report: then the event starts at its own time. A
// worker that has been silent for longer has no message whose visibility timeout
// would not expire anyway.
func awaited(e preempt.Event, seen []presence.Listed) (whom []string) {
	for i, vm := range e.Resources {
		if slices.ContainsFunc(e.Resources[:i], func(other string) bool { return strings.EqualFold(other, vm) }) {
			continue
		}
		fresh := false
		for _, p := range seen {
			if !strings.EqualFold(p.VM, vm) || p.Age > freshFor {
				continue
			}
			fresh = true
			if !readyList(p.Ready).covers(e) {
				whom = append(whom, fmt.Sprintf("worker %s of VM %s is not ready", p.Worker, vm))
			}
		}
		if !fresh {
			whom = append(whom, fmt.Sprintf("no worker of VM %s has been heard of for %s", vm, freshFor))
		}
	}
	return whom
}
