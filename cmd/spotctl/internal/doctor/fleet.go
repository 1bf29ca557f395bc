package doctor

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lifecycle"
)

// namedWorkers is how many workers a finding names.
const namedWorkers = 5

// fleet examines the workers by their heartbeats.
func (e *Examination) fleet(ctx context.Context) []Finding {
	listed, err := e.stores.Workers.List(ctx)
	now := time.Now()
	if err != nil {
		return []Finding{failed("workers", err, "Storage Blob Data Reader")}
	}
	alive := slices.DeleteFunc(slices.Clone(listed), func(p presence.Listed) bool {
		return p.Age > presence.SilentAfter || p.State == lifecycle.Stopped.String()
	})
	if len(alive) == 0 {
		return []Finding{e.noWorker(len(listed))}
	}
	offset := time.Duration(0)
	if len(e.offsets) > 0 {
		offset = e.offsets[0]
	}
	return append(e.untaken(alive), []Finding{
		{Level: OK, Check: "workers", Text: fmt.Sprintf("%d alive", len(alive))},
		versions(alive),
		about(alive, "clocks of the workers", "they agree with the storage service's", func(p presence.Listed) bool {
			written := now.Add(offset).Add(-p.Age) // by the service's clock
			return p.At.Sub(written).Abs() > clockLimit
		}, "differ by more than "+clockLimit.String()+" from the storage service's", "synchronise the clocks of these VMs"),
		about(alive, "metadata service", "all workers know their VM", func(p presence.Listed) bool { return p.VM == "" },
			"do not know their VM, so that they may not hear of an eviction",
			"let the VM reach the metadata service without a proxy, or set --vm-name; outside Azure nothing is to be done"),
		about(alive, "control document on the workers", "all workers follow it", func(p presence.Listed) bool { return !p.Steered },
			"do not read it: cancels stop their jobs late, and drains and pauses not at all",
			"update them, and assign their identity Storage Blob Data Reader on the container "+e.stores.Names.Control),
	}...)
}

// untaken are the findings about queues that have jobs and that no worker takes from.
func (e *Examination) untaken(alive []presence.Listed) (all []Finding) {
	for _, w := range e.waiting {
		if w.messages > 0 && !slices.ContainsFunc(alive, func(p presence.Listed) bool { return p.Takes(w.queue) }) {
			all = append(all, Finding{
				Level: Failure, Check: "workers of queue " + w.queue, Text: fmt.Sprintf("about %d messages are on it, and no worker that is alive "+
					"takes from it", w.messages),
				Fix: "start workers that take from it (--take-from)",
			})
		}
	}
	return all
}

// noWorker is the finding about a deployment in which no worker is alive.
func (e *Examination) noWorker(ended int) Finding {
	f := Finding{Level: OK, Check: "workers", Text: fmt.Sprintf("none is alive, %d have ended, and no job waits", ended)}
	if n := e.allWaiting(); n > 0 {
		f.Level, f.Text = Failure, fmt.Sprintf("none is alive, and about %d messages wait", n)
		f.Fix = "start VMs; where some run, look at journalctl -u spotworker on one: a missing role or a wrong prefix is logged there"
	}
	return f
}

// versions compares the versions of the workers.
func versions(alive []presence.Listed) Finding {
	const check = "versions of the workers"
	count := map[string]int{}
	for _, p := range alive {
		count[cmp.Or(p.Program, "unknown")]++
	}
	var parts []string
	for _, v := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%s (%d)", v, count[v]))
	}
	f := Finding{Level: OK, Check: check, Text: strings.Join(parts, ", ")}
	if len(count) > 1 {
		f.Level, f.Fix = Warning, "finish the update: two versions may run side by side, but what is new works on some VMs only"
	}
	return f
}

// about returns the finding about the workers with a problem.
func about(alive []presence.Listed, check, well string, wrong func(presence.Listed) bool, text, fix string) Finding {
	var names []string
	for _, p := range alive {
		if wrong(p) {
			names = append(names, p.Worker)
		}
	}
	if len(names) == 0 {
		return Finding{Level: OK, Check: check, Text: well}
	}
	slices.Sort(names)
	named := strings.Join(names[:min(len(names), namedWorkers)], ", ")
	if more := len(names) - namedWorkers; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return Finding{Level: Warning, Check: check, Text: fmt.Sprintf("%d of %d workers %s: %s", len(names), len(alive), text, named), Fix: fix}
}
