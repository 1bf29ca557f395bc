package overview

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/fleet/presence"
)

// Problems returns the problems that an operator should look at first, a sentence each;
// none if all is well.
func (s *Snapshot) Problems() []string {
	did := s.Activity()
	return s.problems(&did)
}

func (s *Snapshot) problems(did *Activity) []string {
	var all []string
	add := func(n int, format string, args ...any) {
		if n > 0 {
			all = append(all, fmt.Sprintf(format, args...))
		}
	}
	for _, fault := range s.Faults {
		all = append(all, fault.String())
	}
	findings := s.examine(did)
	at := func(where place) {
		for _, f := range findings {
			if f.Level != OK && f.place == where {
				all = append(all, f.String())
			}
		}
	}
	at(first)
	all = append(all, s.steering()...)
	add(s.Queues.Poison.Messages, "%s: spotctl poison list", count(s.Queues.Poison.Messages, "dead-lettered message",
		"dead-lettered messages"))
	unreadable := s.Jobs.ByStatus[client.StatusUnknown]
	add(unreadable, "%s of a newer version: use a newer spotctl", count(unreadable, "record is", "records are"))
	at(last)
	return all
}

// untaken names the queues that have jobs and that no worker takes from.
func (s *Snapshot) untaken() (all []Finding) {
	if !s.Has(PartQueues) || s.Count(client.Alive) == 0 {
		return nil
	}
	for _, q := range append(s.jobQueues(), s.Queues.First, s.Queues.OnDemand) {
		taken := slices.ContainsFunc(s.Workers, func(w client.Worker) bool {
			return w.Life() == client.Alive && (len(w.Queues) == 0 || slices.Contains(w.Queues, q.Name))
		})
		if q.Messages > 0 && !taken {
			all = append(all, Finding{
				Level: Failure, Check: "workers of queue " + q.Name, Text: fmt.Sprintf("%s on queue %s, and no worker that is alive takes from it",
					count(q.Messages, "message is", "messages are"), q.Name),
				Fix: "start workers that take from it (--take-from)",
			})
		}
	}
	return all
}

// failing says which VMs and which kinds fail.
func (a *Activity) failing() (all []string) {
	sick := 0
	kinds := map[string]client.KindActivity{} // without what such VMs did
	for _, vm := range a.VMs {
		if len(vm.Fails) > 0 {
			sick++
		}
		for _, k := range vm.Fails {
			if sick <= namedMarks {
				all = append(all, fmt.Sprintf("VM %s fails jobs of kind %s: %s of %s in 10 min, and other VMs do not; spotctl quarantine %s",
					vm.Name, k.Kind, Number(k.Failed), count(k.Failed+k.Done, "run", "runs"), vm.Name))
			}
		}
		for _, k := range vm.kinds() {
			if !slices.ContainsFunc(vm.Fails, func(f client.KindActivity) bool { return f.Kind == k.Kind }) {
				kinds[k.Kind] = added(kinds[k.Kind], k)
			}
		}
	}
	if sick > namedMarks {
		all = append(all, fmt.Sprintf("%s more fail like that", count(sick-namedMarks, "VM", "VMs")))
	}
	for _, k := range a.Kinds {
		if well := kinds[k.Kind]; well.Failed >= failingFrom && FailedShare(well) > failingShare {
			all = append(all, fmt.Sprintf("kind %s fails: %s of %s in 10 min%s; the errors are in the jobs' logs and records", k.Kind,
				Number(well.Failed), count(well.Failed+well.Done, "run", "runs"), a.where(k.Kind, well)))
		}
	}
	return all
}

// where names the VM with most failures of a kind, if it has nearly all and another ran the kind.
func (a *Activity) where(kind string, all client.KindActivity) string {
	vms, worst, name := 0, 0, ""
	for _, vm := range a.VMs {
		for _, k := range vm.kinds() {
			if k.Kind != kind || k.Failed+k.Done == 0 {
				continue
			}
			if vms++; k.Failed > worst {
				worst, name = k.Failed, vm.Name
			}
		}
	}
	if vms < 2 || 5*worst < 4*all.Failed {
		return ""
	}
	return fmt.Sprintf(", %s of them on VM %s (spotctl quarantine %s)", Number(worst), name, name)
}

// From so many failed runs, and such a part of all, on a kind is said to fail.
const (
	failingFrom  = 6
	failingShare = 0.15
)

// steering says what operators ask of the workers, and how to end it.
func (s *Snapshot) steering() (all []string) {
	if !s.Has(PartSteering) { // the heartbeats still say what keeps workers from claiming
		for _, word := range []string{presence.AskedPause, presence.AskedDrain, presence.AskedQuarantine, presence.AskedKinds} {
			if n := s.asked(word); n > 0 {
				all = append(all, fmt.Sprintf("an operator's %s is in force on %s", word, count(n, "worker", "workers")))
			}
		}
		return all
	}
	add := func(m client.Mark, command, format string, args ...any) {
		by := cmp.Or(m.By, "an operator")
		text := fmt.Sprintf(format, args...) + fmt.Sprintf(" by %s %s ago", by, Span(s.At.Sub(m.At)))
		if m.Reason != "" {
			text += ": " + m.Reason
		}
		all = append(all, text+"; "+command)
	}
	if m := s.Steering.Paused; m != nil {
		add(*m, "spotctl resume --paused", "claiming is paused on all workers")
	}
	each := func(marks []client.Mark, what, command string) {
		for i, m := range marks {
			if i == namedMarks {
				all = append(all, fmt.Sprintf("%s more like that: spotctl status -o json lists them", Number(len(marks)-i)))
				return
			}
			add(m, command+" "+m.Name, what+s.afterJobs(m), m.Name)
		}
	}
	each(s.Steering.PausedKinds, "no job of kind %s is started, paused", "spotctl resume --kind")
	if m := s.Steering.AllDrained; m != nil {
		add(*m, "spotctl resume --all", "all workers are drained%s", s.afterJobs(*m))
	}
	drained := slices.Clone(s.Steering.Drained)
	drained = slices.DeleteFunc(drained, func(m client.Mark) bool { return s.Count(client.Alive) > 0 && !s.isAlive(m.Name) })
	each(drained, "worker %s is drained", "spotctl resume")
	each(s.Steering.Quarantined, "VM %s is quarantined", "spotctl resume")
	return all
}

// afterJobs says of a drain that running jobs may end before it.
func (s *Snapshot) afterJobs(m client.Mark) string {
	if left := m.FinishBy.Sub(s.At); left > 0 {
		return fmt.Sprintf(" when its jobs have ended, or in %s,", Span(left))
	}
	return ""
}

// namedMarks is how many kinds, how many workers and how many VMs with an operator's
// request are named.
const namedMarks = 3

func (s *Snapshot) isAlive(worker string) bool {
	return slices.ContainsFunc(s.Workers, func(w client.Worker) bool { return w.Name == worker && w.Life() == client.Alive })
}

// asked counts the live workers with that request of an operator.
func (s *Snapshot) asked(what string) int {
	n := 0
	for _, w := range s.Workers {
		if w.Life() == client.Alive && w.Asked == what {
			n++
		}
	}
	return n
}

// withoutWorker counts the jobs whose record says that they run, on a worker that is not alive
// or has restarted since.
func (s *Snapshot) withoutWorker() (n int) {
	for _, j := range s.Jobs.Running {
		if s.lacksWorker(j) {
			n++
		}
	}
	return n
}

// lacksWorker reports whether no live worker runs a job whose record says that it runs.
func (s *Snapshot) lacksWorker(j client.Job) bool {
	return s.Has(PartWorkers) && !slices.ContainsFunc(s.Workers, func(w client.Worker) bool {
		return w.Life() == client.Alive && mayRunJob(w, j)
	})
}

// count returns a number with its words.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return Number(n) + " " + many
}

// Number writes a number with commas between its thousands.
func Number(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
