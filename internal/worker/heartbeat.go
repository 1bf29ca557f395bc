package worker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"

	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/job"
)

const (
	// announcedPatience is how long a worker holds back from its first claim
	// until it is known whether its VM is already being evicted.
	announcedPatience = time.Second

	// lastWrite bounds the last write, which must not hold up the exit.
	lastWrite = time.Second

	// heartbeatSettle is how long a heartbeat waits for other transitions of the same
	// moment.
	heartbeatSettle = time.Millisecond
)

// heartbeat writes the worker's presence on every transition and every 15 s, and reads
// what operators ask every 15 s.
type heartbeat struct {
	worker  *Worker
	changed chan struct{} // holds one: a transition that was not written yet
	ready   atomic.Bool   // there is a presence to write
	writing chan struct{} // holds one: the writer, so that the newest heartbeat comes last

	lastRun *lastRun // read beside the check of the storage; the loop's of Run alone

	etag  azcore.ETag // of the last heartbeat written; the writer's alone
	rival string      // another living worker under this name, as last logged; the writer's alone

	mu        sync.Mutex // guards what follows
	lastEvent presence.Event
	lastDrain presence.Drain
	crashes   int // runs in a row that ended uncleanly soon after their start
}

func newHeartbeat(w *Worker) *heartbeat {
	return &heartbeat{
		worker: w, changed: make(chan struct{}, 1),
		writing: make(chan struct{}, 1),
	}
}

// trigger asks for a write soon. It does not wait.
func (b *heartbeat) trigger() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// run writes heartbeats until ctx ends, and a last one then.
func (b *heartbeat) run(ctx context.Context) {
	ticker := time.NewTicker(presence.Every)
	defer ticker.Stop()
	defer b.worker.loops.heartbeat.Rest()
	for ctx.Err() == nil {
		b.worker.loops.heartbeat.Turn(time.Now(), presence.Every+briefTurn)
		b.tryWrite(ctx)
		due := false
		select {
		case <-ctx.Done():
		case <-b.changed:
		case <-ticker.C:
			due = true
		}
		// Of two that come at once, or during one write, one read and one write take care.
		if retry.Sleep(ctx, heartbeatSettle) != nil {
			break
		}
		select {
		case <-b.changed:
		default:
		}
		select {
		case <-ticker.C:
			due = true
		default:
		}
		if due {
			b.worker.loops.heartbeat.Turn(time.Now(), presence.Every+briefTurn)
			b.worker.steering.take(ctx, b.worker.steering.fetch(ctx))
		}
	}
	b.writeLast(ctx)
}

// writeLast writes how the process ended; ctx has ended already.
func (b *heartbeat) writeLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWrite)
	defer cancel()
	b.tryWrite(ctx)
}

// publish writes at once, for others that must know before this worker continues. A
// worker that was never ready to work writes nothing.
func (b *heartbeat) publish(ctx context.Context) error {
	if !b.ready.Load() {
		return nil
	}
	return b.write(ctx)
}

func (b *heartbeat) tryWrite(ctx context.Context) {
	if err := b.write(ctx); err != nil && ctx.Err() == nil {
		b.worker.Log.Log(ctx, outage.Level(err, slog.LevelWarn), "heartbeat not written; spotctl shows an old one", "error", err)
	}
}

func (b *heartbeat) write(ctx context.Context) error {
	select {
	case b.writing <- struct{}{}:
		defer func() { <-b.writing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	w := b.worker
	event, drain := b.last()
	var steered followed
	follows := w.steering.followed.Load()
	if follows != nil {
		steered = *follows
	}
	vm := w.events.Identity()
	logEnd := ""
	if state := w.machine.State(); w.LogTail != nil && !drain.EndedAt.IsZero() && state >= lifecycle.Shutdown {
		logEnd = w.LogTail()
	}
	etag, rival, err := w.Stores.Workers.Rewrite(ctx, presence.Presence{
		Worker: w.name, State: w.machine.State().String(), StartedAt: w.started, At: time.Now(),
		Machine:   presence.Machine{VM: vm.Name, Size: vm.Size, Zone: vm.Zone, BootID: w.BootID},
		Program:   w.Program,
		TakesFrom: queue.Names(w.sources.Taken()), Kinds: slices.Collect(maps.Keys(w.Kinds)), Offers: w.offers(), GPUs: w.gpus(),
		Jobs: w.runner.Jobs(), Running: w.runner.Running(),
		Ready: w.events.Ready(), LastEvent: event, LastDrain: drain,
		Steered: follows != nil, Control: steered.revision, Asked: steered.asked, Depths: w.DepthsOf,
		Activity: w.meter.Report(), Findings: w.findings(), LogEnd: logEnd,
	}, b.etag)
	b.etag = etag
	name := ""
	if rival != nil {
		name = rival.StartedAt.String()
	}
	if name != b.rival && name != "" {
		w.Log.WarnContext(ctx, "another living worker has this worker's name, so each overwrites the other's heartbeat; give each worker of a "+
			"VM an --instance, and each VM a name", "vm_name", rival.VM, "since", rival.StartedAt)
	}
	b.rival = name
	return err
}

// shortRun is how long a run lasts that counts as a crash if it ends uncleanly.
const shortRun = 10 * time.Minute

// trouble is what is wrong with the worker or its machine.
func (w *Worker) trouble() (t presence.Trouble) {
	if w.Trouble != nil {
		t = w.Trouble()
	}
	t.Blind = w.losses.blindFor(time.Now())
	if time.Since(w.started) < shortRun {
		w.heartbeat.mu.Lock()
		defer w.heartbeat.mu.Unlock()
		t.Crashes = w.heartbeat.crashes
	}
	return t
}

// offers returns the offers of the worker's handlers, for its heartbeat.
func (w *Worker) offers() (all []string) {
	for _, h := range w.Kinds {
		if offer := job.Offer(h); offer != "" {
			all = append(all, offer)
		}
	}
	return all
}

// gpus returns how many GPUs of the machine jobs can have.
func (w *Worker) gpus() int {
	if w.Devices == nil {
		return 0
	}
	return w.Devices.Count()
}

// findings are facts that the worker found and an operator should know.
func (w *Worker) findings() presence.Findings {
	s := w.runner.Sight()
	f := presence.Findings{
		Lacks: presence.CountLacks(s.Lacking), Unlike: presence.CountLacks(s.Unlike), TooLarge: presence.CountLacks(s.TooLarge),
		Silent: s.Silent, SilentJob: s.SilentJob, Calls: w.Calls.Report(),
		Trouble: w.trouble(),
	}
	now := time.Now()
	for _, r := range w.depths.Report(now) {
		f.Readings = append(f.Readings, presence.Reading{Queue: r.Queue, Messages: r.Messages, Age: now.Sub(r.At)})
	}
	return f
}

// last returns the last event and how the last drain ended.
func (b *heartbeat) last() (presence.Event, presence.Drain) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lastEvent, b.lastDrain
}

func (b *heartbeat) keepEvent(e presence.Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastEvent = e
}

func (b *heartbeat) keepDrain(d presence.Drain) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lastDrain = d
}

// countCrash counts the last run, which ended uncleanly, if it was short.
func (b *heartbeat) countCrash(last presence.Presence) {
	if last.At.Sub(last.StartedAt) >= shortRun {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.crashes = last.Findings.Trouble.Crashes + 1
}

// carryOver keeps the last event and drain that the last run wrote, as long as
// there are no newer ones.
func (b *heartbeat) carryOver(p presence.Presence) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.lastEvent == (presence.Event{}) {
		b.lastEvent = p.LastEvent
	}
	if b.lastDrain == (presence.Drain{}) {
		b.lastDrain = p.LastDrain
	}
}

// lastRun holds the readings of a starting worker: the heartbeat of its last run, and the requests
// of operators.
type lastRun struct {
	at       time.Time // before the reads
	presence presence.Listed
	found    bool
	err      error
	requests reading
}

// readLastRun reads both at once, and changes nothing.
func (w *Worker) readLastRun(ctx context.Context) *lastRun {
	l := &lastRun{at: time.Now()}
	var group sync.WaitGroup
	group.Go(func() { l.requests = w.steering.fetch(ctx) })
	l.presence, l.found, l.err = w.Stores.Workers.Read(ctx, w.name)
	group.Wait()
	return l
}

// lastRunHolds is the oldest reading of warm-up that a worker starts with: after a slow check
// of the storage, an operator may have asked for something that the next heartbeat would read
// only [presence.Every] later.
const lastRunHolds = 3 * time.Second

// takeLastRun returns the readings of warm-up, or newer ones if they are too old.
func (w *Worker) takeLastRun(ctx context.Context) *lastRun {
	l := w.heartbeat.lastRun
	w.heartbeat.lastRun = nil
	if l == nil || time.Since(l.at) > lastRunHolds {
		return w.readLastRun(ctx)
	}
	return l
}

// recallLastRun is Recover: it reads from the worker's own presence how its last run
// ended, and starts the heartbeat. It returns its finding, for the log.
func (w *Worker) recallLastRun(ctx, background context.Context) string {
	w.events.WaitDecided(ctx, announcedPatience)
	if w.heartbeat.ready.Load() {
		return "what kept it from work is over"
	}
	run := w.takeLastRun(ctx)
	last := run.presence
	if run.err == nil && run.found {
		w.losses.addLastRun(last.Presence, time.Now())
		w.heartbeat.carryOver(last.Presence)
	}
	w.events.AddLeft(last.Ready)
	w.steering.take(ctx, run.requests)
	w.heartbeat.ready.Store(true)
	defer w.tasks.Go(func() { w.heartbeat.run(background) })
	switch {
	case run.err != nil:
		w.Log.WarnContext(ctx, "heartbeat of the last run not read; how it ended is not known", "error", run.err)
		return "the last run is not known"
	case !run.found:
		return "first run under this name"
	case last.State == lifecycle.Stopped.String() || last.State == lifecycle.Shutdown.String() && len(last.Jobs) == 0:
		return "the last run ended in good order"
	}
	w.heartbeat.countCrash(last.Presence)
	w.Log.WarnContext(ctx, "last run was killed; its jobs are resumed when their visibility timeouts expire", "state", last.State,
		"last_seen", last.At, "job_ids", last.Jobs, "rebooted", last.BootID != w.BootID)
	return fmt.Sprintf("the last run was killed with %d active jobs", len(last.Jobs))
}
