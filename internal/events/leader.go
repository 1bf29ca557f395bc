package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
)

const (
	// freshFor is how old a heartbeat may be to count.
	freshFor = 3 * presence.Every

	// retryAcknowledge is the wait before the workers that an acknowledgement waits for
	// are asked again.
	retryAcknowledge = 2 * time.Second

	// retryDeputy is the wait before a worker of another VM than the first looks again
	// whether the first is silent.
	retryDeputy = presence.Every

	// goneAfter is how long a VM's workers are silent before nothing of theirs is left to
	// save: a heartbeat is no longer fresh, and the longest visibility timeout is over.
	goneAfter = freshFor + 5*time.Minute

	// forgottenAfter is how long a silent VM counts as ours.
	forgottenAfter = time.Hour
)

// askOtherVMs returns nil when the workers of all VMs that e names are ready for it, and the
// workers of every VM before this VM are silent: this worker is then the leader, or its deputy. As a rule a deputy makes one call.
func (r *Responder) askOtherVMs(ctx context.Context, e preempt.Event) error {
	self := r.Identity().Name
	var seen []presence.Listed
	for before, i := true, 0; i < len(e.Resources); i++ {
		found, err := r.Presences.ListVM(ctx, e.Resources[i])
		if err != nil {
			return err
		}
		before = before && !strings.EqualFold(e.Resources[i], self)
		if before && slices.ContainsFunc(found, isFresh) {
			return fmt.Errorf("VM %s acknowledges it, while its workers are heard of", e.Resources[i])
		}
		seen = append(seen, found...)
	}
	if whom := awaited(e, seen); len(whom) > 0 {
		return errors.New(strings.Join(whom, "; "))
	}
	return nil
}

func isFresh(p presence.Listed) bool { return p.Age <= freshFor && !isEnded(p) }

func isEnded(p presence.Listed) bool { return p.State == lifecycle.Stopped.String() }

// retryAfter is the wait before the acknowledgement of e is tried again.
func (r *Responder) retryAfter(e preempt.Event) time.Duration {
	if self := r.Identity().Name; namesAlone(e, self) || strings.EqualFold(e.Resources[0], self) {
		return retryAcknowledge
	}
	return retryDeputy
}

// awaited returns whom the acknowledgement of e waits for, in words, given the
// heartbeats of all workers of the VMs that it names. It is empty if e may be
// acknowledged.
//
// Every worker with a fresh heartbeat must list this event as ready. A VM whose workers are
// all silent counts as ready in three cases:
//
//   - The last heartbeat of one of them lists the event: it has left for the event, and takes
//     no work before the event is over, also after a restart.
//   - One of them has ended in order.
//   - All of them have been silent for goneAfter: the visibility timeout of every message of
//     theirs has expired, and unsaved work is lost already.
//
// Any other VM is awaited. Without a heartbeat in the last hour it may not be ours.
func awaited(e preempt.Event, seen []presence.Listed) (whom []string) {
	for i, vm := range e.Resources {
		if slices.ContainsFunc(e.Resources[:i], func(other string) bool { return strings.EqualFold(other, vm) }) {
			continue
		}
		ready, silent := false, forgottenAfter // at most
		for _, p := range seen {
			if !strings.EqualFold(p.VM, vm) {
				continue
			}
			covers := readyList(p.Ready).covers(e)
			if isFresh(p) && !covers {
				whom = append(whom, fmt.Sprintf("worker %s of VM %s is not ready", p.Worker, vm))
			}
			ready = ready || covers || isEnded(p) && p.Age < forgottenAfter
			silent = min(silent, p.Age)
		}
		if !ready && silent > freshFor && (silent < goneAfter || silent == forgottenAfter) {
			whom = append(whom, fmt.Sprintf("no worker of VM %s has been heard of for %s", vm, freshFor))
		}
	}
	return whom
}
