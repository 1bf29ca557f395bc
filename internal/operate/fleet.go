package operate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/control"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/presence"
	"github.com/spotworker/spotworker/internal/retry"
)

const (
	// aliveFor is how old the heartbeat of a worker that still runs can be.
	aliveFor = time.Minute

	// fleetPoll is how often heartbeats are listed while waiting for workers.
	fleetPoll = 3 * time.Second
)

// ErrNotFollowed means that workers did not do in time what was asked of them.
var ErrNotFollowed = errors.New("not all workers did it in time")

// Fleet asks the workers of a deployment to stop claiming, to drain, or to work again,
// through the control document.
type Fleet struct {
	Control *control.Store
	Workers *presence.Store

	// Name and Reason are shown in the workers' logs. Reason is optional.
	Name, Reason string
}

// Asked is what was asked of which workers.
type Asked struct {
	// Revision is that of the control document.
	Revision int

	// Workers are the names of those concerned that run, as far as their heartbeats
	// show. Older are those among them that do not read the control document: they
	// are of an older version, or could not read it.
	Workers, Older []string

	done func(presence.Listed) bool // whether a worker has done what was asked
}

// Pause makes all workers stop claiming messages, or claim again. Running jobs
// continue.
func (f *Fleet) Pause(ctx context.Context, paused bool) (Asked, error) {
	return f.ask(ctx, nil, func(d *control.Document, now time.Time) (bool, error) {
		changed := (d.Pause != nil) != paused
		switch {
		case !paused:
			d.Pause = nil
		case changed:
			d.Pause = f.mark(now)
		}
		return changed, nil
	}, func(presence.Listed) bool { return true })
}

// Drain makes workers release their jobs and idle until they are resumed. They are
// named by their own names, or by that of their VM; none means all, also those that
// start later.
func (f *Fleet) Drain(ctx context.Context, names []string) (Asked, error) {
	workers, err := f.named(ctx, names)
	if err != nil {
		return Asked{}, err
	}
	return f.ask(ctx, workers, func(d *control.Document, now time.Time) (changed bool, err error) {
		if len(names) == 0 {
			changed = d.DrainAll == nil
			if changed {
				d.DrainAll = f.mark(now)
			}
			return changed, nil
		}
		for _, worker := range workers {
			if _, ok := d.Drains[worker]; ok {
				continue
			}
			if d.Drains == nil {
				d.Drains = map[string]control.Mark{}
			}
			d.Drains[worker], changed = *f.mark(now), true
		}
		if len(d.Drains) > control.MaxDrains {
			return false, fmt.Errorf("more than %d workers would be drained by name: drain all of them, or resume some that are gone", control.MaxDrains)
		}
		return changed, nil
	}, func(p presence.Listed) bool { return p.State == lifecycle.Shutdown.String() && p.Count == 0 })
}

// Resume lets drained workers work again; none means all.
func (f *Fleet) Resume(ctx context.Context, names []string) (Asked, error) {
	var workers []string
	return f.ask(ctx, names, func(d *control.Document, _ time.Time) (bool, error) {
		if len(names) == 0 {
			changed := d.DrainAll != nil || len(d.Drains) > 0
			d.DrainAll, d.Drains = nil, nil
			return changed, nil
		}
		if d.DrainAll != nil {
			return false, errors.New("all workers are drained together: resume all of them")
		}
		workers = workers[:0]
		for _, name := range names {
			before := len(workers)
			for worker := range d.Drains {
				if isNamed(worker, name) {
					workers = append(workers, worker)
				}
			}
			if len(workers) == before {
				return false, fmt.Errorf("worker %q is not drained", name)
			}
		}
		for _, worker := range workers {
			delete(d.Drains, worker)
		}
		return true, nil
	}, func(p presence.Listed) bool { return p.Asked != presence.AskedDrain })
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
			return nil, fmt.Errorf("there is no worker or VM %q; names are those of the heartbeats in the container of workers", name)
		}
	}
	slices.Sort(workers)
	return slices.Compact(workers), nil
}

// ask changes the control document, and returns which workers it concerns: those of
// names, or all.
func (f *Fleet) ask(ctx context.Context, names []string, change func(*control.Document, time.Time) (bool, error), done func(presence.Listed) bool) (Asked, error) {
	d, err := f.Control.Edit(ctx, change)
	if err != nil {
		return Asked{}, err
	}
	a := Asked{Revision: d.Revision, done: done}
	all, err := f.Workers.List(ctx)
	if err != nil {
		return a, fmt.Errorf("the workers were asked, but not listed: %w", err)
	}
	for _, p := range all {
		concerned := len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return isNamed(p.Worker, name) })
		if !isAlive(p) || !concerned {
			continue
		}
		a.Workers = append(a.Workers, p.Worker)
		if !p.Steered {
			a.Older = append(a.Older, p.Worker)
		}
	}
	return a, nil
}

// isNamed reports whether name is that of the worker or of its VM: a worker is called
// <vm>-<first 8 of vmId>-<instance>, or <host>-<instance> without a metadata service.
func isNamed(worker, name string) bool {
	if worker == name {
		return true
	}
	machine := worker[:max(strings.LastIndexByte(worker, '-'), 0)]
	const shortID = 8
	if i := strings.LastIndexByte(machine, '-'); i >= 0 && len(machine)-i-1 == shortID {
		machine = machine[:i]
	}
	return strings.EqualFold(machine, name)
}

func isAlive(p presence.Listed) bool {
	return p.Age < aliveFor && p.State != lifecycle.Stopped.String()
}

// Wait waits until every worker that was asked has done it, or is gone, and calls
// report with those left whenever it looks. The error wraps [ErrNotFollowed] if ctx
// ends before.
func (f *Fleet) Wait(ctx context.Context, a Asked, report func(left []string)) error {
	for {
		all, err := f.Workers.List(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		var left []string
		for _, p := range all {
			if slices.Contains(a.Workers, p.Worker) && isAlive(p) && (!p.Steered || p.Control < a.Revision || !a.done(p)) {
				left = append(left, p.Worker)
			}
		}
		if err == nil {
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
