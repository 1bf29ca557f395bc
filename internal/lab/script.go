package lab

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/imds"
)

// scaleSet is the name of the pretended scale set; its VMs are spot_1, spot_2 ….
const scaleSet = "spot"

// vmName is the name of a VM of the scale set, counted from 1.
func vmName(n int) string { return fmt.Sprintf("%s_%d", scaleSet, n) }

// observeEvery is how often it is looked whether it is time for something.
const observeEvery = 20 * time.Millisecond

// director is what the script still has to do. All of it belongs to the
// goroutine of play.
type director struct {
	pending   []Incident
	last      time.Time       // the last incident
	evictions []eviction      // announced, and not over
	ice       []*VM           // that are frozen
	owed      map[string]debt // by job id: what a lost VM had in hand
	told      int             // closings that were told already
}

// debt is a job that a lost VM had in hand, until another goes on with it.
type debt struct {
	vm    string
	since time.Time // the death, the freeze, or the announcement of the eviction
	what  string    // which of them, for people
	InHand
}

// play starts the fleet, lets the incidents happen and waits until all jobs have
// come to their ends. It tells what happens on the way.
func (d *demo) play(ctx context.Context) error {
	if err := d.startFleet(); err != nil {
		return err
	}
	ticker := time.NewTicker(observeEvery)
	defer ticker.Stop()
	progress := progressTeller{demo: d}
	for {
		var news []string
		var next func() error
		var over bool
		changed := d.ledger.look(func(f *facts) {
			news, next, over = d.news(f), d.next(f), d.over(f)
			news = append(news, progress.due(f)...)
		})
		for _, line := range news {
			d.say("%s", line)
		}
		switch {
		case next != nil:
			if err := next(); err != nil {
				return err
			}
			continue
		case over:
			d.say("All %s are committed, and the queue is empty.", plural(len(d.files), "job"))
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

// waitingFor says what the script was waiting for when its time was over.
func (d *demo) waitingFor(ctx context.Context) error {
	cause := context.Cause(ctx)
	if len(d.pending) == 0 {
		return cause
	}
	return fmt.Errorf("no worker got to the middle of a job for %s: %w", d.pending[0], cause)
}

func (d *demo) startFleet() error {
	var started []string
	for range d.Workers {
		vm, err := d.newVM()
		if err != nil {
			return err
		}
		started = append(started, vm.Name)
	}
	d.say("%s started: one worker process each, %s at once, a checkpoint every %s.",
		strings.Join(started, ", "), plural(d.JobsAtOnce, "job"), d.CheckpointInterval)
	return nil
}

func (d *demo) newVM() (*VM, error) {
	d.number++
	name := vmName(d.number)
	d.local.AddVM(imds.VM{Name: name, ScaleSet: scaleSet})
	return d.fleet.Start(name)
}

// next returns what is to be done now, nil if nothing. What it returns is to be
// called without the ledger's lock.
func (d *demo) next(f *facts) func() error {
	for i, e := range d.evictions {
		if halt := f.halts[e.vm.Name]; !halt.drained.IsZero() || !time.Now().Before(e.notBefore) {
			return func() error { return d.takeAway(i, halt) }
		}
	}
	for i, vm := range d.ice {
		if !d.owes(vm.Name) {
			return func() error { return d.thaw(i) }
		}
	}
	if len(d.pending) == 0 {
		return nil
	}
	vm, jobs := d.victim(f, d.pending[0])
	if vm == nil {
		return nil
	}
	return func() error { return d.strike(vm, jobs) }
}

// owes reports whether jobs of a lost VM wait for another to go on with them.
func (d *demo) owes(vm string) bool {
	for _, debt := range d.owed {
		if debt.vm == vm {
			return true
		}
	}
	return false
}

// over reports whether nothing is left to wait for: every job has its end, the
// script is played, and workers that were frozen have let their jobs go.
func (d *demo) over(f *facts) bool {
	if len(d.pending)+len(d.evictions)+len(d.ice) > 0 || f.committed() < len(f.good()) || !f.fenced() {
		return false
	}
	store, names := d.local.Storage, d.ledger.names
	return len(store.Messages(names.Queue)) == 0 && len(store.Messages(names.Poison)) >= len(f.odd)
}

// fenced reports whether every worker that was frozen has let go of the jobs
// that others took over.
func (f *facts) fenced() bool {
	for vm, fate := range f.fates {
		if fate.kind != frozen {
			continue
		}
		for _, s := range f.held(vm, fate.at) {
			_, taken := f.resumed(s.job, vm, fate.at)
			if _, closed := f.closed(s, fate.thawed); taken && !closed {
				return false
			}
		}
	}
	return true
}
