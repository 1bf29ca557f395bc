package operate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/text/spelling"
)

const (
	// fleetPoll is how often heartbeats are listed while waiting for workers.
	fleetPoll = 3 * time.Second
)

// ErrNotFollowed means that workers did not follow a request in time.
var ErrNotFollowed = errors.New("not all workers did it in time")

// Fleet asks the workers of a deployment to stop claiming, to drain, or to work again,
// through the control document.
type Fleet struct {
	Control *control.Store
	Workers *presence.Store

	// Name and Reason are shown in the workers' logs. Reason is optional.
	Name, Reason string

	// Reset replaces a damaged control document. A copy of it is kept.
	Reset bool

	// KnownOnly refuses to pause a kind, or to quarantine a VM, that no heartbeat names. It
	// costs one more listing of the heartbeats.
	KnownOnly bool
}

// ErrUnknownName means that no heartbeat names a VM or a kind.
var ErrUnknownName = errors.New("no heartbeat names it")

// checkKinds returns an error that wraps [ErrUnknownName] if no worker has a kind. A worker
// that does not list its kinds may have any.
func (f *Fleet) checkKinds(ctx context.Context, kinds []string) error {
	all, err := f.Workers.List(ctx)
	if err != nil {
		return err
	}
	var known []string
	for _, p := range all {
		known = append(known, p.Kinds...)
	}
	for _, kind := range kinds {
		if !slices.ContainsFunc(all, func(p presence.Listed) bool { return p.HasKind(kind) != presence.HasNot }) {
			return unknownName("no worker has kind", kind, known)
		}
	}
	return nil
}

// checkVMs returns an error that wraps [ErrUnknownName] if no worker has written a heartbeat
// on a VM.
func (f *Fleet) checkVMs(ctx context.Context, vms []string) error {
	all, err := f.Workers.List(ctx)
	if err != nil {
		return err
	}
	var known []string
	for _, p := range all {
		if p.VM != "" {
			known = append(known, p.VM)
		}
	}
	for _, vm := range vms {
		if !slices.ContainsFunc(all, func(p presence.Listed) bool { return strings.EqualFold(p.VM, vm) || control.IsOn(p.Worker, vm) }) {
			return unknownName("no worker has a heartbeat of VM", vm, known)
		}
	}
	return nil
}

func unknownName(what, name string, known []string) error {
	return &unknownNameError{text: what + " " + strconv.Quote(name) + didYouMean(name, known)}
}

// unknownNameError is an [ErrUnknownName] with a text that is complete.
type unknownNameError struct{ text string }

func (e *unknownNameError) Error() string { return e.text }

func (e *unknownNameError) Is(target error) bool { return target == ErrUnknownName }

// didYouMean names the most similar known name, in parentheses; empty if none is similar.
func didYouMean(name string, known []string) string {
	nearest := spelling.Nearest(name, known)
	if nearest == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %q?)", nearest)
}

// Asked is a request to workers: its revision, and the workers that it concerns.
type Asked struct {
	// Revision is the control document's revision.
	Revision int

	// Damaged is the name of the blob that keeps the damaged control document that was
	// replaced; empty if none was.
	Damaged string

	// Workers are the names of those concerned that run, as far as their heartbeats
	// show. Unsteered are the workers among them that cannot read the control
	// document.
	Workers, Unsteered []string

	done func(presence.Listed) bool // whether a worker has followed the request
}

// Pause makes all workers stop claiming messages, or claim again, or with kinds stop
// starting jobs of these kinds. Running jobs continue. An end without kinds ends all
// pauses.
func (f *Fleet) Pause(ctx context.Context, kinds []string, paused bool) (Asked, error) {
	if len(kinds) > 0 {
		return f.pauseKinds(ctx, kinds, paused)
	}
	return f.ask(ctx, nil, func(d *control.Document, now time.Time) (bool, error) {
		changed := (d.Pause != nil) != paused
		switch {
		case !paused:
			changed = changed || len(d.PausedKinds) > 0
			d.Pause, d.PausedKinds = nil, nil
		case changed:
			d.Pause = f.mark(now)
		}
		return changed, nil
	}, func(presence.Listed) bool { return true })
}

func (f *Fleet) pauseKinds(ctx context.Context, kinds []string, paused bool) (Asked, error) {
	for _, kind := range kinds {
		if err := jobid.ValidateKind(kind); err != nil {
			return Asked{}, err
		}
	}
	if f.KnownOnly && paused {
		if err := f.checkKinds(ctx, kinds); err != nil {
			return Asked{}, err
		}
	}
	return f.ask(ctx, nil, func(d *control.Document, now time.Time) (changed bool, err error) {
		for _, kind := range kinds {
			switch _, is := d.PausedKinds[kind]; {
			case !is && !paused:
				return false, fmt.Errorf("kind %q is not paused%s", kind, didYouMean(kind, slices.Collect(maps.Keys(d.PausedKinds))))
			case !paused:
				delete(d.PausedKinds, kind)
				changed = true
			case !is:
				d.PausedKinds = with(d.PausedKinds, kind, *f.mark(now))
				changed = true
			}
		}
		if len(d.PausedKinds) > control.MaxPausedKinds {
			return false, fmt.Errorf("more than %d kinds would be paused: pause all claiming", control.MaxPausedKinds)
		}
		return changed, nil
	}, func(presence.Listed) bool { return true })
}

// Quarantine makes all workers on VMs release their jobs and idle, also workers that
// start there later, until [Fleet.Resume]. A VM without a heartbeat can be quarantined
// before its first worker starts.
func (f *Fleet) Quarantine(ctx context.Context, vms []string) (Asked, error) {
	if f.KnownOnly {
		if err := f.checkVMs(ctx, vms); err != nil {
			return Asked{}, err
		}
	}
	return f.ask(ctx, vms, func(d *control.Document, now time.Time) (changed bool, err error) {
		for _, vm := range vms {
			if _, is := d.Quarantine[vm]; !is {
				d.Quarantine, changed = with(d.Quarantine, vm, *f.mark(now)), true
			}
		}
		if len(d.Quarantine) > control.MaxQuarantines {
			return false, fmt.Errorf("more than %d VMs would be quarantined: resume some that are gone", control.MaxQuarantines)
		}
		return changed, nil
	}, isIdle)
}

func with(marks map[string]control.Mark, name string, m control.Mark) map[string]control.Mark {
	if marks == nil {
		marks = map[string]control.Mark{}
	}
	marks[name] = m
	return marks
}

// isIdle reports whether a worker that is drained has released its jobs.
func isIdle(p presence.Listed) bool { return p.State == lifecycle.Shutdown.String() && p.Count == 0 }

// Drain makes workers release their jobs and idle until they are resumed. They are
// named by their own names, or by their VM's name. No names means all workers, also
// workers that start later. They may finish their jobs first, for at most so long; 0 drains at once.
func (f *Fleet) Drain(ctx context.Context, names []string, finish time.Duration) (Asked, error) {
	workers, err := f.named(ctx, names)
	if err != nil {
		return Asked{}, err
	}
	return f.ask(ctx, workers, func(d *control.Document, now time.Time) (changed bool, err error) {
		mark := f.mark(now)
		if finish > 0 {
			mark.FinishBy = now.Add(finish)
		}
		stands := func(before control.Mark) bool { return before.FinishBy.IsZero() || finish > 0 }
		if len(names) == 0 {
			if changed = d.DrainAll == nil || !stands(*d.DrainAll); changed {
				d.DrainAll = mark
			}
			return changed, nil
		}
		for _, worker := range workers {
			if before, ok := d.Drains[worker]; ok && stands(before) {
				continue
			}
			d.Drains, changed = with(d.Drains, worker, *mark), true
		}
		if len(d.Drains) > control.MaxDrains {
			return false, fmt.Errorf("more than %d workers would be drained by name: drain all of them, or resume some that are gone",
				control.MaxDrains)
		}
		return changed, nil
	}, isIdle)
}

// Resume ends drains of workers and quarantines of VMs, by the names of workers or VMs. No names
// means all drains; a quarantine is of a sick VM, and ends only by its name.
func (f *Fleet) Resume(ctx context.Context, names []string) (Asked, error) {
	return f.ask(ctx, names, func(d *control.Document, _ time.Time) (bool, error) {
		if len(names) == 0 {
			changed := d.DrainAll != nil || len(d.Drains) > 0
			d.DrainAll, d.Drains = nil, nil
			return changed, nil
		}
		for _, name := range names {
			before := len(d.Quarantine) + len(d.Drains)
			maps.DeleteFunc(d.Quarantine, func(vm string, _ control.Mark) bool { return strings.EqualFold(vm, name) })
			if len(d.Quarantine)+len(d.Drains) == before && d.DrainAll != nil {
				return false, errors.New("all workers are drained together: resume all of them")
			}
			maps.DeleteFunc(d.Drains, func(worker string, _ control.Mark) bool { return control.IsOn(worker, name) })
			if len(d.Quarantine)+len(d.Drains) == before {
				return false, notDrained(d, name)
			}
		}
		return true, nil
	}, func(p presence.Listed) bool { return !presence.Holds(p.Asked) })
}

// notDrained is the error of a resume of a worker or VM that no request drains.
func notDrained(d *control.Document, name string) error {
	for vm := range d.Quarantine {
		if control.IsOn(name, vm) {
			return fmt.Errorf("worker %q is on VM %q, which is quarantined: resume the VM", name, vm)
		}
	}
	known := slices.Concat(slices.Collect(maps.Keys(d.Drains)), slices.Collect(maps.Keys(d.Quarantine)))
	return fmt.Errorf("%q is not drained%s", name, didYouMean(name, known))
}

func (f *Fleet) mark(now time.Time) *control.Mark {
	return &control.Mark{At: now, By: f.Name, Reason: f.Reason}
}

// named returns the workers of those names, and of the VMs of those names.
func (f *Fleet) named(ctx context.Context, names []string) (workers []string, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	all, err := f.Workers.List(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		before := len(workers)
		for _, p := range all {
			if p.Worker == name || p.VM != "" && strings.EqualFold(p.VM, name) {
				workers = append(workers, p.Worker)
			}
		}
		if len(workers) == before {
			var known []string
			for _, p := range all {
				known = append(known, p.Worker, p.VM)
			}
			return nil, fmt.Errorf("there is no worker or VM %q%s; spotctl workers lists them", name, didYouMean(name, known))
		}
	}
	return workers, nil
}

// ask changes the control document, and returns which workers it concerns: the workers
// of names, or all.
func (f *Fleet) ask(ctx context.Context, names []string, change func(*control.Document, time.Time) (bool, error),
	done func(presence.Listed) bool) (Asked, error) {
	var d control.Document
	var err error
	a := Asked{done: done}
	if f.Reset {
		d, a.Damaged, err = f.Control.Repair(ctx, change)
	} else {
		d, err = f.Control.Edit(ctx, change)
	}
	if err != nil {
		return Asked{}, err
	}
	a.Revision = d.Revision
	all, err := f.Workers.List(ctx)
	if err != nil {
		return a, fmt.Errorf("the workers were asked, but not listed: %w", err)
	}
	for _, p := range all {
		concerned := len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return control.IsOn(p.Worker, name) })
		if !isAlive(p) || !concerned {
			continue
		}
		a.Workers = append(a.Workers, p.Worker)
		if !p.Steered {
			a.Unsteered = append(a.Unsteered, p.Worker)
		}
	}
	return a, nil
}

func isAlive(p presence.Listed) bool {
	return p.Age <= presence.SilentAfter && p.State != lifecycle.Stopped.String()
}

// Wait waits until every worker that was asked has done it, or is gone, and calls
// report with those left whenever it looks. The error wraps [ErrNotFollowed] if ctx
// ends before.
func (f *Fleet) Wait(ctx context.Context, a Asked, report func(left []string)) error {
	left := a.Workers
	for {
		all, err := f.Workers.List(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if err == nil {
			left = nil
			for _, p := range all {
				if slices.Contains(a.Workers, p.Worker) && isAlive(p) && (!p.Steered || p.Control < a.Revision || !a.done(p)) {
					left = append(left, p.Worker)
				}
			}
			report(left)
			if len(left) == 0 {
				return nil
			}
		}
		if retry.Sleep(ctx, fleetPoll) != nil {
			return fmt.Errorf("%w: %s", ErrNotFollowed, strings.Join(left, ", "))
		}
	}
}
