package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/stage"
	"github.com/spotworker/spotworker/internal/lab/text"
)

// observeEvery is the longest time between two looks at the history.
const observeEvery = 20 * time.Millisecond

// script is the state of the incidents. It belongs to the goroutine of play.
type script struct {
	pending   []Incident
	last      time.Time          // when the last incident happened
	evictions []eviction         // announced and not ended
	frozen    []*stage.VM        // not thawed yet
	lost      map[string]lostJob // by job id: jobs of lost VMs that wait for another
	reported  int                // delivery ends that were narrated

	progressAt   time.Time // when progress was narrated last
	progressDone int       // how many jobs were committed then
}

// lostJob is a job that a lost VM was working on.
type lostJob struct {
	activeJob

	vm    string
	since time.Time // the kill, the freeze, or the announcement of the eviction
	cause string    // which of them, for people
}

// play starts the fleet, lets the incidents happen, and waits until all jobs have
// an outcome. It narrates what happens.
func (d *demo) play(ctx context.Context) error {
	if err := d.startFleet(); err != nil {
		return err
	}
	ticker := time.NewTicker(observeEvery)
	defer ticker.Stop()
	for {
		var lines []string
		var next func() error
		var over bool
		changed := d.look(func(h *history) {
			lines, next, over = d.narrate(h), d.next(h), d.isOver(h)
		})
		for _, line := range lines {
			d.narrator.Say("%s", line)
		}
		switch {
		case next != nil:
			if err := next(); err != nil {
				return err
			}
			continue
		case over:
			d.narrator.Say("All %s are committed, and the queue is empty.", text.Plural(len(d.files), "job"))
			return nil
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-ctx.Done():
			return d.waitingFor(ctx)
		}
	}
}

// waitingFor returns why ctx ended, and which incident did not happen.
func (d *demo) waitingFor(ctx context.Context) error {
	cause := context.Cause(ctx)
	if len(d.script.pending) == 0 {
		return cause
	}
	return fmt.Errorf("no worker got to the middle of a job for %s: %w", d.script.pending[0], cause)
}

func (d *demo) startFleet() error {
	var started []string
	for range d.config.Workers {
		vm, err := d.newVM()
		if err != nil {
			return err
		}
		started = append(started, vm.Name)
	}
	d.narrator.Say("%s started: one worker process each, %s at a time, a checkpoint every %s.",
		strings.Join(started, ", "), text.Plural(d.config.JobsAtOnce, "job"), d.config.CheckpointInterval)
	return nil
}

func (d *demo) newVM() (*stage.VM, error) {
	now := time.Now()
	vm, err := d.stage.Start(d.config.JobsAtOnce, false)
	if err != nil {
		return nil, err
	}
	d.add(func(h *history) { h.born[vm.Name] = now })
	d.vms = append(d.vms, vm)
	return vm, nil
}

// remove removes a VM whose worker has ended.
func (d *demo) remove(vm *stage.VM) {
	d.stage.Remove(vm)
	d.vms = slices.DeleteFunc(d.vms, func(other *stage.VM) bool { return other == vm })
}

// next returns what to do now, nil for nothing. The caller holds the recorder's
// lock here, but not when it calls the returned function.
func (d *demo) next(h *history) func() error {
	for i, e := range d.script.evictions {
		// A worker logs the stop and the end of its drain in two goroutines, in either order.
		drain := h.drains[e.vm.Name]
		if !drain.ended.IsZero() && !drain.stopped.IsZero() || !time.Now().Before(e.notBefore) {
			return func() error { return d.removeEvicted(i, drain) }
		}
	}
	for i, vm := range d.script.frozen {
		if !d.hasLostJobs(vm.Name) {
			return func() error { return d.thaw(i) }
		}
	}
	if len(d.script.pending) == 0 {
		return nil
	}
	vm, jobs := d.victim(h, d.script.pending[0])
	if vm == nil {
		return nil
	}
	return func() error { return d.strike(vm, jobs) }
}

// hasLostJobs reports whether jobs of a lost VM wait for another worker.
func (d *demo) hasLostJobs(vm string) bool {
	for _, job := range d.script.lost {
		if job.vm == vm {
			return true
		}
	}
	return false
}

// isOver reports whether every job has an outcome, all incidents have happened,
// and workers that were frozen have stopped working on jobs of others.
func (d *demo) isOver(h *history) bool {
	if len(d.script.pending)+len(d.script.evictions)+len(d.script.frozen) > 0 || h.committed() < len(h.good()) || !h.isFenced() {
		return false
	}
	store := d.stage.Local.Storage
	names := d.stage.Names
	return len(store.Messages(names.First))+len(store.Messages(names.Queue)) == 0 && len(store.Messages(names.Poison)) >= len(h.bad)
}
