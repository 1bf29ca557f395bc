package lab

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// breath is how long after another incident an eviction is announced, so that
// people can follow.
const breath = 7 * time.Second

// eviction is one that was announced.
type eviction struct {
	vm        *VM
	id        string
	announced time.Time
	notBefore time.Time
	jobs      []InHand
	seen      bool // by the VM, as was told
}

// String says what happens, for people.
func (i Incident) String() string {
	switch i {
	case Kill:
		return "a kill"
	case Freeze:
		return "a freeze"
	case Evict:
		return "an eviction"
	default:
		return fmt.Sprintf("incident %d", int(i))
	}
}

// victim returns a VM that is ready for an incident, and what it has in hand;
// nil if none is.
func (d *demo) victim(f *facts, incident Incident) (*VM, []InHand) {
	for _, vm := range d.fleet.Running() {
		if f.fates[vm.Name].kind != spared || f.hasDuplicate(vm.Name) {
			continue
		}
		if jobs := f.inHand(vm.Name); d.ready(incident, jobs, time.Now()) {
			return vm, jobs
		}
	}
	return nil, nil
}

// hasDuplicate reports whether a VM's worker began a job that was put twice and
// has no result yet. It is left in peace: the duplicate comes back after half a
// minute, and every incident before would make it come back again.
func (f *facts) hasDuplicate(vm string) bool {
	return slices.ContainsFunc(f.starts, func(s start) bool {
		return s.vm == vm && f.duplicated(s.job) && f.commits(s.job) == 0
	})
}

// wellBegun is the part of a job that must be saved, one in that many, before
// its VM is killed or frozen: what was saved is what others go on from.
const wellBegun = 3

// ready reports whether a VM with these jobs in hand is in the middle of its work
// for that incident.
func (d *demo) ready(incident Incident, jobs []InHand, now time.Time) bool {
	switch incident {
	case Kill:
		return slices.ContainsFunc(jobs, func(h InHand) bool { return h.wellBegun() && h.middle(d.CheckpointInterval/2, now) })
	case Freeze:
		return len(jobs) > 0 && !slices.ContainsFunc(jobs, func(h InHand) bool { return !h.wellBegun() || h.Hashed >= h.Size })
	default:
		calm := d.last.IsZero() || now.Sub(d.last) >= breath
		return calm && slices.ContainsFunc(jobs, func(h InHand) bool { return h.middle(0, now) })
	}
}

func (h InHand) wellBegun() bool { return h.Saved*wellBegun >= h.Size }

// strike lets the next incident happen to a VM.
func (d *demo) strike(vm *VM, jobs []InHand) error {
	incident := d.pending[0]
	d.pending, d.last = d.pending[1:], time.Now()
	switch incident {
	case Kill:
		return d.kill(vm, jobs)
	case Freeze:
		return d.freeze(vm, jobs)
	case Evict:
		return d.evict(vm, jobs)
	default:
		return fmt.Errorf("there is no %s", incident)
	}
}

// kill takes a VM away without a word.
func (d *demo) kill(vm *VM, jobs []InHand) error {
	vm.Kill()
	d.local.Metadata.RemoveVM(vm.Name)
	now := time.Now()
	d.ledger.Killed(vm.Name, now)
	d.say("Sudden death: %s is gone without a word (SIGKILL), with %s in hand: %s.", vm.Name, plural(len(jobs), "job"), listJobs(jobs))
	d.say("Nobody was told. Its messages become visible again 30 s after it claimed or last renewed them; until then the others work on.")
	return d.replace(jobs, debt{vm: vm.Name, since: now, what: "death"})
}

// freeze stops a VM's worker. It is thawed when it has become a stale owner.
func (d *demo) freeze(vm *VM, jobs []InHand) error {
	err := vm.Freeze()
	if errors.Is(err, errors.ErrUnsupported) {
		d.say("This system cannot freeze a process; the demo goes on without that.")
		return nil
	}
	if err != nil {
		return fmt.Errorf("freeze worker %s: %w", vm.Name, err)
	}
	now := time.Now()
	d.ledger.Frozen(vm.Name, now)
	d.ice = append(d.ice, vm)
	d.say("Frozen: %s stands still (SIGSTOP) and believes that it owns %s: %s. It is presumed dead.",
		vm.Name, plural(len(jobs), "job"), listJobs(jobs))
	return d.replace(jobs, debt{vm: vm.Name, since: now, what: "freeze"})
}

// thaw lets a frozen worker go on, now that others have its jobs.
func (d *demo) thaw(i int) error {
	vm := d.ice[i]
	d.ice = slices.Delete(d.ice, i, i+1)
	d.ledger.Thawed(vm.Name, time.Now())
	d.say("Thawed: %s goes on (SIGCONT) as if no time had passed. It is a stale owner now.", vm.Name)
	if err := vm.Thaw(); err != nil {
		return fmt.Errorf("thaw worker %s: %w", vm.Name, err)
	}
	return nil
}

// evict announces an eviction.
func (d *demo) evict(vm *VM, jobs []InHand) error {
	id, err := d.local.Metadata.SimulateEviction(vm.Name)
	if err != nil {
		return err
	}
	event, _ := d.local.Metadata.Event(id)
	d.ledger.Evicted(vm.Name, event.ScheduledAt)
	d.evictions = append(d.evictions, eviction{vm: vm, id: id, announced: event.ScheduledAt, notBefore: event.NotBefore, jobs: jobs})
	d.say("Eviction notice: %s is to be taken away (Preempt at its metadata endpoint), with %s in hand: %s.",
		vm.Name, plural(len(jobs), "job"), listJobs(jobs))
	return nil
}

// takeAway ends an eviction: the worker said that it has nothing in hand any
// more, or the notice is over.
func (d *demo) takeAway(i int, halt halt) error {
	e := d.evictions[i]
	d.evictions = slices.Delete(d.evictions, i, i+1)
	if halt.drained.IsZero() {
		d.say("%s did not say that it had handed over; its time is up.", e.vm.Name)
	} else {
		d.say("%s saw the notice, stopped, saved and released its jobs, in %s by its own log. Now the VM is taken away; the jobs wait their turn in the queue.", e.vm.Name, halt.sinceNotice)
	}
	served, _ := d.local.Metadata.VM(e.vm.Name).FirstServed(e.id)
	e.vm.Kill()
	d.ledger.TakenAway(e.vm.Name, served)
	d.local.Metadata.RemoveVM(e.vm.Name)
	d.local.Metadata.Complete(e.id)
	return d.replace(e.jobs, debt{vm: e.vm.Name, since: e.announced, what: "notice"})
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
