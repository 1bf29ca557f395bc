package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/drain"
	"github.com/spotworker/spotworker/internal/events"
	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/internal/worker/queuestats"
	"github.com/spotworker/spotworker/internal/worker/sources"
	"github.com/spotworker/spotworker/internal/worker/waiting"
	"github.com/spotworker/spotworker/job"
)

// Worker goes through the states of package lifecycle until it is asked to end. It
// takes up work again when an announced event is withdrawn.
type Worker struct {
	Config
	started   time.Time
	machine   *lifecycle.Machine
	departure *drain.Departure
	events    *events.Responder
	heartbeat *heartbeat
	steering  *steering
	meter     *activity.Meter
	losses    *lossEstimate
	depths    activity.QueueHistory
	fleet     *delivery.Fleet
	loops     loops
	sources   *sources.Sources
	runner    *delivery.Runner
	name      string    // set by warm-up; with the VM's name where that is known
	checkedAt time.Time // when the storage answered a check; the loop's of Run alone
	drains    drain.Set
	tasks     sync.WaitGroup

	mu   sync.Mutex              // makes an interruption one step with the phase it ends
	stop context.CancelCauseFunc // ends the phase under way
}

// New returns a worker. The error says what to change in the configuration.
func New(c Config) (*Worker, error) {
	c.setDefaults()
	if err := c.Validate(); err != nil {
		return nil, err
	}
	now := time.Now()
	meter := activity.NewMeter(c.Concurrency)
	c.Observe = metered(c.Observe, meter)
	w := &Worker{
		Config: c, meter: meter, started: now, loops: newLoops(c.Loops, now), departure: drain.NewDeparture(),
		fleet: delivery.NewFleet(c.Stores.Workers), losses: &lossEstimate{},
		stop: func(error) {}, // a notice may come before the first phase
	}
	w.sources = sources.New(&w.Settings, c.TakeFrom, w.checkStorage)
	w.machine = lifecycle.NewMachine(w.transition)
	w.heartbeat = newHeartbeat(w)
	w.events = events.New(events.ResponderConfig{
		Worker: eventTarget{w}, Client: c.Metadata, Departure: w.departure, Runtime: c.Runtime, Presences: c.Stores.Workers,
		Acknowledge: c.Acknowledge, VMName: c.VMName, Observe: c.Observe, Loop: w.loops.watch, OnVM: c.OnVM, Log: c.Log,
	})
	w.runner = delivery.NewRunner(delivery.Parts{
		Settings: &w.Settings, Place: w.sources.Place, Slots: c.Concurrency, Fleet: w.fleet, Departure: w.departure, Drains: &w.drains,
		Losses:  w.losses,
		Observe: c.Observe, Started: now,
	})
	w.steering = &steering{worker: w, store: c.Stores.Control, runner: w.runner}
	c.Observe(observe.Watching{Look: w.look})
	return w, nil
}

// look returns figures that the observer asks for at any time.
func (w *Worker) look() observe.Sight {
	s, lacking := w.runner.Sight(), 0
	for _, waiting := range []map[string]int{s.Lacking, s.Unlike} {
		for _, n := range waiting {
			lacking += n
		}
	}
	return observe.Sight{Report: s.Report, Checkpoint: s.Checkpoint, Silent: s.Silent, Lacking: lacking}
}

// Position returns the state that the worker is in, and the facts beside it.
func (w *Worker) Position() lifecycle.Position { return w.machine.Position() }

// Name returns the worker's name, which it has from its warm-up on.
func (w *Worker) Name() string { return w.name }

// ActiveJobs returns how many jobs the worker has claimed and not ended.
func (w *Worker) ActiveJobs() int { return w.runner.Counts().Active }

// Run works until ctx ends, which counts as SIGTERM, or until the worker was idle for
// ExitWhenIdle, and all active jobs are released or the drain's time is over. It returns nil
// then.
func (w *Worker) Run(ctx context.Context) error {
	background, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer w.tasks.Wait()
	defer cancel()
	w.tasks.Go(func() { w.events.Run(background) })
	w.tasks.Go(func() { w.losses.run(background, w) })
	w.tasks.Go(func() { w.queueSurvey().Run(background) })
	w.tasks.Go(func() { w.sources.Follow(background) })
	defer context.AfterFunc(ctx, func() { w.terminate("asked to end") })()

	for {
		phase, end := w.beginPhase(background)
		w.loops.enter(phase.state, time.Now())
		err := w.inState(background, phase)
		end()
		switch {
		case errors.Is(err, lifecycle.ErrStopped):
			return nil
		case err != nil && !errors.Is(err, lifecycle.ErrRefused):
			return err
		}
	}
}

// queueSurvey reads the queues for metrics: not in a drain, nor while the worker starts.
// A worker that operators keep from work also reads.
func (w *Worker) queueSurvey() queuestats.Survey {
	s := queuestats.Survey{
		Queues: w.surveyed, Working: w.fleet.Working, Report: w.queueRead, Jitter: w.Jitter, Log: w.Log,
		Logs: func() bool { return w.machine.State() == lifecycle.Process },
		MayRead: func() bool {
			state := w.machine.State()
			followed := w.steering.followed.Load()
			return state == lifecycle.Process || state == lifecycle.Shutdown && followed != nil && followed.asked != ""
		},
	}
	if w.PublishDepth != nil {
		s.Publish, s.Jobs = w.PublishDepth, w.Stores.Queue.Name()
		if w.Stores.First != nil {
			s.First = w.Stores.First.Name()
		}
		s.Publishing = func(ctx context.Context) int { return w.fleet.Publishing(ctx, w.DepthsOf) }
	}
	return s
}

// queueRead reports the length of a queue, and keeps it for the heartbeat.
func (w *Worker) queueRead(queue string, messages int, oldest time.Duration) {
	w.depths.Add(activity.QueueReading{Queue: queue, Messages: messages, At: time.Now()})
	w.Observe(observe.QueueRead{Queue: queue, Messages: messages, Oldest: oldest})
}

// phase is the work of one state, until the state is left.
type phase struct {
	context.Context
	state lifecycle.State

	// stopped are the deliveries at its interruption, before any of them learned of it, and lost
	// is the work lost until then.
	stopped *delivery.Counts
	lost    *time.Duration
}

// beginPhase begins the phase of the present state. An interruption ends the phase and
// changes the state in one step, so that it cannot come between the two.
func (w *Worker) beginPhase(ctx context.Context) (p phase, end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := context.WithCancelCause(ctx)
	p = phase{ctx, w.machine.State(), &delivery.Counts{}, new(time.Duration)}
	w.stop = func(cause error) {
		if ctx.Err() == nil {
			*p.stopped, *p.lost = w.runner.Counts(), w.runner.Lost()
		}
		cancel(cause)
	}
	if p.state == lifecycle.Process {
		w.drains.Reset()
	}
	return p, func() { cancel(nil) }
}

// interrupt ends the phase under way with d as the cause, and applies event.
func (w *Worker) interrupt(event lifecycle.Event, why string, d *drain.Drain) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drains.Impose(d)
	w.stop(d)
	_ = w.apply(event, why) // refused only when the worker has stopped already
}

// hold drains the worker because an operator asks for that. Afterwards it idles until
// [lifecycle.Unhold]. A drain that is under way for another reason keeps its deadlines.
func (w *Worker) hold(why string) {
	if s := w.machine.State(); s == lifecycle.Shutdown || s == lifecycle.Stopped {
		_ = w.apply(lifecycle.Hold, why) // refused only when the worker has stopped already
		return
	}
	w.interrupt(lifecycle.Hold, why, drain.New(job.Drained, errors.New(why), time.Now(), w.DrainBudget))
}

// inState does the work of a state and applies the event that ends it. If the table
// refuses the event, an interruption came first: the next phase sees the new state.
// background outlives the phase.
func (w *Worker) inState(background context.Context, p phase) error {
	switch p.state {
	case lifecycle.Start:
		if !w.warmUp(p) {
			return nil
		}
		return w.apply(lifecycle.Warm, "storage answers")
	case lifecycle.Recover:
		return w.apply(lifecycle.Known, w.recallLastRun(p, background))
	case lifecycle.Resume:
		if !w.resume(p) {
			return nil
		}
		return w.apply(lifecycle.Ready, "taking work")
	case lifecycle.Process:
		w.work(p)
		return w.apply(lifecycle.Drained, "no job is active")
	case lifecycle.Shutdown:
		return w.rest(p)
	case lifecycle.Stopped:
		return lifecycle.ErrStopped
	default:
		return fmt.Errorf("worker is in unknown state %s", p.state)
	}
}

// work is Process: it runs jobs until it is interrupted. It tells the other workers of
// the VM that there may be work, and starts no job under an event that it left for
// before.
func (w *Worker) work(p phase) {
	if w.Runtime != nil {
		done, known, err := w.Runtime.BeginWork(p)
		defer done()
		if err != nil {
			w.Log.WarnContext(p, "runtime folder not written: another worker of this VM may acknowledge an event while this one has jobs", "error",
				err)
		}
		w.events.AddLeft(events.FromFolder(known))
	}
	w.events.WaitSettled(p)
	w.runJobs(p)
}

// runJobs claims and runs jobs until the phase ends, whose cause is a [*drain.Drain]. It
// returns when everything is released or the drain's time is over.
func (w *Worker) runJobs(p phase) {
	var deliveries sync.WaitGroup
	stopped := make(chan struct{})
	cleanup, cancel := drain.Outlive(p, drain.UntilEnd)
	defer cancel()
	// Not after the claim loop: that may take a second to see the stop, while jobs
	// are released already.
	context.AfterFunc(p, func() {
		defer close(stopped)
		w.loops.drain(drain.Of(p), time.Now())
		deliveries.Go(func() { w.runner.CountQueues(cleanup) })
	})
	var searches sync.WaitGroup
	searches.Go(func() { w.countFleet(p) })
	searches.Go(func() { waiting.Run(p, cleanup, w.search(), &deliveries) })
	w.claimLoop(p, cleanup, &deliveries)
	searches.Wait()
	<-stopped
	deliveries.Wait()
	w.reportDrained(p, *p.stopped, *p.lost)
}

// countAfter is how long a worker that begins to work waits until it counts the workers, and
// until it counts them again. Most of those that began with it have written their heartbeats
// after the first wait, the others after the second.
var countAfter = [...]time.Duration{100 * time.Millisecond, 400 * time.Millisecond}

// countFleet samples the heartbeats, for the pace of claims.
func (w *Worker) countFleet(ctx context.Context) {
	for _, wait := range countAfter {
		if retry.Sleep(ctx, wait) != nil {
			return
		}
		if _, err := w.fleet.Sample(ctx, 0); err != nil {
			w.Log.DebugContext(ctx, "workers not counted; claims begin slowly", "error", err)
		}
	}
}

// search returns what the search for jobs that wait does. It claims messages when the claim loop
// may: claiming is not paused, and the VM will not go soon.
func (w *Worker) search() waiting.Search {
	return waiting.Search{
		TakesSpot: slices.Contains(w.TakeFrom, sources.Spot), TakesOnDemand: slices.Contains(w.TakeFrom, sources.OnDemand),
		MayClaim: func() bool { paused, _ := w.steering.pause.current(); return !paused && !w.departure.Closed() },
		Runner:   w.runner,
	}
}

// reportDrained reports the end of a drain. before are the counts at its beginning, and
// lostBefore is the work lost until then.
func (w *Worker) reportDrained(ctx context.Context, before delivery.Counts, lostBefore time.Duration) {
	d := drain.Of(ctx)
	if d == nil {
		return
	}
	now, took, budget := w.runner.Counts(), time.Since(d.Seen), d.End().Sub(d.Seen)
	released, committed, leftOut := now.Released-before.Released, now.Committed-before.Committed, now.LeftOut-before.LeftOut
	late, lost := int(now.Late-before.Late)+now.Active, w.runner.Lost()-lostBefore
	w.Observe(observe.Drained{Reason: string(d.Reason), Took: took})
	w.heartbeat.keepDrain(presence.Drain{
		Reason: string(d.Reason), EndedAt: time.Now(), Took: took, Budget: budget, Jobs: before.Active,
		Released: int(released), Done: int(committed), LeftOut: int(leftOut), Left: late,
		Lost: lost,
	})
	level := slog.LevelInfo
	if late > 0 || leftOut > 0 {
		level = slog.LevelWarn
	}
	w.Log.Log(ctx, level, "drained", "jobs", before.Active, "released", released, "committed", committed,
		"states_left_out", leftOut, "not_handed_over", late, "work_lost", lost, "since_notice", took, "budget", budget)
}

// rest is Shutdown after the drain: it waits for the end of the VM or of the process, or
// until the event is withdrawn.
func (w *Worker) rest(ctx context.Context) error {
	if !w.machine.Position().Facts.Has(lifecycle.WorkReleased) {
		return w.apply(lifecycle.Drained, "no job was active")
	}
	if _, err := w.machine.Wait(ctx, lifecycle.Recover, lifecycle.Start); ctx.Err() == nil {
		return err
	}
	return nil // interrupted: the next phase sees the new state
}

// terminate starts the drain for the end of the process.
func (w *Worker) terminate(why string) {
	w.interrupt(lifecycle.Terminate, why, drain.New(job.Shutdown, errors.New(why), time.Now(), w.DrainBudget))
}

func (w *Worker) apply(event lifecycle.Event, why string) error {
	_, err := w.machine.Apply(event, why)
	return err
}

// transition reports a transition of the machine.
func (w *Worker) transition(t lifecycle.Transition) {
	if t.From != t.To {
		w.Log.Info("state changed", "from", t.From.String(), "to", t.To.String(), "event", t.Event.String(), "reason", t.Why)
	}
	w.Observe(observe.Entered{State: t.To, Ending: w.machine.Position().Facts.Has(lifecycle.EndRequested)})
	w.heartbeat.trigger()
	w.events.Progressed()
}

// eventTarget is the worker as package events controls it. It implements
// [events.Worker].
type eventTarget struct{ worker *Worker }

func (c eventTarget) Position() lifecycle.Position { return c.worker.machine.Position() }

func (c eventTarget) Evict(n preempt.Notice) {
	d := drain.ForNotice(n)
	c.worker.interrupt(lifecycle.Notice, (&preempt.Error{Notice: n}).Error(), d)
}

func (c eventTarget) Hasten(n preempt.Notice) {
	if c.worker.drains.Impose(drain.ForNotice(n)) {
		c.worker.Log.Warn("drain shortened", "event_type", n.Type, "event_id", n.EventID, "reason", n.Reason, "left", time.Until(n.Deadline))
	}
}

func (c eventTarget) Withdraw() {
	_ = c.worker.apply(lifecycle.Withdrawn, "the event is no longer announced") // refused after the end
}

func (c eventTarget) SaveAll(done func(jobs, unsaved int)) {
	wait := c.worker.runner.SaveAll()
	c.worker.tasks.Go(func() { done(wait()) })
}

func (c eventTarget) Blind(since time.Time) {
	c.worker.Observe(observe.Blind{Since: since})
	if c.worker.losses.blind(since) {
		c.worker.heartbeat.trigger() // operators should know at once
	}
}

func (c eventTarget) RecordEvent(e presence.Event) { c.worker.heartbeat.keepEvent(e) }

func (c eventTarget) WriteHeartbeat(ctx context.Context) error {
	return c.worker.heartbeat.publish(ctx)
}
