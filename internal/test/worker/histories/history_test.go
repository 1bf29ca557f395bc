package histories

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/worker/rig"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

var (
	histories = flag.Int("histories", defaultHistories, "the number of random histories that TestHistories runs")
	repeated  = flag.Int("repeated", proof.Times(1, 10), "how many of them TestHistoriesRepeat runs twice")
	firstSeed = flag.Uint64("seed", 1, "the seed of the first of them; the others follow it")
)

// defaultHistories is how many random histories one run of the tests executes. make
// nightly-proof runs 200.
var defaultHistories = proof.Times(8, 200)

// maxCatchUp is how long jobs may take after the last fault. After a take-over by an
// operator, and where workers' clocks are off, a message may have been requeued many
// times, each time for longer.
const maxCatchUp = 6 * time.Hour

// TestHistories runs random histories: workers that are killed, evicted with any
// notice and frozen, jobs with duplicates, storage with every kind of fault. Each
// depends on its seed alone, so that a failure can be repeated:
//
//	go test ./internal/test/worker/histories -run TestHistories -histories 1 -seed N
func TestHistories(t *testing.T) {
	var sum historyStats
	var mu sync.Mutex
	t.Cleanup(func() { t.Logf("%d histories, from seed %d: %s", *histories, *firstSeed, sum) })
	for seed := *firstSeed; seed < *firstSeed+uint64(*histories); seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			c := runHistory(t, seed)
			mu.Lock()
			defer mu.Unlock()
			sum.add(c)
		})
	}
}

// TestHistoriesRepeat: the same seed gives the same history, with the same calls at the
// same nanoseconds. In one of seven histories two goroutines race at one nanosecond, such as
// two deliveries of one job, and the winner decides the rest. So one of a few seeds has to repeat.
func TestHistoriesRepeat(t *testing.T) {
	const seeds = 6
	for i := range uint64(*repeated) {
		var differences []string
		for seed := *firstSeed + i*seeds; len(differences) < seeds; seed++ {
			difference := differenceOf(orderedEntries(runHistory(t, seed)), orderedEntries(runHistory(t, seed)))
			if difference == "" {
				break
			}
			differences = append(differences, fmt.Sprintf("seed %d, %s", seed, difference))
		}
		if len(differences) == seeds {
			t.Errorf("none of %d seeds gave the same history twice:\n%s", seeds, strings.Join(differences, "\n"))
		}
	}
}

// differenceOf describes the first difference of two histories; it is empty if there is none.
func differenceOf(first, second []string) string {
	for i := range max(len(first), len(second)) {
		if one, other := entryAt(first, i), entryAt(second, i); one != other {
			return fmt.Sprintf("entry %d of the recorder = %q and then %q", i, one, other)
		}
	}
	return ""
}

// orderedEntries returns the entries of a history. Entries of the same nanosecond are in
// the order of their texts: which goroutine is first at one moment is not part of a
// history.
func orderedEntries(c historyStats) []string {
	at := func(entry string) string {
		time, _, _ := strings.Cut(strings.TrimSpace(entry), " ")
		return time
	}
	entries := slices.Clone(c.entries)
	for from := 0; from < len(entries); {
		to := from + 1
		for to < len(entries) && at(entries[to]) == at(entries[from]) {
			to++
		}
		slices.Sort(entries[from:to])
		from = to
	}
	return entries
}

func entryAt(entries []string, i int) string {
	if i < len(entries) {
		return entries[i]
	}
	return "the end"
}

// historyStats counts what happened in one history, or in several.
type historyStats struct {
	jobs, done, poison, cancelled               int
	frozen, left                                int // jobs of frozen processes, and how often workers left them to another machine
	replays, purges, requeues                   int
	startedOver, followUpsPut, cleanings        int
	cancelsTold, holdsAsked, stops              int // stops are of handlers, in time, because of these
	workers, kills, notices, freezes, takeovers int
	interruptions, failures, movedForDeadline   int
	movedWaiting                                int // of these, while no worker claimed them
	calls                                       int64
	virtual, worstWait                          time.Duration
	entries                                     []string // all entries of the recorder with their times; of one history
}

func (c *historyStats) add(d historyStats) {
	c.frozen, c.left = c.frozen+d.frozen, c.left+d.left
	c.jobs, c.done, c.poison, c.cancelled = c.jobs+d.jobs, c.done+d.done, c.poison+d.poison, c.cancelled+d.cancelled
	c.startedOver, c.followUpsPut, c.cleanings = c.startedOver+d.startedOver, c.followUpsPut+d.followUpsPut, c.cleanings+d.cleanings
	c.replays, c.purges, c.requeues = c.replays+d.replays, c.purges+d.purges, c.requeues+d.requeues
	c.cancelsTold, c.holdsAsked, c.stops = c.cancelsTold+d.cancelsTold, c.holdsAsked+d.holdsAsked, c.stops+d.stops
	c.workers, c.kills, c.notices, c.freezes, c.takeovers = c.workers+d.workers, c.kills+d.kills, c.notices+d.notices, c.freezes+d.freezes,
		c.takeovers+d.takeovers
	c.interruptions, c.failures, c.movedForDeadline = c.interruptions+d.interruptions, c.failures+d.failures, c.movedForDeadline+
		d.movedForDeadline
	c.movedWaiting += d.movedWaiting
	c.calls, c.virtual = c.calls+d.calls, c.virtual+d.virtual
	c.worstWait = max(c.worstWait, d.worstWait)
}

func (c historyStats) String() string {
	return fmt.Sprintf("%d jobs (%d done, %d poison, %d cancelled; %d frozen, left %d "+
		"times to another machine), %d workers (%d killed, %d notices, %d frozen), operators: %d take-overs, %d replays, %d purges, %d "+
		"messages requeued, %d cancels, %d pauses and drains (%d handlers stopped in time); %d interruptions, %d jobs moved for their "+
		"deadline (%d while they waited), %d failures of handlers, %d jobs started over with changed inputs, %d follow-up "+
		"jobs, %d cleanings, %d storage calls, %s of virtual time, worst wait beside a free slot %s",
		c.jobs, c.done, c.poison, c.cancelled, c.frozen, c.left, c.workers, c.kills, c.notices, c.freezes,
		c.takeovers, c.replays, c.purges, c.requeues, c.cancelsTold, c.holdsAsked, c.stops, c.interruptions, c.movedForDeadline,
		c.movedWaiting, c.failures, c.startedOver, c.followUpsPut, c.cleanings, c.calls, c.virtual.Round(time.Hour),
		c.worstWait.Round(time.Millisecond))
}

// runHistory runs the history of a seed and checks its outcome.
func runHistory(t *testing.T, seed uint64) (c historyStats) {
	t.Helper()
	rig.Run(t, func(t *testing.T, b *rig.Bed) {
		h := &history{plan: planFor(seed), t: t, b: b, began: time.Now(), fixed: map[string]bool{}, told: map[string]bool{},
			versions: map[string]int{}}
		b.Retry, b.Jitter = &fixedRetries, repeatableWaits
		h.recorder = b.AddRecorder()
		h.expectOutputs()
		h.useShards()
		h.storeInputs()
		h.recorder.CheckIdle(h.faultFreeFrom())
		h.recorder.MayAcquire = h.mayAcquire
		h.kinds = job.Kinds{"chain": &chain{steps: &steps{plan: h.plan, recorder: h.recorder, isFixed: h.isFixed,
			failed: map[failedStep]time.Time{}, hung: map[failedStep]bool{}, startedAt: h.startedAt}}}
		h.kinds["large"], h.kinds["other"] = h.kinds["chain"], h.kinds["chain"]
		h.run()
		h.check()
		h.clean()
		h.conclude()
		if t.Failed() {
			h.logHistory()
		}
		c = h.historyStats
	})
	return c
}

// fixedRetries make the SDK wait for the same time before each retry: it draws its waits
// from a global random source, and then cuts them to the longest one allowed.
var fixedRetries = policy.RetryOptions{MaxRetries: 3, RetryDelay: time.Second, MaxRetryDelay: 700 * time.Millisecond,
	TryTimeout: 30 * time.Second}

// repeatableWaits derives the worker's own random waits from the time at which they
// begin, which in a bubble is the same in every run.
var repeatableWaits = retry.Jitter{Random: func(d time.Duration) time.Duration {
	return storageFaults{}.randomFor("", d.String(), time.Duration(time.Now().UnixNano())).between(0, d)
}}
