package worker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/presence"
)

const (
	// freshFor is how old a presence may be to count: three beats.
	freshFor = 3 * heartbeatEvery

	// retryAcknowledge is the wait before those that an acknowledgement waits for
	// are asked again.
	retryAcknowledge = 2 * time.Second
)

// awaited returns whom the acknowledgement of e waits for, in words, given the
// presences of all workers of the VMs that it names; nobody, if it may be sent.
//
// Every fresh presence must say that its worker is ready for this event, and every
// VM must have one. A VM without is not ours, or its workers are dead or too old
// to say: nothing speaks for it, so the event starts at its own time. A worker
// that is silent for long has nothing in hand that would not come back anyway.
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

// waitError says whom an acknowledgement waits for.
type waitError struct{ whom []string }

func (e *waitError) Error() string { return strings.Join(e.whom, "; ") }

// askOthers asks the workers of all VMs that e names whether they are ready for it.
func (w *watch) askOthers(ctx context.Context, e preempt.Event) error {
	var seen []presence.Listed
	for _, vm := range e.Resources {
		found, err := w.worker.Workers.ListVM(ctx, vm)
		if err != nil {
			return err
		}
		seen = append(seen, found...)
	}
	if whom := awaited(e, seen); len(whom) > 0 {
		return &waitError{whom}
	}
	return nil
}
