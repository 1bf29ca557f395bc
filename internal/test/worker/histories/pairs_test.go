package histories

import (
	"slices"
	"testing"

	"github.com/spotworker/spotworker/internal/test/pairs"
)

// TestPlansDrawPairs: histories draw each pair of features that the table of package pairs
// claims, in at least two of a thousand plans: often in the histories of make soak.
func TestPlansDrawPairs(t *testing.T) {
	all, err := pairs.All()
	if err != nil {
		t.Fatal(err)
	}
	const plans, least = 1000, 2
	drawn := map[[2]string]int{} // plans
	for seed := range uint64(plans) {
		for pair := range planFor(seed + 1).pairs() {
			drawn[pair]++
		}
	}
	for _, p := range all {
		if n := drawn[[2]string{p.A, p.B}]; p.Histories && n < least {
			t.Errorf("%s and %s are drawn together in %d of %d plans, want %d at least", p.A, p.B, n, plans, least)
		}
	}
}

// pairs returns the pairs of features that meet in one job of the plan, in the order of the
// table.
func (p *plan) pairs() map[[2]string]bool {
	met := map[[2]string]bool{}
	for _, j := range p.jobs {
		features := p.features(j)
		has := slices.DeleteFunc(pairs.Features(), func(f string) bool { return !features[f] })
		for i, a := range has {
			for _, b := range has[i+1:] {
				met[[2]string{a, b}] = true
			}
		}
	}
	return met
}

// features returns the features that a job uses, or that its history has for all jobs.
func (p *plan) features(j *plannedJob) map[string]bool {
	in, hasInput := p.inputs[j.id]
	_, hasLimit := p.silences[j.id]
	_, hasDeadline := p.deadlines[j.id]
	isDeadLettered := j.alwaysFails || in.changesAt > 0
	replays := func(fromStart bool) bool {
		return isDeadLettered && slices.ContainsFunc(p.operatorActions, func(a operatorAction) bool {
			return a.job == j.id && !a.purge && a.fromStart == fromStart
		})
	}
	return map[string]bool{
		pairs.Inputs:      hasInput,
		pairs.Outputs:     p.storing[j.id],
		pairs.Queues:      p.shards.count > 1,
		pairs.FollowUps:   slices.ContainsFunc(p.followUps, func(f plannedFollowUp) bool { return f.parent == j.id || f.id == j.id }),
		pairs.Cancel:      slices.ContainsFunc(p.cancels, func(c plannedCancel) bool { return c.job == j.id }),
		pairs.Pause:       slices.ContainsFunc(p.holds, func(h plannedHold) bool { return h.pause }),
		pairs.Drain:       slices.ContainsFunc(p.holds, func(h plannedHold) bool { return !h.pause }),
		pairs.Deadlines:   hasDeadline,
		pairs.Moves:       slices.ContainsFunc(p.runs, func(w workerRun) bool { return w.moveAfter > 0 || w.changeover > 0 }),
		pairs.ChosenIDs:   p.mix.chosenIDs[j.id],
		pairs.Limits:      hasLimit,
		pairs.LargeStates: j.large,
		pairs.Logs:        j.prints(),
		pairs.Replay:      replays(false),
		pairs.FromScratch: in.changesAt > 0 || replays(true),
		pairs.Clean:       p.cleans,
		pairs.Snapshots:   j.isFrozen(),
		pairs.OlderWorker: slices.ContainsFunc(p.runs, func(w workerRun) bool { return p.shards.unaware[w.vm] }),
	}
}
