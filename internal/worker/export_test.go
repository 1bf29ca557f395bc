package worker

import (
	"context"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/preempt"
	"github.com/spotworker/spotworker/internal/queue"
)

// What tests of package worker_test see of a worker beside its exported surface.

const (
	BlindFor     = blindFor
	LastRunHolds = lastRunHolds
	LossesFirst  = lossesFirst
	LossesEvery  = lossesEvery
)

func (w *Worker) Drains() int               { return w.drains.Len() }
func (w *Worker) Jobs() []string            { return w.runner.Jobs() }
func (w *Worker) Taken() []*queue.Queue     { return w.sources.Taken() }
func (w *Worker) Losses() checkpoint.Losses { return w.losses.Losses() }
func (w *Worker) Evict(n preempt.Notice)    { eventTarget{w}.Evict(n) }

// TakesRead reports whether Recover uses what warm-up read that long ago.
func (w *Worker) TakesRead(ctx context.Context, age time.Duration) bool {
	read := &lastRun{at: time.Now().Add(-age)}
	w.heartbeat.lastRun = read
	return w.takeLastRun(ctx) == read && w.heartbeat.lastRun == nil
}
