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

// Level is how serious a finding is.
type Level string

// The levels.
const (
	OK      Level = "ok"
	Warning Level = "warning" // the deployment works, but not in every way
	Failure Level = "failure" // jobs cannot be done, or not be seen
)

// Finding is the result of one check.
type Finding struct {
	Level Level
	Check string // the subject that was examined
	Text  string // the result
	Fix   string // what to do; empty for OK

	place place // among the problems of a screen
}

// place is where a finding stands on a screen.
type place int

const (
	first place = iota
	last        // below the requests of operators
	left        // nowhere
)

// String returns the finding for people.
func (f Finding) String() string {
	if f.Fix == "" {
		return f.Text
	}
	return f.Text + ": " + f.Fix
}

// reports is the check of findings that workers report.
const reports = "reports of the workers"

// Examine examines the workers by their heartbeats, and the jobs and queues by what else the
// snapshot has.
func (s *Snapshot) Examine() []Finding {
	did := s.Activity()
	return s.examine(&did)
}

func (s *Snapshot) examine(did *Activity) (all []Finding) {
	if !s.Has(PartWorkers) {
		return nil
	}
	all = append(all, s.untaken()...)
	alive := slices.DeleteFunc(slices.Clone(s.Workers), func(w client.Worker) bool { return w.Life() != client.Alive })
	if len(alive) == 0 {
		all = append(all, s.noWorker())
	} else {
		all = append(all, Finding{Level: OK, Check: "workers", Text: fmt.Sprintf("%d alive", len(alive))}, versions(alive))
		all = append(all, troubles(alive)...)
	}
	warn := func(texts ...string) {
		for _, text := range texts {
			all = append(all, Finding{Level: Warning, Check: reports, Text: text})
		}
	}
	warn(s.growing()...)
	warn(s.capacity()...)
	warn(slowCalls(alive)...)
	warn(failedCalls(alive)...)
	warn(found(s.Workers)...)
	warn(renamed(alive)...)
	warn(did.failing()...)
	warn(s.silent()...)
	warn(s.lostWork()...)
	if n := s.withoutWorker(); n > 0 {
		all = append(all, Finding{Level: Warning, Check: reports, place: last, Text: count(n, "job is", "jobs are") +
			" running by the records, on workers that are dead or have restarted: others get them when the visibility timeouts of their messages " +
			"expire"})
	}
	if text := s.Jobs.Punctuality.String(); text != "" {
		warn(text + ": spotctl jobs --at-risk")
	}
	return all
}

// noWorker is the finding about a deployment in which no worker is alive.
func (s *Snapshot) noWorker() Finding {
	n := s.Waiting()
	if n == 0 {
		return Finding{Level: OK, Check: "workers", Text: fmt.Sprintf("none is alive, %d have ended, and no job waits", s.Count(client.Ended))}
	}
	return Finding{
		Level: Failure, Check: "workers", Text: count(n, "job waits", "jobs wait") + ", and " + s.nobody(),
		Fix: "start VMs; where some run, look at journalctl -u spotworker on one: a missing role or a wrong prefix is logged there",
	}
}

// versions compares the versions of the workers.
func versions(alive []client.Worker) Finding {
	workers := map[string]int{}
	for _, w := range alive {
		workers[cmp.Or(w.Version, "unknown")]++
	}
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(workers)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", v, workers[v]))
	}
	f := Finding{Level: OK, Check: "versions of the workers", Text: strings.Join(parts, ", ")}
	if len(workers) > 1 {
		f.Level, f.place, f.Text = Warning, last, "workers of several versions run, "+f.Text
		f.Fix = "finish the update, since what is new works on some VMs only"
	}
	return f
}

// troubles examines the live workers and their machines, a finding for each check.
func troubles(alive []client.Worker) []Finding {
	trouble := func(w client.Worker) client.Trouble {
		if w.Findings == nil {
			return client.Trouble{}
		}
		return w.Findings.Trouble
	}
	about := func(check, well string, wrong func(client.Worker) bool, text, fix string) Finding {
		var named []client.Worker
		for _, w := range alive {
			if wrong(w) {
				named = append(named, w)
			}
		}
		if len(named) == 0 {
			return Finding{Level: OK, Check: check, Text: well}
		}
		return Finding{Level: Warning, Check: check, Text: fmt.Sprintf("%d of %d workers %s: %s", len(named), len(alive), text, names(named)),
			Fix: fix}
	}
	unknown := about("metadata service", "all workers know their VM", func(w client.Worker) bool { return w.VM == "" },
		"do not know their VM, so that they may not hear of an eviction",
		"let the VM reach the metadata service without a proxy, or set --vm-name; outside Azure nothing is to be done")
	unsteered := about("control document on the workers", "all workers follow it", func(w client.Worker) bool { return !w.Steered },
		"do not read it: cancels stop their jobs late, and drains and pauses not at all",
		"assign their identity Storage Blob Data Reader on the control container, or update them")
	unknown.place, unsteered.place = left, left
	return []Finding{
		unknown,
		about("notices of evictions", "the metadata service answers all workers", func(w client.Worker) bool { return trouble(w).Blind > 0 },
			"get no answer of the metadata service, so that an eviction comes without notice and repeats up to a checkpoint interval",
			"on the VM look at the worker's log, and at proxies and firewalls before the metadata service; if it stays, delete the VM"),
		about("clocks of the workers", "they agree with the storage service's", func(w client.Worker) bool {
			return trouble(w).ClockIsWrong()
		}, "have a clock that differs by more than "+presence.ClockLimit.String()+" from the storage service's, which refuses them from 15 min "+
			"on",
			"synchronise the clocks of these VMs, or delete the VMs"),
		about("scratch folders", "they have room", func(w client.Worker) bool { return trouble(w).ScratchIsFull() },
			"have less than 5 % free in --scratch, so that they hand jobs of programs to other machines",
			"remove what fills the disk of these VMs, or choose a larger one (--scratch)"),
		brokenGPUs(alive),
		about("names of the workers", "each has its own", func(w client.Worker) bool { return trouble(w).Rival != "" },
			"share their name with another living worker, so that each overwrites the other's heartbeat",
			"give each worker of a VM an --instance, and each VM a name of its own (--vm-name)"),
		about("crashes", "no worker crashes again and again", func(w client.Worker) bool { return trouble(w).Crashes > 1 },
			"crashed several times in a row soon after their start", "look at the end of the log (journalctl -u spotworker), and quarantine the VM"),
		about("programs' users", "they do not reach the metadata service", func(w client.Worker) bool { return trouble(w).Exposed != "" },
			"start no program, since its user would reach the metadata service, which gives out the VM's tokens",
			"on the VM run firewall.sh up of the package (systemctl restart spotworker does), and look at what changed the firewall"),
		unsteered,
	}
}

// brokenGPUs names machines with a broken GPU, and the GPU.
func brokenGPUs(alive []client.Worker) Finding {
	var all []string
	for _, w := range alive {
		if w.Findings != nil && w.Findings.Trouble.GPUs != "" {
			all = append(all, fmt.Sprintf("%s: GPU %s", cmp.Or(w.VM, w.Name), w.Findings.Trouble.GPUs))
		}
	}
	if len(all) == 0 {
		return Finding{Level: OK, Check: "GPUs", Text: "no worker has found a broken one"}
	}
	if more := len(all) - namedWorkers; more > 0 {
		all = append(all[:namedWorkers], fmt.Sprintf("%d more", more))
	}
	return Finding{Level: Warning, Check: "GPUs", Text: "broken GPUs, which no job gets: " + strings.Join(all, ", "),
		Fix: "delete the VM if nvidia-smi there still fails after a minute; its other GPUs and kinds work until then"}
}

// namedWorkers is how many workers a finding names.
const namedWorkers = 5

// names returns the names of workers, of which the first few are enough.
func names(workers []client.Worker) string {
	var all []string
	for _, w := range workers {
		all = append(all, w.Name)
	}
	slices.Sort(all)
	text := strings.Join(all[:min(len(all), namedWorkers)], ", ")
	if more := len(all) - namedWorkers; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// leastCalls is how many calls must have gone wrong on a worker, and callsShare which part of
// its calls, before they are said to.
const (
	leastCalls = 3
	callsShare = 0.1
)

// callsOf returns the live workers of which so many calls of the last minute went wrong, and
// the largest part of all calls that did.
func callsOf(alive []client.Worker, wrong func(*client.Findings) int) (which []client.Worker, most float64) {
	for _, w := range alive {
		if w.Findings == nil {
			continue
		}
		part := float64(wrong(w.Findings)) / float64(max(w.Findings.Calls, 1))
		if wrong(w.Findings) >= leastCalls && part >= callsShare {
			which, most = append(which, w), max(most, part)
		}
	}
	return which, most
}

// slowCalls says which workers have slow calls to storage. Heartbeats do not tell a slow account
// from a slow network: the account's metrics do.
func slowCalls(alive []client.Worker) []string {
	slow, most := callsOf(alive, func(f *client.Findings) int { return f.SlowCalls })
	if len(slow) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("storage is slow for %d of %s (%s): up to %s of their small calls took over 1 s in the last minute, where "+
		"some 10 ms are usual. Jobs start and end later, none is lost: compare SuccessE2ELatency and SuccessServerLatency of the account; the "+
		"second is the service, the difference the network", len(slow), count(len(alive), "worker", "workers"), names(slow), Share(most))}
}

// failedCalls says which workers' calls storage does not serve, and why.
func failedCalls(alive []client.Worker) (all []string) {
	for _, row := range []struct {
		what, means string
		calls       func(*client.Findings) int
	}{
		{"denies (401, 403)", "a role, the sign-in or the account's firewall; jobs are safe and wait. Compare the roles of the workers' " +
			"identity with Storage Queue Data Contributor and Storage Blob Data Contributor; the log has missing_role",
			func(f *client.Findings) int { return f.DeniedCalls }},
		{"has no queue or container for (404)", "one was deleted, or the prefix is wrong: spotctl status --check names it",
			func(f *client.Findings) int { return f.MissingCalls }},
		{"refuses for now (429, 503)", "calls come faster than the account or a queue takes them, or the service is in trouble. Jobs take " +
			"longer, none is lost: look at the account's metric Transactions by ResponseType; use fewer workers, longer jobs or more queues",
			func(f *client.Findings) int { return f.ThrottledCalls }},
		{"does not answer, or answers with an error to", "running jobs continue, and nothing is saved or claimed: look at the account's " +
			"availability, DNS and the network",
			func(f *client.Findings) int { return f.FailedCalls - f.DeniedCalls - f.MissingCalls - f.ThrottledCalls }},
	} {
		if which, most := callsOf(alive, row.calls); len(which) > 0 {
			all = append(all, fmt.Sprintf("storage %s up to %s of the calls of %d of %s (%s): %s", row.what, Share(most), len(which),
				count(len(alive), "worker", "workers"), names(which), row.means))
		}
	}
	return all
}

// renamed says which workers lack a kind that all others of their VM size and queues have, and
// have one alone: a kind was renamed, or misspelt, in their file of kinds.
func renamed(alive []client.Worker) (all []string) {
	for _, w := range alive {
		others := slices.DeleteFunc(slices.Clone(alive), func(o client.Worker) bool {
			return o.Name == w.Name || o.VMSize != w.VMSize || !slices.Equal(o.Queues, w.Queues)
		})
		if len(others) < 2 {
			continue
		}
		has := func(kind string) func(client.Worker) bool {
			return func(o client.Worker) bool { return slices.Contains(o.Kinds, kind) }
		}
		alone := slices.DeleteFunc(slices.Clone(w.Kinds), func(kind string) bool { return slices.ContainsFunc(others, has(kind)) })
		lacks := slices.DeleteFunc(slices.Clone(others[0].Kinds), func(kind string) bool {
			return has(kind)(w) || slices.ContainsFunc(others, func(o client.Worker) bool { return !has(kind)(o) })
		})
		if len(alone) > 0 && len(lacks) > 0 && !slices.Contains(append(alone, lacks...), moreKinds) {
			all = append(all, fmt.Sprintf("worker %s alone has kind %q, and lacks kind %q, which all others of its size have: compare its file of "+
				"kinds; it leaves the jobs of that kind to the others", w.Name, cmp.Or(spelling.Nearest(lacks[0], alone), alone[0]), lacks[0]))
		}
	}
	return all[:min(len(all), namedMarks)]
}

// silent names the workers that are silent.
func (s *Snapshot) silent() []string {
	silent := slices.DeleteFunc(slices.Clone(s.Workers), func(w client.Worker) bool { return w.Life() != client.Silent })
	if len(silent) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s (%s): dead, crashing at the start, or without network or role; journalctl -u spotworker on a VM that "+
		"runs says which",
		count(len(silent), "worker is silent", "workers are silent"), names(silent))}
}

// muchLost is how much work a drain loses that an operator should know of.
const muchLost = 30 * time.Second

// lostWork says which workers lost much work when they handed over their jobs in the last hour.
func (s *Snapshot) lostWork() []string {
	var which []client.Worker
	var sum, most time.Duration
	for _, w := range s.Workers {
		if d := w.LastDrain; d != nil && d.Lost >= muchLost && s.At.Sub(d.EndedAt) <= Recently {
			which, sum, most = append(which, w), sum+d.Lost, max(most, d.Lost)
		}
	}
	if len(which) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("%s lost %s of work at %s (%s), up to %s each: jobs did not save in time, as programs that ignore SIGTERM or "+
		"save seldom; work_lost of the line \"job released\" in the log names the jobs", count(len(which), "worker", "workers"),
		sum.Round(time.Second),
		"a hand-over in the last hour", names(which), most.Round(time.Second))}
}
