package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/operate"
)

// MinCleanAge is the least [CleanOptions.OlderThan], 8 days. The record of a job that has
// ended is what keeps a message of it that is left, or that was put twice, from starting
// it again; and a message can be hidden for 7 days.
const MinCleanAge = operate.MinCleanAge

// Why [Client.Clean] removes nothing.
var (
	// ErrTooYoung means that OlderThan is less than [MinCleanAge].
	ErrTooYoung = operate.ErrTooYoung

	// ErrBacklog means that the queue has a message that was put longer ago than
	// OlderThan, so that a message of a job that has ended may be behind it.
	ErrBacklog = operate.ErrBacklog
)

// CleanOptions say what [Client.Clean] removes.
type CleanOptions struct {
	// OlderThan is the age of what is removed: the time since the job's record was
	// written, by the clock of the storage service. Required, at least [MinCleanAge].
	OlderThan time.Duration

	// Status selects StatusDone or StatusCancelled; both if it is empty. Jobs that were
	// given up are for [Client.Purge], which makes them cancelled.
	Status []Status

	// Kind selects the jobs of a kind, and Prefix those whose id starts with it.
	Kind, Prefix string

	// DryRun counts and removes nothing.
	DryRun bool

	// Progress, if set, is called now and then with the counts so far, and Failed with
	// each job that could not be removed: from other goroutines, but one at a time.
	Progress func(CleanReport)
	Failed   func(id string, err error)
}

// CleanReport counts what was removed, or would be.
type CleanReport struct {
	// Read is how many records were read.
	Read int

	// Done and Cancelled count the records that were removed, and Bytes those of their
	// results.
	Done, Cancelled int
	Bytes           int64

	// Logs counts the logs that were removed and LogBytes their bytes, beside those in
	// records. A log whose record is gone counts too.
	Logs     int
	LogBytes int64

	// Outputs counts the files that were removed which jobs had stored, and the lists of
	// them, and OutputBytes their bytes. What a job sent and did not commit counts too,
	// once it is as old.
	Outputs     int
	OutputBytes int64

	// Changed counts jobs that were left alone because somebody wrote or removed their
	// record during the run, Poison those of which the poison queue has a message, and Failed
	// those that could not be removed.
	Changed, Poison, Failed int

	// PoisonUnseen says that a dry run did not see the whole poison queue, so that more
	// jobs may be left alone.
	PoisonUnseen bool
}

// Clean removes jobs that have ended: their records with the results, their logs and their
// outputs; and outputs that no record names. A job that waits, runs or was given up is left
// alone, and so is one whose record is
// written during the run. Repeating it removes what an interruption left.
//
// A job whose record is gone is forgotten: one that is put with the same id is another
// job and runs. So is a message of it that is left on a queue that the client does not
// know. The error is [ErrTooYoung] or [ErrBacklog] if that cannot be ruled out.
//
// It costs a call for each 5,000 records, logs and outputs, one or two for each job, one
// for each output that is removed, and up to two for each job that keeps old ones.
func (c *Client) Clean(ctx context.Context, o CleanOptions) (CleanReport, error) {
	if err := c.checkClean(ctx, o); err != nil {
		return CleanReport{}, err
	}
	n := toWrite
	if o.DryRun {
		n = toRead
	}
	var all operate.CleanReport
	err := c.every(func(part *Client) error {
		before := all
		report, err := part.cleaner(o).Clean(ctx, func(r operate.CleanReport) {
			if o.Progress != nil {
				o.Progress(CleanReport(before.Plus(r)))
			}
		}, func(id string, err error) {
			if o.Failed != nil {
				o.Failed(id, c.readable(err, n))
			}
		})
		all = before.Plus(report)
		return err
	})
	if errors.Is(err, ErrTooYoung) || errors.Is(err, ErrBacklog) {
		return CleanReport(all), err
	}
	return CleanReport(all), c.readable(err, n)
}

// cleaner removes old jobs of one account.
func (c *Client) cleaner(o CleanOptions) *operate.Cleaner {
	return &operate.Cleaner{
		Records: c.stores.Records, Logs: c.stores.Logs, Outputs: c.stores.Outputs, Queue: c.stores.Jobs, OnDemand: c.stores.OnDemand, Poison: c.stores.Poison,
		OlderThan: o.OlderThan, DryRun: o.DryRun, SkipOrphanedLogs: len(o.Status) > 0 || o.Kind != "" || o.Prefix != "",
		Select: func(r checkpoint.Record) bool {
			return (len(o.Status) == 0 || slices.Contains(o.Status, Status(r.Status))) &&
				(o.Kind == "" || r.Kind == o.Kind) && strings.HasPrefix(r.ID, o.Prefix)
		},
	}
}

// checkClean refuses what cannot be cleaned, and reads which queues there are to look at.
func (c *Client) checkClean(ctx context.Context, o CleanOptions) error {
	for _, s := range o.Status {
		if s != StatusDone && s != StatusCancelled {
			return fmt.Errorf("clean jobs that are %s: only those that are done or cancelled are over; Purge cancels those that were given up", s)
		}
	}
	_, err := c.jobs(ctx)
	return c.readable(err, toRead)
}
