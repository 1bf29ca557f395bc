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

	"github.com/spotworker/spotworker/job"
)

// shortageRest is how long a job that this machine could not run keeps its slot.
// Without it a machine whose disk is full would take job after job from the
// queue, only to give each back.
const shortageRest = 10 * time.Second

// isShortage reports whether an error says that the machine has run out of
// something: disk, file descriptors, memory, processes, or that its disk is broken.
func isShortage(err error) bool { return isOneOf(shortages, err) || isOneOf(diskFull, err) }

func isOneOf(known []error, err error) bool {
	return slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) })
}

// excuse makes a shortage of the machine an interruption, which costs the job
// nothing: another attempt follows where there is room. Another error stays what
// it is: the program was running, so that the error may be its doing.
func excuse(err error) error {
	if !isShortage(err) {
		return err
	}
	return notCounted(err)
}

func notCounted(err error) error {
	return job.Unavailable(fmt.Errorf("this machine cannot run the job now, which is not counted against it: %w", err))
}

// notBegun is the end of a job whose program was not started. It is an
// interruption whatever the system says, since nothing of the job has run yet,
// but for two errors that the job brings along: a recorded state that cannot be
// read, and more data than the file system holds.
func (h *Handler) notBegun(ctx context.Context, log *slog.Logger, f *folder, err error) error {
	_, state := errors.AsType[*stateError](err)
	switch {
	case job.IsPermanent(err), state && !isShortage(err):
		return err
	case f != nil:
		if err := doesNotFit(f, err); err != nil {
			return err
		}
		f.clear()
	}
	return h.yield(ctx, log, err)
}

// doesNotFit returns the failure of a job that is too large for this disk: one
// that takes more than half of the file system on its own. It returns nil for
// another error, and where others fill the disk.
func doesNotFit(f *folder, err error) error {
	if isOneOf(fileTooLarge, err) {
		return fmt.Errorf("the job does not fit: %w", err)
	}
	if has, all := f.size(math.MaxInt64, new(atomic.Bool)), capacity(f.dir); isOneOf(diskFull, err) && all > 0 && has > all/2 {
		return fmt.Errorf("the job does not fit: %d bytes of it are in its folder, on a file system of %d: %w", has, all, err)
	}
	return nil
}

// yield keeps the slot for a while, and then returns the error as one that is not
// counted.
func (h *Handler) yield(ctx context.Context, log *slog.Logger, err error) error {
	log.WarnContext(ctx, "job not run: this machine lacks what it needs; another attempt follows, here or elsewhere", "error", err, "in", h.rest)
	timer := time.NewTimer(h.rest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return notCounted(err)
}
