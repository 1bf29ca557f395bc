package process

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/spotworker/spotworker/internal/process/scratch"
	"github.com/spotworker/spotworker/internal/process/tree"
	"github.com/spotworker/spotworker/job"
)

// pollInterval is how often the handler polls for a checkpoint and progress; see
// "Polling, not notification" in the package documentation.
const pollInterval = 250 * time.Millisecond

// run is one program that works on one job.
type run struct {
	job       *job.Job
	folder    *folder
	program   *tree.Program
	collector collector
	progress  progressFile
	disk      scratch.Watch
	outputs   *outputFolder
	log       *slog.Logger

	keepsPrevious bool // the kind keeps the checkpoint before the last one

	reported report // the last progress that the program reported
	warned   bool   // the warning about malformed progress was logged

	announcedDeadline time.Time // in the stop file; zero before a stop
}

func newRun(j *job.Job, k *Kind, f *folder, output *outputFolder, log *slog.Logger) *run {
	return &run{
		job: j, folder: f, outputs: output, keepsPrevious: k.KeepPrevious, log: log,
		collector: collector{user: f.User, from: f.checkpoint, dir: f.collected, log: log, limits: k.checkpointLimits()},
		progress:  progressFile{name: f.progress},
		disk:      scratch.Watch{Folder: f.Folder, Limit: k.Disk},
	}
}

// ended describes how a program ended.
type ended struct {
	exit   tree.Exit
	killed bool  // this handler sent SIGKILL
	fault  error // why the job cannot continue, such as a checkpoint that is too large

	stderrTail string // the end of its standard error
	oomKills   int64  // processes that the kernel killed while it ran, because memory ran out
}

// supervise polls a running program until it has ended. When ctx is cancelled it
// asks the program to stop, and kills it shortly before the deadline.
func (r *run) supervise(ctx context.Context) ended {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var end ended
	overdue := time.NewTimer(0)
	overdue.Stop()
	defer overdue.Stop()
	defer r.disk.Stop()
	for stopped := ctx.Done(); ; {
		select {
		case end.exit = <-r.program.Exited():
			r.collector.ended, r.collector.killed = true, end.killed
			if fault := r.poll(ctx); end.fault == nil { // the last poll
				end.fault = fault
			}
			return end
		case <-ticker.C:
			if end.fault == nil && !end.killed {
				end.fault = r.poll(ctx)
			}
			if end.fault != nil && !end.killed {
				end.killed = true
				r.program.Kill()
			}
			if r.deadlineMoved(ctx) {
				overdue.Reset(r.announceStop(ctx))
			}
		case <-stopped:
			stopped = nil
			overdue.Reset(r.stop(ctx))
		case <-overdue.C:
			end.killed = true
			r.program.Kill()
		}
	}
}

// stop asks the program to stop, and returns how much time it has.
func (r *run) stop(ctx context.Context) time.Duration {
	left := r.announceStop(ctx)
	r.program.AskToStop()
	return left
}

// announceStop writes the stop file, and returns how much time the program has.
func (r *run) announceStop(ctx context.Context) time.Duration {
	stop := job.StopOf(ctx)
	if stop == nil {
		stop = &job.Stop{Reason: job.Shutdown, Deadline: time.Now()}
	}
	r.announcedDeadline = stop.Deadline
	left := time.Until(stop.Deadline)
	left -= reserve(left)
	if err := r.folder.User.Do(func() error { return r.folder.writeStop(noteOf(stop, left)) }); err != nil {
		r.log.WarnContext(ctx, "stop file not written; the program gets SIGTERM without it", "error", err)
	}
	return left
}

// deadlineMoved reports whether a later notice leaves less time than the stop file
// says.
func (r *run) deadlineMoved(ctx context.Context) bool {
	stop := job.StopOf(ctx)
	return !r.announcedDeadline.IsZero() && stop != nil && stop.Deadline.Before(r.announcedDeadline)
}

// poll collects a new checkpoint and the latest progress, and checks the disk
// usage. An error means that the job cannot continue.
func (r *run) poll(ctx context.Context) error {
	return r.folder.User.Do(func() error { return r.collect(ctx) })
}

// untilStop returns a context that ends when a stop of which the program does not know yet
// is due.
func (r *run) untilStop(ctx context.Context) context.Context {
	if r.announcedDeadline.IsZero() && !r.collector.ended {
		return ctx
	}
	return context.WithoutCancel(ctx)
}

func (r *run) collect(ctx context.Context) error {
	state, err := r.collector.collect(r.untilStop(ctx))
	if err != nil {
		return err
	}
	last, bad := r.progress.read()
	if bad > 0 && !r.warned {
		r.warned = true
		r.log.WarnContext(ctx, `progress not understood: a line is {"fraction": 0.5, "text": "half of it"}, with a fraction from 0 to 1`, "lines", bad)
	}
	if last != nil {
		r.reported = *last
	}
	if state != nil || last != nil {
		if state == nil {
			state = &job.Progress{}
		}
		state.Fraction, state.Text = r.reported.Fraction, r.reported.Text
		r.job.Report(*state)
	}
	if err := r.outputs.look(time.Now()); err != nil {
		return err
	}
	return r.disk.Check(time.Now())
}

// hasResult reports whether the program has written a result.
func (r *run) hasResult() bool {
	return r.folder.User.Do(func() error {
		_, err := os.Lstat(r.folder.result)
		return err
	}) == nil
}
