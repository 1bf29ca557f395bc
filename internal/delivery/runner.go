package delivery

import (
	"context"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/spotworker/spotworker/internal/breaker"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/control"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/haste"
	"github.com/spotworker/spotworker/internal/health"
	"github.com/spotworker/spotworker/internal/inputs"
	"github.com/spotworker/spotworker/internal/joblog"
	"github.com/spotworker/spotworker/internal/outputs"
	"github.com/spotworker/spotworker/internal/presence"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/renewal"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/tracing"
	"github.com/spotworker/spotworker/job"
)

// parallelWrites is how many small writes of records run at once while handlers run, as
// long as they are answered soon: see [drain.Gate].
const parallelWrites = 32

// Config is what a [Runner] is made of.
type Config struct {
	// Place returns the queue for a follow-up job of a handler.
	Place func(id string) (*queue.Queue, error)

	Poison   *queue.Queue    // receives messages whose jobs are dead-lettered
	OnDemand *queue.Queue    // receives jobs that are moved; nil if none are
	Payloads *queue.Payloads // the container of large payloads
	Records  *checkpoint.Store
	Fleet    *Fleet          // the heartbeats of all workers
	Inputs   *inputs.Fetcher // of jobs' input files; nil fetches none

	Outputs *outputs.Store // of files that jobs store for others; nil stores none

	Logs    *joblog.Store // of jobs' own logs; nil keeps none
	LogSize int           // bytes that are kept of each

	More []Stores // of further accounts; the fields above have those of the first

	Kinds       job.Kinds
	DefaultKind string // of messages that are not envelopes; empty rejects them
	MoveAfter   int    // interruptions after which a job is moved to OnDemand; 0 is never

	// Changeover is how long a job that moves waits on OnDemand. With it a job that may miss
	// its deadline is moved when it is released; 0 is never.
	Changeover time.Duration

	Visibility    time.Duration // the visibility timeout while nothing is throttled
	PayloadMemory int64         // bytes of all payloads from blobs together
	Policy        checkpoint.Policy

	Departure *drain.Departure
	Drains    *drain.Set
	Losses    Losses
	Observer  Observer
	Loops     *health.Loops // for notes on open circuit breakers
	Jitter    retry.Jitter
	Started   time.Time       // when the process began to work
	Tracer    *tracing.Tracer // nil records no traces
	Log       *slog.Logger
}

// Losses says how VMs like this one are lost, for the checkpoint policy.
type Losses interface {
	// Losses sums up the ends of workers that are known.
	Losses() checkpoint.Losses

	// Unwarned reports whether an eviction would come without notice at now.
	Unwarned(now time.Time) bool
}

// Runner runs deliveries, and holds what they share. It lives as long as the
// process: its visibility estimate, circuit breakers and counters survive a drain
// that was cancelled.
type Runner struct {
	owner   string // the worker's name, as records show it
	machine string // the part of the name that all workers of this machine share

	place    func(id string) (*queue.Queue, error)
	accounts map[string]*account // by name
	fleet    *Fleet
	inputs   *inputs.Fetcher

	kinds       job.Kinds
	defaultKind string
	moveAfter   int
	changeover  time.Duration
	policy      checkpoint.Policy

	departure *drain.Departure
	drains    *drain.Set
	losses    Losses
	observer  Observer
	loops     *health.Loops
	jitter    retry.Jitter
	started   time.Time
	tracer    *tracing.Tracer
	log       *slog.Logger

	active        *registry
	running       runningJobs
	gate          *drain.Gate   // of the last writes of a drain
	smallWrites   *drain.Gate   // of writes while handlers run
	latency       haste.Latency // of storage's answers to small calls
	payloadMemory *semaphore.Weighted
	kindLimits    kindLimits
	breakers      breaker.Set
	quarantine    chan struct{} // holds one: the quarantined job that is running
	deferred      spacing
	counters      counters
	ends          average  // of what the ends of deliveries take, from the last write on
	putBackLines  logLimit // of messages that were put back
	lateLines     logLimit // of jobs that were not handed over in time
	breakerLines  logLimit // of circuit breakers that open
	logFaults     logLimit // of jobs' logs that could not be stored

	asked atomic.Pointer[control.Document] // what operators ask of all workers; nil if it is not known
}

// counters count how deliveries ended.
type counters struct {
	committed, released, leftOut, late atomic.Int64
}

// NewRunner returns a Runner without a name, see [Runner.SetOwner].
func NewRunner(c Config) *Runner {
	r := &Runner{
		place: c.Place, accounts: map[string]*account{}, fleet: c.Fleet, inputs: c.Inputs,
		kinds: c.Kinds, defaultKind: c.DefaultKind, moveAfter: c.MoveAfter, changeover: c.Changeover, policy: c.Policy,
		departure: c.Departure, drains: c.Drains, losses: c.Losses, observer: c.Observer, loops: c.Loops,
		jitter: c.Jitter, started: c.Started, tracer: c.Tracer, log: c.Log,
		active:        newRegistry(),
		payloadMemory: semaphore.NewWeighted(c.PayloadMemory), kindLimits: newKindLimits(c.Kinds, c.Jitter),
		quarantine: make(chan struct{}, 1),
	}
	first := Stores{Poison: c.Poison, OnDemand: c.OnDemand, Payloads: c.Payloads, Records: c.Records, Outputs: c.Outputs, Logs: c.Logs}
	for _, s := range append([]Stores{first}, c.More...) {
		r.accounts[s.In] = newAccount(s, c)
	}
	r.smallWrites = drain.NewGate(func() int { return parallelWrites })
	r.gate = drain.NewGate(func() int { return drain.Parallel(r.latency.Least(), runtime.GOMAXPROCS(0)) })
	return r
}

// SetOwner sets the worker's name. It must come before the first delivery.
func (r *Runner) SetOwner(worker string) {
	r.owner, r.machine = worker, machineOf(worker)
}

// machineOf returns the part of a worker's name that all workers of its machine
// share: the instance, which is the rest, has no dash.
func machineOf(worker string) string {
	if i := strings.LastIndexByte(worker, '-'); i >= 0 {
		return worker[:i]
	}
	return worker
}

func (r *Runner) uptime() time.Duration { return time.Since(r.started) }

// Follow sets what operators ask of all workers. Running jobs that may have been
// cancelled check their records at once, and deliveries that begin later know.
func (r *Runner) Follow(asked *control.Document) {
	r.asked.Store(asked)
	r.running.wakeAll()
}

// cancelledAt returns when the job may have been cancelled last, as far as operators
// announced that; zero if they did not.
func (r *Runner) cancelledAt(id string) time.Time {
	if asked := r.asked.Load(); asked != nil {
		return asked.CancelledAt(id)
	}
	return time.Time{}
}

// mayBeCancelled reports whether a message that was put at that time may be of a job
// that was cancelled while it waited.
func (r *Runner) mayBeCancelled(put time.Time) bool {
	asked := r.asked.Load()
	return asked != nil && asked.MustCheck(put)
}

// isPaused reports whether an operator paused a kind.
func (r *Runner) isPaused(kind string) bool {
	asked := r.asked.Load()
	if asked == nil {
		return false
	}
	_, paused := asked.PausedKinds[kind]
	return paused
}

// allPaused reports whether an operator paused every kind of this worker.
func (r *Runner) allPaused() bool {
	for kind := range r.kinds {
		if !r.isPaused(kind) {
			return false
		}
	}
	return true
}

// Visibility returns the visibility timeout to claim messages of a queue with, and how
// long after a claim they must be renewed.
func (r *Runner) Visibility(q *queue.Queue) (visibility, renewAfter time.Duration) {
	return r.accounts[q.Account()].renewals.Visibility()
}

// NewTries returns what bounds the tries of single calls once ctx has ended.
func (r *Runner) NewTries(ctx context.Context) *haste.Tries { return r.latency.NewTries(ctx) }

// Adopt reports whether the message of a new claim belongs to an active delivery,
// which continues under that claim. The caller must not open it.
func (r *Runner) Adopt(lease *queue.Lease) bool { return r.active.adopt(lease) }

// Has reports whether a message is work for this worker, as far as its kind goes.
func (r *Runner) Has(lease *queue.Lease) bool {
	kind, ok := lease.Kind()
	return !ok || r.kinds[kind] != nil
}

// Claimable returns how many messages the circuit breakers let the worker claim at
// now, limit at most, and if none, after what time that changes. While all of its kinds
// are paused that is none.
func (r *Runner) Claimable(limit int, now time.Time) (most int, wait time.Duration) {
	if r.allPaused() {
		return 0, pausedLook
	}
	return r.breakers.Claimable(limit, now)
}

// Jobs returns the ids of the active jobs in order.
func (r *Runner) Jobs() []string { return r.active.jobs() }

// Counts are a Runner's counters at one moment.
type Counts struct {
	Active    int   // deliveries now, duplicates of a job counted once
	Committed int64 // jobs committed
	Released  int64 // jobs released to another worker
	LeftOut   int64 // jobs released without their last state
	Late      int64 // jobs not handed over in time
}

// Counts returns the counters as they are now.
func (r *Runner) Counts() Counts {
	return Counts{
		Active:    len(r.active.jobs()),
		Committed: r.counters.committed.Load(), Released: r.counters.released.Load(), LeftOut: r.counters.leftOut.Load(),
		Late: r.counters.late.Load(),
	}
}

// Silence says how the running jobs report: the age of the oldest last report and of the
// oldest checkpoint, and how many jobs are silent for much longer than they were before.
func (r *Runner) Silence() (report, checkpoint time.Duration, silent int) {
	return r.running.silence()
}

// SaveAll asks every running job to save. The returned function waits for their
// answers, and returns how many jobs there were and how many could not save.
func (r *Runner) SaveAll() (wait func() (jobs, unsaved int)) {
	request := r.running.saveAll()
	return func() (jobs, unsaved int) {
		request.wait()
		return request.jobs, int(request.unsaved.Load())
	}
}

// RecheckAll makes every running job check again whether it can finish before the
// VM's departure.
func (r *Runner) RecheckAll() { r.running.wakeAll() }

// deferFor returns how long to hide a message whose kind others have, by the last
// sample of their heartbeats; 0 if this worker has the kind, or none is known to.
// The claim loop calls it through Open, so that messages are spaced out in the
// order in which they were claimed.
func (r *Runner) deferFor(kind, queue string) time.Duration {
	if r.kinds[kind] != nil {
		return 0
	}
	now := time.Now()
	has, lacking := r.fleet.last().whoHas(kind, queue, now)
	if has == presence.HasNot {
		return 0
	}
	return r.jitter.Vary(r.deferred.next(now, lacking))
}

// Observer counts deliveries, for metrics. The words that it gets are from short
// lists, never the name of a job or a blob. Its methods are called from many
// goroutines at once: they must be quick.
type Observer interface {
	// Delivered reports that a delivery began, and Ended its outcome: a word of
	// [Outcomes].
	Delivered()
	Ended(outcome string)

	// Started reports that a handler is called: for the "first" time, "resumed" from
	// a recorded state, or "again" because nothing was recorded.
	Started(how string)

	// Waited reports for how long the job had waited when its handler was called: since
	// it was put, since it was released, since it failed, or since the last write of
	// the worker that ended uncleanly (a word of [Waits]).
	Waited(after string, wait time.Duration)

	// Returned reports that a handler has returned, or was abandoned.
	Returned()

	// Spent reports for how long a handler ran, by the outcome of that time: a word of
	// [Efforts]. One run may be reported in two parts.
	Spent(kind, effort string, took time.Duration)

	// Committed reports a job that is done: the time since it was put, that in handlers
	// over all deliveries, and how often it was interrupted and lost its worker.
	Committed(kind string, sincePut, ran time.Duration, interruptions, exits int)

	// Failed reports a failure, or a job that was dead-lettered, with a word of
	// [FailureClasses]. Kinds that the worker does not have are "other".
	Failed(kind, class string)

	// Saved reports an attempt to record a state of that many bytes: "saved",
	// "fenced" because another worker owns the job by now, or "failed".
	Saved(result string, bytes int64, took time.Duration)

	// OutputSent reports that a job stored an output file of that many bytes.
	OutputSent(bytes int64)

	// Broke reports that the circuit breaker of a kind opened, or opened again, and
	// Recovered that it is closed.
	Broke(kind string)
	Recovered(kind string)

	// Refused reports a message that was put back because storage permanently
	// refused a blob of its job, with the service's error code.
	Refused(code string)

	// LeftOut reports a job that was released without its last state.
	LeftOut()

	// SteppedBack reports a job that resumes from the state before the last one, because
	// the last one cannot be used.
	SteppedBack()

	// Moved reports a job that was put on the on-demand queue, with a word of [Moves].
	Moved(reason string)

	// Circles reports a job that does not end: its 10th, 20th, 40th ... of
	// "failures" in all, or of "breaks" in a row.
	Circles(cause string)
}

// The words that an [Observer] gets.
const (
	startedFirst, startedResumed, startedAgain = "first", "resumed", "again"
	savedWell, savedFenced, savedFailed        = "saved", "fenced", "failed"
	circlesByFailures, circlesByBreaks         = "failures", "breaks"
	outcomeMoved                               = "moved" // released to the on-demand queue
	outcomeLeft                                = "left"  // its visibility timeout will expire
)

// Why a job was moved to the on-demand queue, as [Observer.Moved] reports it.
const movedForInterruptions, movedForDeadline = "interruptions", "deadline"

// What a job had waited for, as [Observer.Waited] reports it.
const (
	afterPut, afterRelease, afterFailure, afterExit = "put", "release", "failure", "exit"
)

// The outcome of the time of a handler, as [Observer.Spent] reports it.
const (
	effortCommitted  = "committed"
	effortHandedOver = "handed_over" // recorded for the next worker
	effortFailed     = "failed"
	effortRedone     = "redone" // not recorded, or in vain: another owns the job, or it was cancelled
)

// Why a job failed, as [Observer.Failed] reports it.
const (
	failedByError     = "error"
	failedPermanently = "permanent"
	failedByPanic     = "panic"
	failedSilent      = "silent"
	failedOverrun     = "overrun"
	failedTooLarge    = "too_large" // its state or its result
	failedByExits     = "exits"     // its workers ended uncleanly too often
	failedMessage     = "message"   // unreadable, or of other work or an unknown kind
)

// otherKind stands for all kinds that a worker does not have: a message may name any.
const otherKind = "other"

// outcomeWords are the actions as [Observer.Ended] reports them.
var outcomeWords = map[action]string{
	commit: "committed", interrupted: "released", retryLater: "failed", poison: "poisoned", reject: "poisoned",
	alreadyOver: "finished", putBack: "put_back", storageRefused: "put_back", requeue: "gave_way", skip: "gave_way", drop: "dropped",
}

// Outcomes returns the words that [Observer.Ended] gets.
func Outcomes() []string {
	return append(slices.Compact(slices.Sorted(maps.Values(outcomeWords))), outcomeMoved, outcomeLeft)
}

// Starts returns the words that [Observer.Started] gets.
func Starts() []string { return []string{startedFirst, startedResumed, startedAgain} }

// Saves returns the results that [Observer.Saved] gets.
func Saves() []string { return []string{savedWell, savedFenced, savedFailed} }

// Moves returns what [Observer.Moved] gets.
func Moves() []string { return []string{movedForInterruptions, movedForDeadline} }

// Waits returns what [Observer.Waited] gets.
func Waits() []string { return []string{afterPut, afterRelease, afterFailure, afterExit} }

// Efforts returns what [Observer.Spent] gets.
func Efforts() []string {
	return []string{effortCommitted, effortHandedOver, effortFailed, effortRedone}
}

// FailureClasses returns what [Observer.Failed] gets.
func FailureClasses() []string {
	return []string{failedByError, failedPermanently, failedByPanic, failedSilent, failedOverrun, failedTooLarge, failedByExits, failedMessage}
}

// FailedHere reports whether a class of failures is about a handler's run, and not about
// the message or earlier workers.
func FailedHere(class string) bool { return class != failedByExits && class != failedMessage }

// Circles returns the causes that [Observer.Circles] gets.
func Circles() []string { return []string{circlesByFailures, circlesByBreaks} }

// Stores are the queues and containers of one storage account of a deployment. All of a
// job is in the account of its message.
type Stores struct {
	In       string // the account's name; empty for the first
	Poison   *queue.Queue
	OnDemand *queue.Queue // nil if no job is moved
	Payloads *queue.Payloads
	Records  *checkpoint.Store
	Outputs  *outputs.Store // nil stores none
	Logs     *joblog.Store  // nil keeps none
}

// account is what the deliveries from one storage account share. What waits for its
// answers waits for no other account: its renewals and the writes of its logs.
type account struct {
	poison   *queue.Queue
	onDemand *queue.Queue
	payloads *queue.Payloads
	records  *checkpoint.Store
	outputs  *outputs.Store
	logs     *joblog.Keeper
	renewals *renewal.Set
	mover    mover
}

func newAccount(s Stores, c Config) *account {
	return &account{
		poison: s.Poison, onDemand: s.OnDemand, payloads: s.Payloads, records: s.Records, outputs: s.Outputs,
		logs: joblog.NewKeeper(s.Logs, c.LogSize), renewals: renewal.NewSet(c.Visibility),
	}
}
