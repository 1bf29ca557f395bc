package worker

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/lifecycle"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/telemetry/observe"
	"github.com/spotworker/spotworker/internal/worker/sources"
	"github.com/spotworker/spotworker/job"
)

const (
	// namePatience is how long warm-up waits for the VM's name. The service may
	// be slow to start; a worker without a name works, under its host's name.
	namePatience = 15 * time.Second
)

// checkHolds is how long a check of the storage holds for a worker that is about to take
// jobs: longer than the way there from warm-up.
const checkHolds = time.Minute

// warmUpDelays and resumeDelays are the waits between checks of a storage that is not
// ready: while a worker starts, and when it was ready before, so that the storage may
// answer again at any moment.
var (
	warmUpDelays = retry.Backoff{First: time.Second, Max: 30 * time.Second}
	resumeDelays = retry.Backoff{First: time.Second, Max: 8 * time.Second}
)

// warmUp chooses the worker's name and waits until the storage answers. It returns false
// if ctx ended first.
func (w *Worker) warmUp(ctx context.Context) bool {
	if w.name == "" {
		w.name = w.chooseName(ctx)
		w.OnName(w.name)
		w.runner.SetOwner(w.name)
		for kind := range w.Kinds {
			w.Observe(observe.Recovered{Kind: kind})
		}
		w.Log.InfoContext(ctx, "worker starts", "version", w.Program, "account", w.Stores.Account.Host(), "concurrency", w.Concurrency,
			"take_from", queue.Names(sources.Chosen(w.Stores, w.TakeFrom)), "move_after", w.MoveAfter, "changeover", w.Changeover)
	}
	return w.awaitStorage(ctx, warmUpDelays, w.checkAndRead)
}

// checkAndRead checks the storage, and reads at the same time what Recover needs: one round
// trip less. Nothing of the reads takes effect before the storage has answered.
func (w *Worker) checkAndRead(ctx context.Context) error {
	var run *lastRun
	var group sync.WaitGroup
	group.Go(func() { run = w.readLastRun(ctx) })
	err := w.sources.Check(ctx)
	group.Wait()
	if ctx.Err() == nil {
		w.heartbeat.lastRun = run
	}
	return err
}

// resume waits until the storage answers, if it was not checked for a while: after hours
// without work, roles and network may have changed. It returns false if ctx ended first.
func (w *Worker) resume(ctx context.Context) bool {
	return time.Since(w.checkedAt) < checkHolds || w.awaitStorage(ctx, resumeDelays, w.sources.Check)
}

// awaitStorage waits until the storage answers. It logs faults that an operator must
// fix, and tries again: a role assignment or a queue may be on its way. It returns
// false if ctx ended first.
func (w *Worker) awaitStorage(ctx context.Context, delays retry.Backoff, check func(context.Context) error) bool {
	var last notice
	for failures := 1; ; failures++ {
		w.loops.enter(lifecycle.Start, time.Now())
		err := check(ctx)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			w.checkedAt = time.Now()
			return true
		}
		delay := delays.Delay(failures)
		level := slog.LevelDebug
		if last.due(outage.Gist(err), time.Now()) {
			level = slog.LevelError
		}
		w.Log.Log(ctx, level, "storage is not ready; no job is lost, trying again", "error", err, "retry_in", delay)
		if retry.Sleep(ctx, delay) != nil {
			return false
		}
	}
}

// noticeEvery is the time between two lines that say the same.
const noticeEvery = time.Minute

// notice is a line that is logged again and again while something lasts.
type notice struct {
	gist string
	at   time.Time
}

// due reports whether the line is to be logged at now: at first, when its gist
// changed, and once per noticeEvery.
func (n *notice) due(gist string, now time.Time) bool {
	if n.gist == gist && now.Sub(n.at) < noticeEvery {
		return false
	}
	*n = notice{gist, now}
	return true
}

// checkStorage makes one call to everything that jobs will need besides the queues that they
// are taken from.
func (w *Worker) checkStorage(ctx context.Context) error {
	s := w.Stores
	checks := []func(context.Context) error{s.Records.Check, s.Payloads.Check}
	if w.moves() && !slices.Contains(w.TakeFrom, sources.OnDemand) {
		onDemand := func(ctx context.Context) error { _, err := s.OnDemand.Depth(ctx); return err }
		checks = append([]func(context.Context) error{onDemand}, checks...)
	}
	for _, handler := range w.Kinds {
		if _, has := job.OutputLimitsOf(handler); has {
			checks = append(checks, s.Outputs.Check)
			break
		}
	}
	return sources.All(ctx, checks)
}

// surveyed returns the queues that jobs are taken from, the queues that jobs are moved
// to, and the poison queue.
func (w *Worker) surveyed() []*queue.Queue {
	queues := slices.Clone(w.sources.Taken())
	if w.moves() && !slices.Contains(queues, w.Stores.OnDemand) {
		queues = append(queues, w.Stores.OnDemand)
	}
	return append(queues, w.Stores.Poison)
}

// chooseName returns the worker's name: the VM's with the start of its id, since a
// scale set uses names again, and the instance on it.
func (w *Worker) chooseName(ctx context.Context) string {
	if w.Metadata == nil {
		return w.Host + "-" + w.Instance
	}
	identity := w.events.WaitIdentity(ctx, namePatience)
	if identity.Name == "" {
		return w.Host + "-" + w.Instance
	}
	const shortID = 8
	id := identity.VMID[:min(len(identity.VMID), shortID)]
	if id == "" { // the name is from a flag, and the service does not answer
		return identity.Name + "-" + w.Instance
	}
	return strings.Join([]string{identity.Name, id, w.Instance}, "-")
}
