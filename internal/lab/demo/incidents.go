package demo

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/lab/stage"
	"github.com/spotworker/spotworker/internal/lab/text"
)

// evictionPause is the time between another incident and the announcement of an
// eviction, so that people can follow.
const evictionPause = 7 * time.Second

// eviction is an announced eviction.
type eviction struct {
	vm        *stage.VM
	id        string
	announced time.Time
	notBefore time.Time
	jobs      []activeJob
}

// victim returns a VM that is ready for an incident, and the jobs that its worker
// is working on; nil if none is.
func (d *demo) victim(h *history, incident Incident) (*stage.VM, []activeJob) {
	for _, vm := range d.vms {
		if h.fates[vm.Name].kind != spared || h.hasDuplicate(vm.Name) {
			continue
		}
		if jobs := h.active(vm.Name); d.isReady(incident, jobs, time.Now()) {
			return vm, jobs
		}
	}
	return nil, nil
}

// hasDuplicate reports whether a VM's worker started a job that was put twice and
// is not committed. Such a VM is spared: the duplicate becomes visible after half
// a minute, and every incident before would delay it again.
func (h *history) hasDuplicate(vm string) bool {
	return slices.ContainsFunc(h.starts, func(s start) bool {
		return s.vm == vm && h.isDuplicated(s.job) && h.commits(s.job) == 0
	})
}

// isReady reports whether a VM whose worker is working on these jobs is ready for
// an incident.
func (d *demo) isReady(incident Incident, jobs []activeJob, now time.Time) bool {
	switch incident {
	case Kill:
		return slices.ContainsFunc(jobs, func(a activeJob) bool {
			return a.isThirdSaved() && a.hasUnsaved(d.config.CheckpointInterval/2, now)
		})
	case Freeze:
		return len(jobs) > 0 && !slices.ContainsFunc(jobs, func(a activeJob) bool { return !a.isThirdSaved() || a.hashed >= a.size })
	default:
		paused := d.script.last.IsZero() || now.Sub(d.script.last) >= evictionPause
		return paused && slices.ContainsFunc(jobs, func(a activeJob) bool { return a.hasUnsaved(0, now) })
	}
}

// isThirdSaved reports whether a third of the job is saved, from which others can
// resume.
func (a activeJob) isThirdSaved() bool { return a.saved*3 >= a.size }

// hasUnsaved reports whether the job is not finished and has work that has not
// been saved for that long.
func (a activeJob) hasUnsaved(duration time.Duration, now time.Time) bool {
	return a.hashed < a.size && !a.unsavedSince.IsZero() && now.Sub(a.unsavedSince) >= duration
}

// strike lets the next incident happen to a VM.
func (d *demo) strike(vm *stage.VM, jobs []activeJob) error {
	incident := d.script.pending[0]
	d.script.pending, d.script.last = d.script.pending[1:], time.Now()
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

// kill kills a VM without notice.
func (d *demo) kill(vm *stage.VM, jobs []activeJob) error {
	vm.Worker.Kill()
	d.remove(vm)
	now := time.Now()
	d.fate(vm.Name, func(f *fate) { *f = fate{kind: killed, at: now, gone: now} })
	d.narrator.Say("Sudden death: %s was killed without notice (SIGKILL) while it was working on %s: %s.",
		vm.Name, text.Plural(len(jobs), "job"), listJobs(jobs))
	d.narrator.Say("Its messages become visible again 30 s after it claimed or last renewed them; until then the others work on.")
	return d.replace(jobs, lostJob{vm: vm.Name, since: now, cause: "kill"})
}

// freeze suspends a VM's worker. It is thawed when others have its jobs.
func (d *demo) freeze(vm *stage.VM, jobs []activeJob) error {
	err := vm.Worker.Freeze()
	if errors.Is(err, errors.ErrUnsupported) {
		d.narrator.Say("This system cannot freeze a process; the demo continues without that.")
		return nil
	}
	if err != nil {
		return fmt.Errorf("freeze worker %s: %w", vm.Name, err)
	}
	now := time.Now()
	d.fate(vm.Name, func(f *fate) { *f = fate{kind: frozen, at: now} })
	d.script.frozen = append(d.script.frozen, vm)
	d.narrator.Say("Frozen: %s is suspended (SIGSTOP) while it owns %s: %s. The others must presume it dead.",
		vm.Name, text.Plural(len(jobs), "job"), listJobs(jobs))
	return d.replace(jobs, lostJob{vm: vm.Name, since: now, cause: "freeze"})
}

// thaw resumes a frozen worker, which is a stale owner now.
func (d *demo) thaw(i int) error {
	vm := d.script.frozen[i]
	d.script.frozen = slices.Delete(d.script.frozen, i, i+1)
	now := time.Now()
	d.fate(vm.Name, func(f *fate) { f.thawed = now })
	d.narrator.Say("Thawed: %s resumes (SIGCONT) as if no time had passed. It is a stale owner now.", vm.Name)
	if err := vm.Worker.Thaw(); err != nil {
		return fmt.Errorf("thaw worker %s: %w", vm.Name, err)
	}
	return nil
}

// evict announces an eviction.
func (d *demo) evict(vm *stage.VM, jobs []activeJob) error {
	id, err := d.stage.Local.Metadata.SimulateEviction(vm.Name)
	if err != nil {
		return err
	}
	event, _ := d.stage.Local.Metadata.Event(id)
	d.fate(vm.Name, func(f *fate) { *f = fate{kind: evicted, at: event.ScheduledAt} })
	d.script.evictions = append(d.script.evictions, eviction{vm: vm, id: id, announced: event.ScheduledAt, notBefore: event.NotBefore,
		jobs: jobs})
	d.narrator.Say("Eviction notice: %s will be evicted (Preempt at its metadata endpoint); it is working on %s: %s.",
		vm.Name, text.Plural(len(jobs), "job"), listJobs(jobs))
	return nil
}

// removeEvicted removes an evicted VM whose worker has drained or whose notice has
// ended.
func (d *demo) removeEvicted(i int, drain drain) error {
	e := d.script.evictions[i]
	d.script.evictions = slices.Delete(d.script.evictions, i, i+1)
	if drain.ended.IsZero() {
		d.narrator.Say("%s did not report that it had drained within its notice.", e.vm.Name)
	} else {
		d.narrator.Say("%s saw the notice, stopped, saved and released its jobs, in %s by its own log. Now the VM is removed; the jobs are "+
			"on the queue.", e.vm.Name, drain.sinceNotice)
	}
	served, _ := d.stage.Local.Metadata.VM(e.vm.Name).FirstServed(e.id)
	e.vm.Worker.Kill()
	now := time.Now()
	d.fate(e.vm.Name, func(f *fate) { f.served, f.gone = served, now })
	d.remove(e.vm)
	d.stage.Local.Metadata.Complete(e.id)
	return d.replace(e.jobs, lostJob{vm: e.vm.Name, since: e.announced, cause: "notice"})
}

// replace starts a new VM in place of a lost one, and notes its jobs as lost.
func (d *demo) replace(jobs []activeJob, lost lostJob) error {
	for _, job := range jobs {
		lost.activeJob = job
		d.script.lost[job.job] = lost
	}
	vm, err := d.newVM()
	if err != nil {
		return err
	}
	d.narrator.Say("%s replaces %s.", vm.Name, lost.vm)
	return nil
}

// listJobs lists jobs and their progress, for people.
func listJobs(jobs []activeJob) string {
	var names []string
	for _, a := range jobs {
		names = append(names, fmt.Sprintf("%s (%s of %s hashed, %s of it saved)",
			shortName(a.blob), text.Size(a.hashed), text.Size(a.size), text.Size(a.saved)))
	}
	return strings.Join(names, ", ")
}
