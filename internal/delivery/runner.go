package delivery

import (
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/active"
	"github.com/spotworker/spotworker/internal/delivery/breaker"
	"github.com/spotworker/spotworker/internal/delivery/renewal"
	"github.com/spotworker/spotworker/internal/delivery/running"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/hedge"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/telemetry/health"
	"github.com/spotworker/spotworker/internal/telemetry/tracing"
	"github.com/spotworker/spotworker/job"
)

// parallelWrites is how many small writes of records run at once while handlers run, as
// long as they are answered soon: see [drain.Gate].
const parallelWrites = 32

// RunnerConfig is what a [Runner] is made of.
type RunnerConfig struct {
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

	active        *active.Set
	running       running.Set
	gate          *drain.Gate   // of the last writes of a drain
	smallWrites   *drain.Gate   // of writes while handlers run
	latency       hedge.Latency // of storage's answers to small calls
	payloadMemory *semaphore.Weighted
	kindLimits    kindLimits
	breakers      breaker.Set
	quarantine    chan struct{} // holds one: the quarantined job that is running
	deferred      spacing
	counters      counters
	ends          average   // of the time that the ends of deliveries take, from the last write on
	putBackLines  lineLimit // of messages that were put back
	lateLines     lineLimit // of jobs that were not handed over in time
	breakerLines  lineLimit // of circuit breakers that open
	logFaults     lineLimit // of jobs' logs that could not be stored

	asked atomic.Pointer[control.Document] // what operators ask of all workers; nil if it is not known
}

// counters count how deliveries ended.
type counters struct {
	committed, released, leftOut, late atomic.Int64
}

// NewRunner returns a Runner without a name, see [Runner.SetOwner].
func NewRunner(c RunnerConfig) *Runner {
	r := &Runner{
		place: c.Place, accounts: map[string]*account{}, fleet: c.Fleet, inputs: c.Inputs,
		kinds: c.Kinds, defaultKind: c.DefaultKind, moveAfter: c.MoveAfter, changeover: c.Changeover, policy: c.Policy,
		departure: c.Departure, drains: c.Drains, losses: c.Losses, observer: c.Observer, loops: c.Loops,
		jitter: c.Jitter, started: c.Started, tracer: c.Tracer, log: c.Log,
		active:        active.NewSet(),
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
	r.running.WakeAll()
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
func (r *Runner) NewTries(ctx context.Context) *hedge.Tries { return r.latency.NewTries(ctx) }

// Adopt reports whether the message of a new claim belongs to an active delivery,
// which continues under that claim. The caller must not open it.
func (r *Runner) Adopt(lease *queue.Lease) bool { return r.active.Adopt(lease) }

// ReleaseUnstarted makes messages visible again, as if they had not been claimed.
func (r *Runner) ReleaseUnstarted(ctx context.Context, leases []*queue.Lease) {
	var group errgroup.Group
	group.SetLimit(drain.LeastParallel)
	for _, lease := range leases {
		group.Go(func() error {
			if err := lease.Release(ctx, 0); err != nil {
				r.log.Log(ctx, outage.Level(err, slog.LevelWarn), "message not released; it becomes visible when its visibility timeout expires",
					"message_id", lease.ID, "error", err)
			}
			return nil
		})
	}
	_ = group.Wait() // its functions return no error
}

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
func (r *Runner) Jobs() []string { return r.active.Jobs() }

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
		Active:    len(r.active.Jobs()),
		Committed: r.counters.committed.Load(), Released: r.counters.released.Load(), LeftOut: r.counters.leftOut.Load(),
		Late: r.counters.late.Load(),
	}
}

// Silence says how the running jobs report: the age of the oldest last report and of the
// oldest checkpoint, and how many jobs are silent for much longer than they were before.
func (r *Runner) Silence() (report, checkpoint time.Duration, silent int) {
	return r.running.Silence()
}

// SaveAll asks every running job to save. The returned function waits for their
// answers, and returns how many jobs there were and how many could not save.
func (r *Runner) SaveAll() (wait func() (jobs, unsaved int)) {
	return r.running.SaveAll().Wait
}

// RecheckAll makes every running job check again whether it can finish before the
// VM's departure.
func (r *Runner) RecheckAll() { r.running.WakeAll() }

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

// account is the state that the deliveries from one storage account share. Its renewals and
// the writes of its logs wait for no other account.
type account struct {
	poison   *queue.Queue
	onDemand *queue.Queue
	payloads *queue.Payloads
	records  *checkpoint.Store
	outputs  *outputs.Store
	logs     *joblog.Keeper
	renewals *renewal.Set
	moveRest moveRest
}

func newAccount(s Stores, c RunnerConfig) *account {
	return &account{
		poison: s.Poison, onDemand: s.OnDemand, payloads: s.Payloads, records: s.Records, outputs: s.Outputs,
		logs: joblog.NewKeeper(s.Logs, c.LogSize), renewals: renewal.NewSet(c.Visibility),
	}
}
