package process

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/spotworker/spotworker/internal/archive"
	"github.com/spotworker/spotworker/job"
)

// lookEvery is how often a running program's checkpoint and progress are looked
// for; see "Looking, not listening" in the package documentation.
const lookEvery = 250 * time.Millisecond

// run is one program at work on one job.
type run struct {
	job      *job.Job
	folder   *folder
	program  *program
	keeper   keeper
	progress progressFile
	disk     diskWatch
	log      *slog.Logger

	told told // what the program said last
	warn bool // it was said that it cannot be understood

	deadline time.Time // of the stop, as the program was told; zero before one
}

func newRun(j *job.Job, k *Kind, f *folder, log *slog.Logger) *run {
	return &run{
		job: j, folder: f, log: log,
		keeper:   keeper{user: f.user, from: f.checkpoint, dir: f.kept, limits: archive.Limits{Bytes: k.maxCheckpoint(), Entries: maxEntries}},
		progress: progressFile{name: f.progress},
		disk:     diskWatch{folder: f, limit: k.Disk},
	}
}

// ended is how a program ended, as far as it was seen.
type ended struct {
	exit   exit
	killed bool  // we sent SIGKILL
	fault  error // why its work cannot go on: a checkpoint that cannot be kept, a full disk
}

// supervise looks after a program until it has ended. When ctx is cancelled the
// program is told, and ended if it is not gone a little before the deadline.
func (r *run) supervise(ctx context.Context) ended {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var end ended
	overdue := time.NewTimer(0)
	overdue.Stop()
	defer overdue.Stop()
	defer r.disk.stop()
	for stopped := ctx.Done(); ; {
		select {
		case end.exit = <-r.program.exited:
			if fault := r.look(ctx); end.fault == nil { // the last look
				end.fault = fault
			}
			return end
		case <-ticker.C:
			if end.fault == nil && !end.killed {
				end.fault = r.look(ctx)
			}
			if end.fault != nil && !end.killed {
				end.killed = true
				r.program.kill()
			}
			if r.isHastened(ctx) {
				overdue.Reset(r.tell(ctx))
			}
		case <-stopped:
			stopped = nil
			overdue.Reset(r.stop(ctx))
		case <-overdue.C:
			end.killed = true
			r.program.kill()
		}
	}
}

// stop tells the program to stop, and returns how much time it has for that.
func (r *run) stop(ctx context.Context) time.Duration {
	left := r.tell(ctx)
	r.program.askToStop()
	return left
}

// tell writes the stop file, and returns how much time the program has.
func (r *run) tell(ctx context.Context) time.Duration {
	stop := job.StopOf(ctx)
	if stop == nil {
		stop = &job.Stop{Reason: job.Shutdown, Deadline: time.Now()}
	}
	r.deadline = stop.Deadline
	left := time.Until(stop.Deadline)
	left -= reserve(left)
	if err := r.folder.user.Do(func() error { return r.folder.writeStop(noteOf(stop, left)) }); err != nil {
		r.log.WarnContext(ctx, "stop file not written; the program gets SIGTERM without it", "error", err)
	}
	return left
}

// isHastened reports whether a further notice leaves less time than the program
// was told.
func (r *run) isHastened(ctx context.Context) bool {
	stop := job.StopOf(ctx)
	return !r.deadline.IsZero() && stop != nil && stop.Deadline.Before(r.deadline)
}

// look takes what the program left since the last look: a checkpoint, and how
// far it is. The error says why the job cannot continue.
func (r *run) look(ctx context.Context) error {
	return r.folder.user.Do(func() error { return r.take(ctx) })
}

func (r *run) take(ctx context.Context) error {
	state, err := r.keeper.take()
	if err != nil {
		return err
	}
	last, bad := r.progress.read()
	if bad > 0 && !r.warn {
		r.warn = true
		r.log.WarnContext(ctx, `progress not understood: a line is {"fraction": 0.5, "text": "half of it"}, with a fraction from 0 to 1`, "lines", bad)
	}
	if last != nil {
		r.told = *last
	}
	if state != nil || last != nil {
		if state == nil {
			state = &job.Progress{}
		}
		state.Fraction, state.Text = r.told.Fraction, r.told.Text
		r.job.Report(*state)
	}
	return r.disk.look(time.Now())
}

// hasResult reports whether the program has put a result in place.
func (r *run) hasResult() bool {
	return r.folder.user.Do(func() error {
		_, err := os.Lstat(r.folder.result)
		return err
	}) == nil
}
