package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/emulator/imds"
)

// scaleSet is the name of the pretended scale set; its VMs are spot_1, spot_2 ….
const scaleSet = "spot"

// debt is a job that a lost VM had in hand, until another goes on with it.
type debt struct {
	vm    string
	since time.Time // the death, or the announcement of the eviction
	what  string    // which of them, for people
	InHand
}

// play starts the fleet, lets the incidents happen and waits for the jobs.
func (d *demo) play(ctx context.Context) error {
	var started []string
	for range d.Workers {
		vm, err := d.newVM()
		if err != nil {
			return err
		}
		started = append(started, vm.Name)
	}
	d.say("%s: one worker process each, %s at once, a checkpoint every %s.",
		strings.Join(started, ", ")+" started", plural(d.JobsAtOnce, "job"), d.CheckpointInterval)
	for _, incident := range d.Incidents {
		var err error
		switch incident {
		case Kill:
			err = d.kill(ctx)
		case Evict:
			err = d.evict(ctx)
		default:
			err = fmt.Errorf("there is no incident %d", incident)
		}
		if err != nil {
			return err
		}
	}
	return d.finish(ctx)
}

func (d *demo) newVM() (*VM, error) {
	d.number++
	name := fmt.Sprintf("%s_%d", scaleSet, d.number)
	d.local.Metadata.AddVM(imds.VM{Name: name, ScaleSet: scaleSet})
	return d.fleet.Start(name)
}

// observeEvery is how often it is looked whether a VM is ready to be a victim.
const observeEvery = 20 * time.Millisecond

// victim waits until a VM is in the middle of a job, and returns it.
func (d *demo) victim(ctx context.Context, middle func(InHand) bool) (*VM, []InHand, error) {
	var victim *VM
	var jobs []InHand
	err := d.ledger.await(ctx, observeEvery, func(f *facts) bool {
		for _, vm := range d.fleet.Running() {
			if jobs = f.inHand(vm.Name); slices.ContainsFunc(jobs, middle) {
				victim = vm
				return true
			}
		}
		return false
	})
	return victim, jobs, err
}

// kill takes a VM away without a word, when one of its jobs has a checkpoint
// and about half an interval's work beyond it.
func (d *demo) kill(ctx context.Context) error {
	vm, jobs, err := d.victim(ctx, func(h InHand) bool {
		return h.Saved > 0 && h.middle(d.CheckpointInterval/2, time.Now())
	})
	if err != nil {
		return fmt.Errorf("no worker got to the middle of a job with a checkpoint: %w", err)
	}
	vm.Kill()
	d.local.Metadata.RemoveVM(vm.Name)
	now := time.Now()
	d.ledger.Killed(vm.Name, now)
	d.say("Sudden death: %s is gone without a word (SIGKILL), with %s in hand: %s.", vm.Name, plural(len(jobs), "job"), listJobs(jobs))
	d.say("Nobody was told. Its messages become visible again 30 s after it claimed or last renewed them; until then the others work on.")
	return d.replace(jobs, debt{vm: vm.Name, since: now, what: "death"})
}

// evict announces an eviction and takes the VM away when its worker has
// drained, or when the notice's time is up.
func (d *demo) evict(ctx context.Context) error {
	vm, jobs, err := d.victim(ctx, func(h InHand) bool { return h.middle(0, time.Now()) })
	if err != nil {
		return fmt.Errorf("no worker got to the middle of a job: %w", err)
	}
	id, err := d.local.Metadata.SimulateEviction(vm.Name)
	if err != nil {
		return err
	}
	event, _ := d.local.Metadata.Event(id)
	d.ledger.Evicted(vm.Name, event.ScheduledAt)
	d.say("Eviction notice: %s is to be taken away (Preempt at its metadata endpoint), with %s in hand: %s.",
		vm.Name, plural(len(jobs), "job"), listJobs(jobs))
	if err := d.drained(ctx, vm, event.NotBefore); err != nil {
		return err
	}
	if at, ok := d.local.Metadata.VM(vm.Name).FirstServed(id); ok {
		d.ledger.Served(vm.Name, at)
	}
	vm.Kill()
	d.local.Metadata.RemoveVM(vm.Name)
	d.local.Metadata.Complete(id)
	return d.replace(jobs, debt{vm: vm.Name, since: event.ScheduledAt, what: "notice"})
}

// drained waits until the worker says that it has nothing in hand any more, but
// not past notBefore.
func (d *demo) drained(ctx context.Context, vm *VM, notBefore time.Time) error {
	errOver := errors.New("notice is over")
	ctx, cancel := context.WithDeadlineCause(ctx, notBefore, errOver)
	defer cancel()
	var halt halt
	err := d.ledger.await(ctx, never, func(f *facts) bool { halt = f.halts[vm.Name]; return !halt.drained.IsZero() })
	switch {
	case errors.Is(err, errOver):
		d.say("%s did not say that it had handed over; its time is up.", vm.Name)
		return nil
	case err != nil:
		return fmt.Errorf("%s did not hand over: %w", vm.Name, err)
	}
	d.say("%s saw the notice, stopped, saved and released its jobs, in %s by its own log. Now the VM is taken away; the jobs wait their turn in the queue.", vm.Name, halt.sinceNotice)
	return nil
}

// replace starts a new VM in the place of the one that left a debt, which is
// owed for each of the jobs.
func (d *demo) replace(jobs []InHand, owed debt) error {
	for _, job := range jobs {
		owed.InHand = job
		d.owed[job.Job] = owed
	}
	vm, err := d.newVM()
	if err != nil {
		return err
	}
	d.say("%s takes the place of %s.", vm.Name, owed.vm)
	return nil
}

// listJobs names the jobs and how far they are.
func listJobs(jobs []InHand) string {
	var names []string
	for _, h := range jobs {
		names = append(names, fmt.Sprintf("%s (%s of %s hashed, %s of it saved)",
			baseName(h.Blob), size(h.Hashed), size(h.Size), size(h.Saved)))
	}
	return strings.Join(names, ", ")
}
