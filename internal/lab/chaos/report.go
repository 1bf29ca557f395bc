package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// findings are what came of a run.
type findings struct {
	verdict
	counts
	started                              int
	killsInHand, jobsAtKills             int
	calls, unseen, refused, refusedStale int
	messages, poison                     int // that are left
	p50, p99                             time.Duration
	idlest, quarantined                  idling
	faults, stories                      []string
}

// report counts, prints the table, and says whether the run failed.
func (r *chaos) report(ctx context.Context, took time.Duration, judged time.Time, played error) error {
	if played != nil {
		r.fault("%v", played)
	}
	f := r.findings(judged)
	var err error
	if f.messages, err = r.stores.Queue.Depth(ctx); err != nil {
		return err
	}
	if f.poison, err = r.stores.Poison.Depth(ctx); err != nil {
		return err
	}
	table, broken := f.table(r.Config, took)
	fmt.Fprint(r.out, "\n", table)
	for _, line := range slices.Concat(f.faults, f.stories) {
		fmt.Fprintln(r.out, line)
	}
	if broken > 0 {
		return fmt.Errorf("%w: %d of the promises above were broken (seed %d)", ErrBroken, broken, r.Seed)
	}
	fmt.Fprintf(r.out, "every promise was kept (seed %d)\n", r.Seed)
	return nil
}

// maxStories is of how many broken jobs all is told.
const maxStories = 5

func (r *chaos) findings(judged time.Time) findings {
	r.mu.Lock()
	f := findings{counts: r.counts, started: r.started, faults: r.faults}
	r.mu.Unlock()
	t := r.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	f.killsInHand, f.jobsAtKills = t.inHandOnce, t.inHandAtKills
	f.calls, f.unseen, f.refused, f.refusedStale = t.calls, t.unseen, t.refused, t.refusedStale
	var times []time.Duration
	told := 0
	for _, id := range slices.Sorted(maps.Keys(t.jobs)) {
		v := judge(t.jobs[id])
		f.add(v)
		times = append(times, v.longest)
		if v.broken() && told < maxStories {
			told++
			f.stories = append(f.stories, fmt.Sprintf("job %s: %+v", id, v))
			f.stories = append(f.stories, story(t.jobs[id])...)
		}
	}
	slices.Sort(times)
	f.idlest, f.quarantined = worstIdle(t.jobs, t.vms, judged)
	if f.idlest.length() > idleBound(r.Config) {
		f.stories = append(f.stories, f.idlest.String())
		f.stories = append(f.stories, story(t.jobs[f.idlest.job])...)
	}
	f.p50, f.p99 = quantile(times, 50), quantile(times, 99)
	return f
}

func quantile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)-1)*percent/100]
}

// tableWidth is how wide the table is, in columns.
const tableWidth = 78

// table prints what happened, and then what was promised; broken is how many
// promises were not kept.
func (f *findings) table(c Config, took time.Duration) (text string, broken int) {
	verdict, broken := f.promises(c)
	return f.happened(c, took) + "\n" + verdict, broken
}

// happened is the part of the table that judges nothing.
func (f *findings) happened(c Config, took time.Duration) string {
	var b strings.Builder
	told := func(label string, format string, args ...any) {
		fmt.Fprintf(&b, "%-44s%s\n", label, fmt.Sprintf(format, args...))
	}
	told("seed", "%d", c.Seed)
	told("time", "%s, then until all was done", took.Round(time.Second))
	told("workers at a time, and in all", "%d, %d", c.Workers, f.started)
	told("killed (SIGKILL)", "%d, %.2f a second", f.kills, float64(f.kills)/took.Seconds())
	told("  with work in hand", "%d, %d jobs in all", f.killsInHand, f.jobsAtKills)
	told("  several at once", "%d", f.groups)
	told("  just before, just after a call's effect", "%d, %d", f.beforeCall, f.afterCall)
	told("frozen (SIGSTOP, SIGCONT)", "%d", f.freezes)
	told("evicted with notice, of which withdrawn", "%d, %d", f.evictions, f.withdrawn)
	told("  not handed over within 12 s", "%d", f.notHandedOver)
	told("all connections cut", "%d", f.cuts[faults])
	told("calls reset: before, after the effect", "%d, %d", f.cuts[resetRequest], f.cuts[resetReply])
	told("calls swallowed: before, after the effect", "%d, %d", f.cuts[swallowRequest], f.cuts[swallowReply])
	told("calls delayed: before, after the effect", "%d, %d", f.cuts[delayRequest], f.cuts[delayReply])
	told("jobs, of which programs, put twice", "%d, %d, %d", f.jobs, f.programs, f.duplicates)
	told("  hit by a kill, most kills of one job", "%d, %d", f.hit, f.mostKilled)
	told("  given up: 10 deaths in a row, no progress", "%d", f.givenUp)
	told("claims, of which from a worker that is gone", "%d, %d", f.claims, f.taken)
	told("storage calls, writes of records", "%d, %d", f.calls, f.writes)
	told("  writes refused: in all, to absent workers", "%d, %d", f.refused, f.refusedStale)
	told("longest idle in quarantine", "%s", seconds(f.quarantined.length()))
	told("put to outcome: median, 99 %, oldest job", "%s, %s, %s", seconds(f.p50), seconds(f.p99), seconds(f.longest))
	return b.String()
}

// promises is the verdict, a row for each promise.
func (f *findings) promises(c Config) (text string, broken int) {
	var b strings.Builder
	rule := strings.Repeat("-", tableWidth) + "\n"
	kept := func(label, got, want string, ok bool) {
		state := "ok"
		if !ok {
			broken++
			state = "BROKEN"
		}
		fmt.Fprintf(&b, "%-44s%12s  %-12s %s\n", label, got, want, state)
	}
	promised := func(label string, got, want int) {
		kept(label, strconv.Itoa(got), strconv.Itoa(want), got == want)
	}
	b.WriteString(fmt.Sprintf("%-44s%12s  %s\n", "promise", "measured", "promised") + rule)
	promised("jobs committed", f.committed, f.jobs-f.givenUp)
	promised("jobs lost", f.lost, 0)
	promised("jobs committed twice", f.twice, 0)
	promised("stale writes that took effect", f.stale, 0)
	promised("wrong results", f.wrong, 0)
	promised("states behind the one they replaced", f.backwards, 0)
	promised("failures counted against a job", f.failures, 0)
	promised("jobs given up without cause", f.unjust, 0)
	promised("poison messages", f.poison, f.givenUp)
	promised("messages left on the queue", f.messages, 0)
	promised("calls of which the effect is not known", f.unseen, 0)
	promised("faults of a worker or of the run", len(f.faults), 0)
	bound := idleBound(c)
	kept("longest idle beside a free slot", seconds(f.idlest.length()), "<= "+seconds(bound), f.idlest.length() <= bound)
	b.WriteString(rule)
	return b.String(), broken
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
