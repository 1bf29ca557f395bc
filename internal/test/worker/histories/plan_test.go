package histories

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// plan describes a random history: its jobs, workers, operators and faults. It depends
// on the seed alone.
type plan struct {
	seed            uint64
	jobs            []*plannedJob
	runs            []workerRun
	foreignTexts    []string // messages of foreign tools, which are no jobs
	reopenings      []reopening
	operatorActions []operatorAction
	cancels         []plannedCancel
	holds           []plannedHold

	deadlines map[string]plannedDeadline // by job
	inputs    map[string]plannedInput    // by job that needs files
	followUps []plannedFollowUp
	silences  map[string]plannedSilence // by job with a limit of its silence
	storing   map[string]bool           // jobs that store an output with each step

	clearedAt time.Duration // when an operator clears the queues of jobs; 0 for never
	cleans    bool          // at the end an operator removes what is left of jobs

	mix      kindMix
	machines machineMix
	shards   shardMix
	faults   storageFaults
	ends     time.Duration // when all faults and all these workers have ended
}

// shutdownTime is how long a worker may take to shut down.
const shutdownTime = 45 * time.Second

// plannedJob describes a job, how its handler behaves, and when it is enqueued.
type plannedJob struct {
	id               string
	kind             string
	steps            int
	each             time.Duration // of one step
	noReports        bool
	large            bool // its state is a stream
	alwaysFails      bool
	payload          []byte // more than fits into a message, or nil
	failsAt          []int  // steps at which its handler fails, once each
	failsWhenStopped bool   // when stopped it returns a permanent error
	finishesStep     bool   // when stopped it finishes its step first
	putAt            []time.Duration
	onDemand         bool // it is enqueued on the on-demand queue
	urgent           bool // it is enqueued on the queue First
}

// workerRun describes the run of one worker process on one VM.
type workerRun struct {
	vm          string
	from, to    time.Duration
	end         ending
	notice      time.Duration // of an eviction or a freeze: the time from it until the kill
	incidents   []incident
	concurrency int
	moveAfter   int
	changeover  time.Duration
	onDemand    bool          // it takes from the on-demand queue too
	regular     bool          // it takes from the on-demand queue alone
	skew        time.Duration // of the service's clock, as this worker sees it
}

// ending is how a worker's run ends.
type ending int

const (
	killed ending = iota // without a notice
	evicting
	terminated // SIGTERM, without a time limit
	frozenForEver
	endings
)

func (e ending) String() string {
	return [...]string{"killed", "evicted", "terminated", "frozen for ever"}[e]
}

// incident is a disturbance that does not end a worker's run.
type incident struct {
	at, lasts time.Duration
	freeze    bool // rather than an eviction that is announced and withdrawn
}

// reopening is an operator's command to reopen a job whose owner seems to be gone.
type reopening struct {
	at  time.Duration
	job string
}

// planFor returns the plan of a seed.
func planFor(seed uint64) *plan {
	r := &random{rand.New(rand.NewPCG(seed, 0x5eed))}
	p := &plan{seed: seed, ends: r.between(45*time.Second, 3*time.Minute)}
	for i := range 3 + r.IntN(5) {
		p.jobs = append(p.jobs, r.job(i, p.ends))
	}
	if r.oneIn(12) {
		big := p.jobs[0]
		big.kind, big.large, big.alwaysFails, big.noReports, big.steps = "large", true, false, false, 10+r.IntN(20)
	}
	for slot := range 2 + r.IntN(2) {
		p.runs = append(p.runs, r.workerRuns(slot, p.ends)...)
	}
	if r.oneIn(4) {
		p.foreignTexts = []string{"what a foreign tool sent", `{"v":99,"id":"from-the-future","kind":"chain"}`}[:1+r.IntN(2)]
	}
	for range r.IntN(3) {
		p.reopenings = append(p.reopenings, reopening{at: r.between(10*time.Second, p.ends), job: p.jobs[r.IntN(len(p.jobs))].id})
	}
	p.faults = r.storageFaults(seed, p)
	p.mixFailures()
	p.planOperators()
	p.mixKinds()
	p.mixOutputs()
	p.planSteering()
	p.mixShards()
	p.mixUrgent()
	p.planDeadlines()
	p.mixInputs()
	p.mixSilences()
	p.planFollowUps()
	p.mixMachines()
	p.planCleaning()
	for _, l := range p.runs {
		p.ends = max(p.ends, l.to+l.notice+shutdownTime)
	}
	return p
}

// random is a random source with the methods that plans need.
type random struct{ *rand.Rand }

func (r *random) oneIn(n int) bool { return r.IntN(n) == 0 }

// between returns a random time with a resolution of 1 ns, so that no two events of a
// history coincide and their order is deterministic.
func (r *random) between(least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

func (r *random) job(i int, ends time.Duration) *plannedJob {
	j := &plannedJob{
		id: fmt.Sprintf("job-%d", i), kind: "chain", steps: 5 + r.IntN(50), each: r.between(200*time.Millisecond, 3*time.Second),
		failsWhenStopped: r.oneIn(3), finishesStep: r.oneIn(4), onDemand: r.oneIn(8),
	}
	switch r.IntN(8) {
	case 0:
		j.alwaysFails = true
	case 1:
		j.noReports, j.steps = true, 1+r.IntN(5)
	case 2, 3:
		for range 1 + r.IntN(3) {
			j.failsAt = append(j.failsAt, r.IntN(j.steps))
		}
	case 4:
		j.payload = slices.Repeat([]byte{byte('a' + i)}, 50<<10)
	case 5, 6:
		j.steps = 1 // a short job
	}
	for range 1 + r.IntN(3)/2 + r.IntN(4)/3 {
		j.putAt = append(j.putAt, r.between(0, ends/2))
	}
	return j
}

// workerRuns draws the runs of the VMs that replace one another in one slot of the
// fleet.
func (r *random) workerRuns(slot int, ends time.Duration) (runs []workerRun) {
	for at := r.between(0, 20*time.Second); at < ends; {
		l := workerRun{
			vm: fmt.Sprintf("vm-%d-%d", slot, len(runs)), from: at, to: at + r.between(10*time.Second, 80*time.Second),
			end: ending(r.IntN(int(endings))), notice: r.between(0, 30*time.Second),
			concurrency: 1 + r.IntN(4), moveAfter: r.IntN(4), onDemand: r.oneIn(2), skew: r.between(-10*time.Minute, 10*time.Minute),
		}
		for range r.IntN(2) {
			i := incident{at: r.between(l.from, l.to), freeze: r.oneIn(2)}
			i.lasts = r.between(time.Second, min(time.Minute, l.to-i.at+2*time.Second))
			l.incidents = append(l.incidents, i)
		}
		slices.SortFunc(l.incidents, func(a, b incident) int { return int(a.at - b.at) })
		runs = append(runs, l)
		at = l.to + r.between(0, 20*time.Second)
	}
	return runs
}
