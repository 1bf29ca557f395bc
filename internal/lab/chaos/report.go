package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/oracle"
	"github.com/spotworker/spotworker/internal/lab/stage"
	"github.com/spotworker/spotworker/internal/lab/text"
)

// findings are the events of a run.
type findings struct {
	verdict oracle.Verdict
	counts  counts
	started int // workers

	facts             stage.Facts
	hitByKill         int // jobs
	mostKills         int // of one job
	refusedStale      int // writes of workers that were away
	messages, poison  int // at the end
	median, p99       time.Duration
	idle, quarantined oracle.Idle
	faults, stories   []string

	// By the ledgers of jobs that are done and no programs: time of slots, and workers that died.
	useful, redone, overhead time.Duration
	evictions, exits         int
}

// report prints the table, and returns an error if the run failed.
func (r *chaos) report(ctx context.Context, took time.Duration, judged time.Time, played error) (deaths Deaths, err error) {
	if played != nil {
		r.fault("%v", played)
	}
	f := r.findings(judged)
	if f.messages, err = r.stores.Queue.Depth(ctx); err != nil {
		return deaths, err
	}
	if f.poison, err = r.stores.Poison.Depth(ctx); err != nil {
		return deaths, err
	}
	if err := f.readLedgers(ctx, r.stores.Records); err != nil {
		return deaths, err
	}
	promises := f.promises(r.config)
	fmt.Fprint(r.narrator, "\n", f.happened(r.config, took), "\n", text.Table(promises))
	var broken []string
	for _, p := range promises {
		if p.Verdict == text.Broken {
			broken = append(broken, p.String())
		}
	}
	for _, line := range slices.Concat(f.faults, f.stories) {
		fmt.Fprintln(r.narrator, line)
	}
	if len(broken) > 0 {
		return deaths, fmt.Errorf("%w (seed %d): %s", ErrBroken, r.config.Seed, strings.Join(slices.Concat(broken, f.faults), "; "))
	}
	fmt.Fprintf(r.narrator, "every promise was kept (seed %d)\n", r.config.Seed)
	return f.deaths(), nil
}

// readLedgers adds up the ledgers in the records.
func (f *findings) readLedgers(ctx context.Context, records *checkpoint.Store) error {
	for record, err := range records.List(ctx, "") {
		if err != nil {
			return err
		}
		if record.Kind == stepsKind && record.Status == checkpoint.Done {
			l := record.Spent()
			f.useful, f.redone, f.overhead = f.useful+l.Useful, f.redone+l.Redone, f.overhead+l.Overhead
			f.evictions, f.exits = f.evictions+l.Evictions, f.exits+l.Exits
		}
	}
	return nil
}

func (f *findings) deaths() Deaths {
	d := Deaths{Runs: f.exits}
	if d.Runs > 0 && f.facts.JobsAtKills > 0 {
		d.Redone, d.Hidden = f.redone/time.Duration(d.Runs), f.facts.HiddenByKills/time.Duration(f.facts.JobsAtKills)
	}
	return d
}

// maxStories is how many broken jobs' histories are printed.
const maxStories = 5

func (r *chaos) findings(judged time.Time) (f findings) {
	r.mu.Lock()
	f.counts, f.started, f.faults = r.counts, r.stage.Started(), r.faults
	r.mu.Unlock()
	r.recorder.Look(func(facts *stage.Facts) { f.judge(facts, judged, idleBound(r.config)) })
	return f
}

// judge holds the facts to the rules.
func (f *findings) judge(facts *stage.Facts, judged time.Time, idleBound time.Duration) {
	f.facts = *facts
	for _, refused := range facts.Refusals {
		if refused.Stale {
			f.refusedStale++
		}
	}
	if facts.Unanswered != "" {
		f.stories = append(f.stories, facts.Unanswered)
	}
	var times []time.Duration
	stories := 0
	jobs := facts.Jobs
	for _, id := range slices.Sorted(maps.Keys(jobs)) {
		v := jobs[id].Judge()
		f.verdict.Add(v)
		times = append(times, v.LongestLife)
		if jobs[id].Kills > 0 {
			f.hitByKill++
		}
		f.mostKills = max(f.mostKills, jobs[id].Kills)
		if v.IsBroken() && stories < maxStories {
			stories++
			f.stories = append(f.stories, fmt.Sprintf("job %s: %+v", id, v))
			f.stories = append(f.stories, jobs[id].Story()...)
		}
	}
	slices.Sort(times)
	f.idle, f.quarantined = oracle.WorstIdle(jobs, facts.Slots, judged)
	if f.idle.Length() > idleBound {
		f.stories = append(f.stories, f.idle.String())
		f.stories = append(f.stories, jobs[f.idle.Job].Story()...)
	}
	f.median, f.p99 = quantile(times, 50), quantile(times, 99)
}

func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*percent/100]
}

// Parts of the bound on idle time. Each is a promise of the worker.
const (
	// deferral is the longest time for which a worker hides a message that it
	// defers: a duplicate, or a job of a kind that no heartbeat shows, 30 s, give or
	// take a quarter. Where a live worker is known to have the kind it is a second.
	deferral = 38 * time.Second

	// machineSlack is for calls and processes that wait for a processor.
	machineSlack = 5 * time.Second
)

// idleBound returns how long a job may wait while a worker with a free slot could take
// it. A worker that is gone, frozen or cut off may hide its message, after a delayed
// renewal or claim, or a worker that deferred it; then the other worker finishes its
// pause.
func idleBound(c Config) time.Duration {
	return max(c.Visibility+maxDelay(c.Visibility), deferral) + stage.LongestPause + machineSlack
}

// happened formats the events that are counted and not judged.
func (f *findings) happened(c Config, took time.Duration) string {
	var b strings.Builder
	row := func(label string, format string, args ...any) {
		fmt.Fprintf(&b, "%-44s%s\n", label, fmt.Sprintf(format, args...))
	}
	n, v := f.counts, f.verdict
	row("seed", "%d", c.Seed)
	row("time", "%s, then until all was done", took.Round(time.Second))
	row("workers at a time, and in all", "%d, %d", c.Workers, f.started)
	row("killed (SIGKILL)", "%d, %.2f a second", n.kills, float64(n.kills)/took.Seconds())
	row("  while working, on how many jobs", "%d, %d", f.facts.KillsWithJobs, f.facts.JobsAtKills)
	row("  several at once", "%d", n.groups)
	row("  just before, just after a call's effect", "%d, %d", n.beforeCall, n.afterCall)
	row("frozen (SIGSTOP, SIGCONT)", "%d", n.freezes)
	row("evicted with notice, of which withdrawn", "%d, %d", n.evictions, n.withdrawn)
	row("  not handed over within 12 s", "%d", n.notHandedOver)
	row("all connections cut", "%d", n.cuts[stage.Faults])
	row("calls reset: before, after the effect", "%d, %d", n.cuts[stage.ResetRequest], n.cuts[stage.ResetReply])
	row("calls swallowed: before, after the effect", "%d, %d", n.cuts[stage.SwallowRequest], n.cuts[stage.SwallowReply])
	row("calls delayed: before, after the effect", "%d, %d", n.cuts[stage.DelayRequest], n.cuts[stage.DelayReply])
	row("jobs, of which programs, put twice", "%d, %d, %d", v.Jobs, n.programs, n.duplicates)
	row("  hit by a kill, most kills of one job", "%d, %d", f.hitByKill, f.mostKills)
	row("  dead-lettered: 10 deaths, no progress", "%d", v.GivenUp)
	row("records acquired, of which from dead owners", "%d, %d", v.Acquired, v.TakenOver)
	row("storage calls, writes of records", "%d, %d", f.facts.Calls, v.Writes)
	row("  writes refused: in all, to absent workers", "%d, %d", len(f.facts.Refusals), f.refusedStale)
	row("longest idle in quarantine", "%s", seconds(f.quarantined.Length()))
	row("by ledgers: useful, redone, overhead", "%s, %s, %s", seconds(f.useful), seconds(f.redone), seconds(f.overhead))
	row("  evictions, deaths", "%d, %d", f.evictions, f.exits)
	row("put to outcome: median, 99 %, oldest job", "%s, %s, %s", seconds(f.median), seconds(f.p99), seconds(v.LongestLife))
	return b.String()
}

// promises compares what happened with the promises.
func (f *findings) promises(c Config) []text.Promise {
	v, bound := f.verdict, idleBound(c)
	return []text.Promise{
		text.Exactly("jobs committed", v.Committed, v.Jobs-v.GivenUp),
		text.Exactly("jobs lost", v.Broken[oracle.Lost], 0),
		text.Exactly("jobs committed twice", v.Broken[oracle.Twice], 0),
		text.Exactly("stale writes that took effect", v.Broken[oracle.Stale], 0),
		text.Exactly("wrong results", v.Broken[oracle.Wrong], 0),
		text.Exactly("states behind the one they replaced", v.Broken[oracle.Backwards], 0),
		text.Exactly("failures counted against a job", v.Broken[oracle.Miscounted], 0),
		text.Exactly("jobs dead-lettered without cause", v.Broken[oracle.Unjust], 0),
		text.Exactly("poison messages", f.poison, v.GivenUp),
		text.Exactly("messages left on the queue", f.messages, 0),
		text.Exactly("calls whose effect is not known", f.facts.Unknown, 0),
		text.Exactly("faults of a worker or of the run", len(f.faults), 0),
		text.Judged("longest idle beside a free slot", seconds(f.idle.Length()), "<= "+seconds(bound), f.idle.Length() <= bound),
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
