package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

// backOffDelay is how long a job that this machine cannot run keeps its slot.
// Without it a machine whose disk is full would claim one job after the other and
// return each at once.
const backOffDelay = 10 * time.Second

// isExhaustion reports resource exhaustion: the machine is out of disk, file
// descriptors, memory or processes, or its disk is broken.
func isExhaustion(err error) bool { return isAny(resourceErrors, err) || isAny(diskFull, err) }

func isAny(known []error, err error) bool {
	return slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) })
}

// asInterruption turns resource exhaustion into an interruption, which does not
// count as a failure. It returns other errors unchanged: the running program may
// have caused them.
func asInterruption(err error) error {
	if !isExhaustion(err) {
		return err
	}
	return unavailable(err)
}

// unavailable returns an interruption that says why this machine cannot run the
// job.
func unavailable(err error) error {
	if isExhaustion(err) {
		return job.Unavailable(fmt.Errorf("out of a resource on this machine (disk, memory, descriptors or processes); not counted as a failure: %w", err))
	}
	return job.Unavailable(fmt.Errorf("this machine cannot run the job now; not counted as a failure: %w", err))
}

// notStarted returns the error of a job whose program was not started. Every error
// is an interruption, since nothing of the job has run, except two that come with
// the job: a recorded checkpoint that cannot be read, and more data than the file
// system holds.
func (h *Handler) notStarted(ctx context.Context, log *slog.Logger, f *folder, err error) error {
	_, state := errors.AsType[*stateError](err)
	switch {
	case job.IsPermanent(err), state && !isExhaustion(err):
		return err
	case f != nil:
		if err := tooLargeForDisk(f, err); err != nil {
			return err
		}
		f.clear()
	}
	return h.backOff(ctx, log, err)
}

// tooLargeForDisk returns the failure of a job that is too large for this disk: one
// that takes more than half of the file system on its own. It returns nil for
// another error, and where others fill the disk.
func tooLargeForDisk(f *folder, err error) error {
	if isAny(fileTooLarge, err) {
		return fmt.Errorf("the job does not fit: %w", err)
	}
	_, all := Space(f.dir)
	if has := f.size(math.MaxInt64, new(atomic.Bool)); isAny(diskFull, err) && all > 0 && has > all/2 {
		return fmt.Errorf("the job does not fit: %d bytes of it are in its folder, on a file system of %d: %w", has, all, err)
	}
	return nil
}

// backOff keeps the slot for backOffDelay, and then returns the error as an
// interruption.
func (h *Handler) backOff(ctx context.Context, log *slog.Logger, err error) error {
	log.WarnContext(ctx, "job not run: this machine cannot run it now; another attempt follows, here or elsewhere", "error", err, "in", h.backOffDelay)
	_ = retry.Sleep(ctx, h.backOffDelay) // a stop ends it early
	return unavailable(err)
}
