package overview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/text/spelling"
)

// found says the findings about jobs in the heartbeats of live workers, a sentence each: jobs
// of kinds that no worker has, and jobs that may hang.
func found(workers []client.Worker) (all []string) {
	for _, lack := range WithoutWorker(workers) {
		all = append(all, lack.String())
	}
	all = append(all, withoutMachine(workers)...)
	all = append(all, TooLarge(workers)...)
	return append(all, silentJobs(workers)...)
}

// Lack is a kind of jobs that wait because no live worker has a handler for it.
type Lack struct {
	client.KindCount

	// Meant is the most similar kind that a live worker has, empty if none is similar.
	Meant string
}

// String returns a sentence for people.
func (l Lack) String() string {
	jobs := count(l.Jobs, "job", "jobs")
	if l.Jobs > 1 {
		jobs = "about " + jobs
	}
	if l.Kind == moreKinds {
		return jobs + " of more kinds: no live worker has a handler for them"
	}
	text := fmt.Sprintf("%s of kind %q: no live worker has a handler for it", jobs, l.Kind)
	if l.Meant != "" {
		text += fmt.Sprintf("; did you mean %q?", l.Meant)
	}
	return text + " (jobs that have not begun are dead-lettered after an hour)"
}

// withoutMachine says which kinds of jobs have a state that no live worker can continue from.
func withoutMachine(workers []client.Worker) (all []string) {
	jobs := map[string]int{}
	for _, w := range workers {
		if w.Life() == client.Alive && w.Findings != nil {
			for _, k := range w.Findings.WithoutMachine {
				jobs[k.Kind] += k.Jobs
			}
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(jobs)) {
		of := fmt.Sprintf("of kind %q", kind)
		if kind == moreKinds {
			of = "of more kinds"
		}
		all = append(all, fmt.Sprintf("about %s %s: no live worker has the machine that the state needs; "+
			"spotctl job shows it (dead-lettered after a day)", count(jobs[kind], "job", "jobs"), of))
	}
	return all
}

// TooLarge says which jobs take more GPUs than any live worker has.
func TooLarge(workers []client.Worker) (all []string) {
	most, jobs := mostGPUs(workers), tooLarge(workers)
	keys := slices.SortedFunc(maps.Keys(jobs), func(a, b client.GPUCount) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), cmp.Compare(a.GPUs, b.GPUs))
	})
	for _, k := range keys {
		has := fmt.Sprintf("more than %d", most)
		if most == 0 {
			has = "any"
		}
		all = append(all, fmt.Sprintf("about %s of kind %q: each takes %s, and no live worker has %s; start a larger VM, or cancel them",
			count(jobs[k], "job", "jobs"), k.Kind, count(k.GPUs, "GPU", "GPUs"), has))
	}
	return all
}

// tooLarge counts the jobs that take more GPUs than any live worker has, by kind and GPUs.
func tooLarge(workers []client.Worker) map[client.GPUCount]int {
	most, jobs := mostGPUs(workers), map[client.GPUCount]int{}
	for _, w := range workers {
		if w.Life() != client.Alive || w.Findings == nil {
			continue
		}
		for _, k := range w.Findings.TooLarge {
			if k.GPUs > most {
				jobs[client.GPUCount{Kind: k.Kind, GPUs: k.GPUs}] += k.Jobs
			}
		}
	}
	return jobs
}

func mostGPUs(workers []client.Worker) (most int) {
	for _, w := range workers {
		if w.Life() == client.Alive {
			most = max(most, w.GPUs)
		}
	}
	return most
}

// moreKinds stands for kinds that a heartbeat has no room for.
const moreKinds = "*"

// WithoutWorker returns the kinds of jobs that no live worker has, as the workers report,
// the kinds with most jobs first. A kind is left out if a live worker has it by now, or may
// have it.
func WithoutWorker(workers []client.Worker) (lacks []Lack) {
	jobs, known := map[string]int{}, []string(nil)
	for _, w := range workers {
		if w.Life() != client.Alive {
			continue
		}
		known = append(known, w.Kinds...)
		if w.Findings == nil {
			continue
		}
		for _, k := range w.Findings.WithoutWorker {
			if !mayRun(workers, k.Kind, w.Queues) {
				jobs[k.Kind] += k.Jobs
			}
		}
	}
	for kind, n := range jobs {
		lacks = append(lacks, Lack{client.KindCount{Kind: kind, Jobs: n}, spelling.Nearest(kind, known)})
	}
	slices.SortFunc(lacks, func(a, b Lack) int {
		return cmp.Or(compareBool(a.Kind == moreKinds, b.Kind == moreKinds), cmp.Compare(b.Jobs, a.Jobs), strings.Compare(a.Kind, b.Kind))
	})
	return lacks
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// mayRun reports whether a live worker that takes from all of the queues has a handler for
// the kind, or may have one.
func mayRun(workers []client.Worker, kind string, queues []string) bool {
	return slices.ContainsFunc(workers, func(w client.Worker) bool {
		if w.Life() != client.Alive {
			return false
		}
		has := len(w.Kinds) == 0 || slices.Contains(w.Kinds, kind) || kind != moreKinds && slices.Contains(w.Kinds, moreKinds)
		return has && (len(w.Queues) == 0 || !slices.ContainsFunc(queues, func(q string) bool { return !slices.Contains(w.Queues, q) }))
	})
}

// silentJobs says how many jobs are silent for unusually long, and names one.
func silentJobs(workers []client.Worker) []string {
	jobs, named := 0, ""
	for _, w := range workers {
		if w.Life() == client.Alive && w.Findings != nil && w.Findings.SilentJobs > 0 {
			jobs += w.Findings.SilentJobs
			named = cmp.Or(named, w.Findings.SilentJob)
		}
	}
	switch {
	case jobs == 0:
		return nil
	case jobs == 1 && named != "":
		return []string{fmt.Sprintf("job %s has been silent for unusually long and may hang: spotctl job %s; limit the kind with max_silence",
			named, named)}
	}
	return []string{fmt.Sprintf("%s have been silent for unusually long and may hang, such as %s; limit their kinds with max_silence",
		count(jobs, "running job", "running jobs"), cmp.Or(named, "one"))}
}

// WaitsFor says why a job waits, by the heartbeats of the workers; empty if it runs, or
// if its worker may only have been unable to write.
func WaitsFor(j client.Job, workers []client.Worker) string {
	alive, unlike, kinds := 0, 0, []string(nil)
	for _, w := range workers {
		if w.Life() == client.Alive {
			alive++
			kinds = append(kinds, w.Kinds...)
			if mayRunJob(w, j) {
				return ""
			}
			if !mayContinue(w, j) {
				unlike++
			}
		}
	}
	switch {
	case alive == 0:
		return "a worker: none is alive"
	case !mayRun(workers, j.Kind, nil):
		text := fmt.Sprintf("a worker with kind %q: no live worker has it", j.Kind)
		if meant := spelling.Nearest(j.Kind, kinds); meant != "" {
			text += fmt.Sprintf("; did you mean %q?", meant)
		}
		return text
	case unlike == alive:
		return "a worker that meets the needs of its state: no live worker with its kind does; after a day without one it is dead-lettered"
	case j.Status == client.StatusRunning:
		return "another worker: its own is not alive or has restarted, and its message becomes visible when the visibility timeout expires"
	case j.Failures > 0:
		return "the end of the pause after its failure, and then for a free worker behind the messages that are on the queue"
	}
	for k := range tooLarge(workers) {
		if k.Kind == j.Kind {
			return "a free worker; if it is one of the jobs of its kind that take more GPUs than any live worker has, a larger one: " +
				"spotctl status counts them"
		}
	}
	which := ""
	if unlike > 0 {
		which = " that meets the needs of its state"
	}
	return "a free worker" + which + ", behind the messages that are on the queue: a job that was released is not preferred"
}

// mayRunJob reports whether a worker may run a job, by the job's record. A record that was written
// before the worker's process started is of an earlier run under the same name.
func mayRunJob(w client.Worker, j client.Job) bool {
	return j.Status == client.StatusRunning && w.Name == j.Owner && (w.StartedAt.IsZero() || j.Age() <= w.Age+w.Ran+startSlack)
}

// startSlack is the error of an age: times of the service and of heartbeats have whole seconds.
const startSlack = 3 * time.Second

// mayContinue reports whether a worker may have the kind of a job and meet the needs of its state. It is true without needs.
func mayContinue(w client.Worker, j client.Job) bool {
	return j.StateNeeds == "" || presence.Presence{Kinds: w.Kinds, Offers: w.Offers}.Meets(j.Kind, j.StateNeeds) != presence.HasNot
}
