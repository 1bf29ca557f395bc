package program

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/host/resource"
	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

// backOffDelay is how long a job that this machine cannot run keeps its slot.
// Without it a machine whose disk is full would claim one job after the other and
// return each at once.
const backOffDelay = 10 * time.Second

// asInterruption turns resource exhaustion into an interruption, which does not count as a
// failure, unless the job itself has filled the disk. It returns other errors unchanged: the
// running program may have caused them.
func (f *folder) asInterruption(err error) error {
	if !resource.IsExhaustion(err) {
		return err
	}
	if tooLarge := tooLargeForDisk(f, err); tooLarge != nil {
		return tooLarge
	}
	return unavailable(err)
}

// heldElsewhere turns the error of a file that another process has open, after the program
// and all that it started have ended, into an interruption: a virus scanner is the machine's.
func heldElsewhere(err error) error {
	if !sandbox.IsShared(err) {
		return err
	}
	return unavailable(err)
}

// unavailable returns an interruption that says why this machine cannot run the
// job.
func unavailable(err error) error {
	if resource.IsExhaustion(err) {
		return job.Unavailable(fmt.Errorf("out of a resource on this machine (disk, memory, descriptors or processes); not counted as a "+
			"failure: %w", err))
	}
	return job.Unavailable(fmt.Errorf("this machine cannot run the job now; not counted as a failure: %w", err))
}

// fromStorage is the error of files that could not be fetched.
type fromStorage struct{ error }

func (e *fromStorage) Unwrap() error { return e.error }

// isMachines reports whether this machine is why a program was not started: by the error,
// or because a need of the kind is missing. Another error may come with the job, and a
// job that cannot be started anywhere would otherwise stop its kind on each worker.
func (h *Handler) isMachines(err error) bool {
	_, fetched := errors.AsType[*fromStorage](err)
	return fetched || resource.IsMachines(err) || h.kind.missing() != nil
}

// notStarted returns the error of a job whose program was not started. It is an
// interruption if the machine is the reason, or a stop. Reasons that come with the job
// are failures: a recorded checkpoint that cannot be read, more data than the file system
// holds, and values that the system refuses. f is nil before anything of the job is used.
func (h *Handler) notStarted(ctx context.Context, log *slog.Logger, f *folder, err error) error {
	_, state := errors.AsType[*stateError](err)
	switch {
	case job.IsPermanent(err), state && !resource.IsExhaustion(err):
		return err
	case f != nil:
		if err := tooLargeForDisk(f, err); err != nil {
			return err
		}
		f.Clear()
		if ctx.Err() == nil && !h.isMachines(err) {
			return fmt.Errorf("the job cannot be started: %w", err)
		}
	}
	return h.backOff(ctx, log, err)
}

// tooLargeForDisk returns the failure of a job that is too large for this disk: it takes
// more than half of the file system on its own. It returns nil for another error, and if
// others fill the disk.
func tooLargeForDisk(f *folder, err error) error {
	if resource.IsFileTooLarge(err) {
		return job.OwnFault(fmt.Errorf("the job does not fit: %w", err))
	}
	if !resource.IsDiskFull(err) {
		return nil
	}
	_, all := resource.Space(f.Dir)
	if has := f.Size(math.MaxInt64, new(atomic.Bool)); all > 0 && has > all/2 {
		return job.OwnFault(fmt.Errorf("the job does not fit: %d bytes of it are in its folder, on a file system of %d: %w", has, all, err))
	}
	return nil
}

// withSpace adds to the error of a full disk how much of it is free.
func withSpace(dir string, err error) error {
	if !resource.IsDiskFull(err) {
		return err
	}
	free, size := resource.Space(dir)
	if size == 0 {
		return fmt.Errorf("no space in %s: %w", dir, err)
	}
	const mega = 1e6
	return fmt.Errorf("no space in %s (%d of %d MB free): %w", dir, int64(float64(free)/mega), int64(float64(size)/mega), err)
}

// noticePeriod is for how long one line stands for all jobs of a kind that this machine
// cannot run.
const noticePeriod = time.Minute

// notices lets one line a minute through.
type notices struct {
	mu   sync.Mutex
	at   time.Time
	more int // lines left out since
}

// allow reports whether a line is due at now, and how many were left out since the one
// before.
func (n *notices) allow(now time.Time) (due bool, leftOut int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.at.IsZero() && now.Sub(n.at) < noticePeriod {
		n.more++
		return false, 0
	}
	leftOut = n.more
	n.at, n.more = now, 0
	return true, leftOut
}

// backOff keeps the slot for backOffDelay, and then returns the error as an
// interruption.
func (h *Handler) backOff(ctx context.Context, log *slog.Logger, err error) error {
	level := slog.LevelDebug
	due, suppressed := h.notices.allow(time.Now())
	if due {
		level = slog.LevelWarn
	}
	err = withSpace(h.scratch.Parent(), err)
	log.Log(ctx, level, "job not started: this machine cannot run it now; it is tried again, here or elsewhere", "error", err, "retry_in",
		h.backOffDelay, "suppressed", suppressed)
	_ = retry.Sleep(ctx, h.backOffDelay) // a stop ends it early
	return unavailable(err)
}
