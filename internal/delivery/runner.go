package delivery

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery/active"
	"github.com/spotworker/spotworker/internal/delivery/breaker"
	"github.com/spotworker/spotworker/internal/delivery/lacking"
	"github.com/spotworker/spotworker/internal/delivery/renewal"
	"github.com/spotworker/spotworker/internal/delivery/running"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/jobfiles/inputs"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/telemetry/health"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/internal/telemetry/tracing"
	"github.com/spotworker/spotworker/job"
)

// parallelWrites is how many small writes of records run at once while handlers run, as
// long as they are answered soon: see [drain.Gate].
const parallelWrites = 32

// Settings are the settings of deliveries. The configuration of a worker holds them, and all parts
// of the worker share them.
type Settings struct {
	// Stores are the queues and containers of the deployment. Without a queue OnDemand or First
	// jobs are not moved there, and without Outputs or Logs they store no files or keep no logs.
	Stores *deployment.Stores

	// Kinds are the handlers.
	Kinds job.Kinds

	// DefaultKind is the kind of messages that are not envelopes. Empty sends them to the
	// poison queue.
	DefaultKind string

	// Inputs fetches the input files of jobs. Without it jobs that name any are left to
	// other workers.
	Inputs *inputs.Fetcher

	// Devices are the devices of this machine that jobs reserve. Default: none.
	Devices Devices

	// LogSize is the size up to which each job's log is kept, in bytes: [joblog.MinSize] …
	// [joblog.MaxSize]. Default: [joblog.DefaultSize].
	LogSize int

	// MoveAfter is how many interruptions move a job that is released to the on-demand
	// queue, this one included; 0, the default, is never.
	MoveAfter int

	// Changeover is how long a job that moves waits there for a worker: for its VM to
	// start, and its state to be read. With it, a job that may miss its deadline moves to
	// the on-demand queue when it is released, when it is claimed again, or when a search
	// finds that it waits; 0, the default, is never. Up to 24 h.
	Changeover time.Duration

	// Visibility is the visibility timeout of active messages, and so the time after
	// which the jobs of a dead worker resume elsewhere. Messages are renewed every
	// third of it. Throttling makes it longer for a while. 3 s … 5 min, default 30 s.
	Visibility time.Duration

	// PayloadMemory bounds the bytes of payloads that all jobs hold at once, except
	// payloads of up to 48 KiB in messages. A job waits in its slot until there is room. At
	// least [queue.MaxPayload], default 1 GiB.
	PayloadMemory int64

	// Policy says when a running job's record is written.
	// Default: [checkpoint.DefaultPolicy].
	Policy checkpoint.Policy

	// Loops get the loops whose health is the health of the process. Default: loops that
	// are not checked.
	Loops *health.Loops

	// Jitter varies delays at random. Tests that must repeat exactly replace it.
	Jitter retry.Jitter

	// Tracer records traces of the jobs. Default: none.
	Tracer *tracing.Tracer

	// Log gets one line for each event. Default: none.
	Log *slog.Logger
}

// Parts are what a [Runner] gets from its worker.
type Parts struct {
	*Settings

	// Place returns the queue for a follow-up job of a handler.
	Place func(id string) *queue.Queue

	// Slots is how many jobs the worker runs at once.
	Slots int

	Fleet     *Fleet // the heartbeats of all workers
	Departure *drain.Departure
	Drains    *drain.Set
	Losses    Losses
	Observe   observe.Observer
	Started   time.Time // when the process began to work
}

// Losses says how VMs like this one are lost, for the checkpoint policy.
type Losses interface {
	// Losses sums up the ends of workers that are known.
	Losses() checkpoint.Losses

	// Unwarned reports whether an eviction would come without notice at now.
	Unwarned(now time.Time) bool
}

// Runner runs deliveries, and holds the state that they share. It lives as long
// as the process: its visibility estimate, circuit breakers and counters survive
// a drain that was cancelled.
type Runner struct {
	Parts
	owner   string // the worker's name, as records show it
	machine string // the part of the name that all workers of this machine share

	logKeeper *joblog.Keeper
	renewals  *renewal.Set
	moveRest  rest // of moves to the on-demand queue
	firstRest rest // of moves to the queue First
	counts    counts
	runs      average // of how long jobs run that are done

	active        *active.Set
	running       running.Set
	gate          *drain.Gate // of the last writes of a drain
	smallWrites   *drain.Gate // of writes while handlers run
	payloadMemory *semaphore.Weighted
	kindLimits    kindLimits
	deviceLine    line // of the jobs that wait for devices
	breakers      breaker.Set
	quarantine    chan struct{} // holds one: the quarantined job that is running
	deferred      spacing
	lacking       lacking.Set // messages of kinds that no worker has
	listRest      rest        // of listings of heartbeats for moves
	unlike        lacking.Set // messages of jobs with a state for which no worker has the machine
	tooLarge      lacking.Set // messages of jobs that need more devices than this machine has, see [presence.ForGPUs]
	counters      counters
	ends          average // of the time that the ends of deliveries take, from the last write on
	lines         lineLimits

	asked atomic.Pointer[control.Document] // what operators ask of all workers; nil if it is not known
}

// lineLimits bound the lines of the log that are alike.
type lineLimits struct {
	putBack   lineLimit // messages that were put back
	late      lineLimit // jobs that were not handed over in time
	breakers  lineLimit // circuit breakers that open
	logFaults lineLimit // jobs' logs that could not be stored
}

// counters count how deliveries ended.
type counters struct {
	committed, released, leftOut, late, lost atomic.Int64
}

// NewRunner returns a Runner without a name, see [Runner.SetOwner].
func NewRunner(c Parts) *Runner {
	return &Runner{
		Parts: c, logKeeper: joblog.NewKeeper(c.Stores.Logs, c.LogSize), renewals: renewal.NewSet(c.Visibility),
		active:        active.NewSet(),
		payloadMemory: semaphore.NewWeighted(c.PayloadMemory), kindLimits: newKindLimits(c.Kinds),
		quarantine:  make(chan struct{}, 1),
		gate:        drain.NewGate(drain.Parallel),
		smallWrites: drain.NewGate(parallelWrites),
	}
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

func (r *Runner) uptime() time.Duration { return time.Since(r.Started) }

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
	for kind := range r.Kinds {
		if !r.isPaused(kind) {
			return false
		}
	}
	return true
}

// ClaimVisibility returns the visibility timeout to claim messages with, and how long after a
// claim they must be renewed.
func (r *Runner) ClaimVisibility() (visibility, renewAfter time.Duration) {
	return r.renewals.Visibility()
}

// Adopt reports whether the message of a new claim belongs to an active delivery,
// which continues under that claim. The caller must not open it.
func (r *Runner) Adopt(lease *queue.Lease) bool { return r.active.Adopt(lease) }

// ReleaseUnstarted makes messages visible again, as if they had not been claimed.
func (r *Runner) ReleaseUnstarted(ctx context.Context, leases []*queue.Lease) {
	var group errgroup.Group
	group.SetLimit(drain.Parallel)
	for _, lease := range leases {
		group.Go(func() error {
			if err := lease.Release(ctx, 0); err != nil {
				r.Log.Log(ctx, outage.Level(err, slog.LevelWarn), "message not released; it becomes visible when its visibility timeout expires",
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
	return !ok || r.Kinds[kind] != nil
}

// Claimable returns how many messages the circuit breakers let the worker claim at now,
// limit at most, and if none, how long to wait until that changes. While all of its
// kinds are paused it may claim none.
func (r *Runner) Claimable(limit int, now time.Time) (most int, wait time.Duration) {
	if r.allPaused() {
		return 0, pausedLook
	}
	return r.breakers.Claimable(limit, now)
}

// Jobs returns the ids of the active jobs in order.
func (r *Runner) Jobs() []string { return r.active.Jobs() }

// Running returns how far the jobs are whose handlers run, in the order of their ids.
func (r *Runner) Running() []presence.Running { return r.running.Show() }

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

// Lost returns the work of all interrupted runs that no record has.
func (r *Runner) Lost() time.Duration { return time.Duration(r.counters.lost.Load()) }

// Sight is what an observer sees of the jobs at one moment.
type Sight struct {
	// Report is the age of the oldest last report of the running jobs, and Checkpoint of
	// their oldest checkpoint.
	Report, Checkpoint time.Duration

	// Silent is how many of them are silent for unusually long, and SilentJob one of them.
	Silent    int
	SilentJob string

	// Lacking is how many jobs of each kind wait because no live worker has the kind.
	Lacking map[string]int

	// Unlike is the same for jobs whose state needs another machine than any live worker has.
	Unlike map[string]int

	// TooLarge is how many jobs wait because they need more devices than this machine has, by
	// [presence.ForGPUs].
	TooLarge map[string]int
}

// Sight looks at the jobs.
func (r *Runner) Sight() Sight {
	now := time.Now()
	s := Sight{Lacking: r.lacking.Count(now), Unlike: r.unlike.Count(now), TooLarge: r.tooLarge.Count(now)}
	var longest *running.Job
	if s.Report, s.Checkpoint, s.Silent, longest = r.running.Silence(); longest != nil {
		s.SilentJob = longest.Show().ID
	}
	return s
}

// SaveAll asks every running job to save. The returned function waits for their
// answers, and returns how many jobs there were and how many could not save.
func (r *Runner) SaveAll() (wait func() (jobs, unsaved int)) {
	return r.running.SaveAll().Wait
}

// RecheckAll makes every running job check again whether it can finish before the
// VM's departure.
func (r *Runner) RecheckAll() { r.running.WakeAll() }
