package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/spotworker/spotworker/job"
)

// shortageRest is how long a job that this machine had no room for keeps its
// slot. Without it a machine whose disk is full would take job after job from the
// queue, only to give each back.
const shortageRest = 10 * time.Second

// isShortage reports whether an error says that the machine has run out of
// something: disk, file descriptors, memory, processes, or that its disk is broken.
func isShortage(err error) bool {
	return slices.ContainsFunc(shortages, func(s error) bool { return errors.Is(err, s) })
}

// excuse makes a shortage of the machine an interruption, which costs the job
// nothing: it goes on where there is room. Another error stays what it is.
func excuse(err error) error {
	if !isShortage(err) {
		return err
	}
	return job.Interrupted(fmt.Errorf("this machine has run short of something, which is not counted against the job: %w", err))
}

// yield is excuse for a job that could not be begun. It removes what it had on
// disk and keeps the slot for a while. A job that by itself takes more than half
// of the file system is one that does not fit: that is its failure.
func (h *Handler) yield(ctx context.Context, log *slog.Logger, f *folder, err error) error {
	if !isShortage(err) {
		return err
	}
	if f != nil {
		if has, all := sizeOf(f.dir), capacity(f.dir); all > 0 && has > all/2 {
			return fmt.Errorf("the job does not fit: %d bytes of it are in its folder, on a file system of %d: %w", has, all, err)
		}
		_ = removeTree(f.dir) // what stays goes with the job's folder
	}
	log.WarnContext(ctx, "job not begun: this machine has run short of something; it goes on later or elsewhere", "error", err, "in", h.rest)
	timer := time.NewTimer(h.rest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return excuse(err)
}
