package histories

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/program/snapshot/machine"
	"github.com/spotworker/spotworker/job"
)

// snapshotVersion is the version of states that are snapshots of processes.
const snapshotVersion = 16

// host is the machine of a worker, as far as snapshots depend on it. The zero value takes
// no snapshots.
type host struct{ machine.Facts }

// The machines of a history: two kernels, and one of them also with a processor of fewer features.
var (
	kernels = [2]host{kernel("6.1.0", "_"), kernel("6.12.0", "_")}
	lesser  = kernel("6.1.0", "A")
)

// kernel returns a machine with a kernel and the features of a processor: none by "A", all by "_".
func kernel(release, features string) host {
	const featuresSize = 80
	has := strings.Repeat(features, featuresSize)
	return host{machine.Facts{Kernel: release, Arch: "amd64", Features: has, CRIU: "4.1", PageSize: 4096}}
}

func (m host) takesSnapshots() bool { return m != host{} }

// needs are the needs of a snapshot of this machine.
func (m host) needs() string { return machine.Needs(m.Facts, nil) }

// freeze makes a report a snapshot of this machine. The state names the machine.
func (m host) freeze(report *job.Progress, state []byte) []byte {
	if !m.takesSnapshots() {
		return state
	}
	report.Version, report.Needs = snapshotVersion, m.needs()
	return append(state, m.Offer()...)
}

// checkThaw checks that a state may be continued from on this machine.
func (c *chain) checkThaw(j *job.Job, version int, state []byte) error {
	if !c.on.takesSnapshots() {
		return j.CheckVersion(0)
	}
	needs, _, _ := strings.Cut(string(state[stateSize:]), "\x00") // padding follows in a large one
	if !presence.OfferMeets(c.on.Offer(), needs) || version != snapshotVersion {
		c.recorder.ContinuedElsewhere(j.ID, c.on.Kernel)
	}
	return j.CheckVersion(snapshotVersion)
}

// machineMix says which jobs are frozen, and on which machine each worker runs.
type machineMix struct {
	draws bool
	of    map[string]host // by VM; zero for a worker of an older version, which lacks the kinds
	first int             // the machine of the first final worker; the second has the other one
}

// mixMachines gives some jobs of every second history a kind of frozen processes. Some
// workers have another kernel, and some lack the kinds. It has a random source of its own.
func (p *plan) mixMachines() {
	r := &random{rand.New(rand.NewPCG(p.seed, 0x5a99))}
	if !r.oneIn(2) {
		return
	}
	p.machines = machineMix{draws: true, of: map[string]host{}, first: r.IntN(2)}
	for _, w := range p.runs {
		p.machines.of[w.vm] = [...]host{kernels[0], lesser, kernels[1], kernels[1], {}}[r.IntN(5)]
	}
	for _, j := range p.jobs {
		if (j.kind != "chain" && j.kind != "large") || j.noReports || r.oneIn(4) {
			continue
		}
		j.kind = "frozen"
		if j.each = r.between(2*time.Second, 3*time.Second); !j.large {
			j.steps += 10 + r.IntN(30) // so that most outlive a worker
		}
	}
}

// isFrozen reports whether the job is of a kind of frozen processes.
func (j *plannedJob) isFrozen() bool { return j.kind == "frozen" }

// machineOf returns the machine of a VM. The two final workers have different machines, so
// that each job has one worker that can end it.
func (m machineMix) machineOf(vm string) host {
	if n, final := strings.CutPrefix(vm, finalPrefix); final && m.draws {
		i, _ := strconv.Atoi(n) // the number is of finalVM
		return kernels[(i+m.first)%2]
	}
	return m.of[vm]
}

// mayAcquire reports whether the worker of a VM may acquire a job whose state has these needs.
// A worker of any machine moves a waiting job that may miss its deadline.
func (h *history) mayAcquire(vm, id, needs string) bool {
	for _, w := range h.plan.runs {
		if _, due := h.deadlines[id]; w.vm == vm && due && w.changeover > 0 && h.machineOf(vm).takesSnapshots() {
			return true
		}
	}
	if _, known := h.machines.of[vm]; !known && vm != lastingVM && !strings.HasPrefix(vm, finalPrefix) {
		return true // an operator
	}
	return presence.OfferMeets(h.machineOf(vm).Offer(), needs)
}

func (h *history) machineOf(vm string) host { return h.machines.machineOf(vm) }

// addFrozen adds the kinds of frozen processes to the handlers of a worker that has them.
func (h *history) addFrozen(kinds job.Kinds, one *oneAtATime) {
	on := h.machineOf(one.vm)
	if !on.takesSnapshots() {
		return
	}
	c := &chain{h.kinds["chain"].(*chain).steps, on}
	kinds["frozen"] = &frozen{one.wrap(c), on, h}
}

// frozen is a handler whose states can be continued from on a machine like its own alone, as
// the handler for snapshots of programs.
type frozen struct {
	handler job.Handler
	on      host
	h       *history
}

func (f *frozen) Run(ctx context.Context, j *job.Job) ([]byte, error) { return f.handler.Run(ctx, j) }

// Offer is the first word of the needs that this machine meets.
func (f *frozen) Offer() string { return f.on.Offer() }

// CheckNeeds returns an error if a snapshot with these needs is of another machine.
func (f *frozen) CheckNeeds(needs string) error {
	err := f.on.CheckNeeds(needs, &machine.Hashes{})
	if err != nil {
		f.h.count(&f.h.left)
	}
	return err
}
