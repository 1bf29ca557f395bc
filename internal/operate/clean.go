package operate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/queue"
)

// MinCleanAge is the least age of a record that is removed. A record protects its job's
// id for as long as messages of it can exist, and a message may be hidden for 7 days
// ([queue.MaxDelay]); a day more is for the wait behind others and clocks that differ.
const MinCleanAge = queue.MaxDelay + 24*time.Hour

// cleanParallel is how many jobs are removed at once.
const cleanParallel = 16

// Why nothing is removed.
var (
	// ErrTooYoung means that records would be removed whose messages may still exist.
	ErrTooYoung = errors.New("records of that age may still be needed")

	// ErrBacklog means that a queue has a message that is older than that.
	ErrBacklog = errors.New("messages wait for longer than that")
)

// Cleaner removes the remains of jobs that have ended: their records, with the results, their
// logs and their outputs. Jobs that are poison, waiting or running are left alone. Payloads
// need no cleaning: a worker deletes a job's payload with its message.
//
// It goes through records and logs in the order of their names, side by side, so it holds
// none of them in memory. A record is removed first, on condition that it is as it was
// listed, and then its log, on the same condition. So a job that was put again during the
// run loses nothing, and repeating after an interruption removes the rest: a log without a
// record is removed at that age too.
type Cleaner struct {
	Records          *checkpoint.Store
	Logs             *joblog.Store
	Outputs          *outputs.Store
	Queues           func() []*queue.Queue // that may have messages of jobs
	Poison           *queue.Queue
	OlderThan        time.Duration // at least [MinCleanAge]
	Select           func(checkpoint.Record) bool
	SkipOrphanedLogs bool // because the selection cannot judge them
	DryRun           bool // counts only
}

// CleanReport counts the items that were removed, or with [Cleaner.DryRun] would be
// removed.
type CleanReport struct {
	// Read is how many records were read.
	Read int

	// Done and Cancelled count the records that were removed, and Bytes the bytes of
	// their results.
	Done, Cancelled int
	Bytes           int64

	// Logs counts the logs that were removed and LogBytes their bytes, in addition to
	// the logs in records. A log whose record is gone counts too.
	Logs     int
	LogBytes int64

	// Outputs counts the files that were removed which jobs had stored, and the lists of
	// them, and OutputBytes their bytes. Outputs that a job sent and did not commit
	// count too, once they are as old, and a week later files that jobs brought.
	Outputs     int
	OutputBytes int64

	// Changed counts jobs that were left alone because somebody wrote or removed their
	// record during the run, Poison jobs with a message on the poison queue, and Failed jobs
	// that could not be removed.
	Changed, Poison, Failed int

	// Skipped is how many blobs in the container of records have names that no record has.
	Skipped int

	// PoisonUnseen says that a dry run did not see the whole poison queue, so that more
	// jobs may be left alone.
	PoisonUnseen bool
}

// Clean removes the selected items, and calls progress now and then, one call at a time.
// A job that cannot be removed is reported by failed, and the others are removed
// nevertheless. A removal that has begun when ctx ends is finished.
func (c *Cleaner) Clean(ctx context.Context, progress func(CleanReport), failed func(id string, err error)) (CleanReport, error) {
	r := &cleaning{Cleaner: c, progress: progress, failed: failed,
		brought: broughtFiles{named: map[string]bool{}, records: map[string]bool{}}}
	if err := c.check(ctx); err != nil {
		return r.report, err
	}
	if err := r.findPoison(ctx); err != nil {
		return r.report, err
	}
	if err := r.all(ctx); err != nil || c.SkipOrphanedLogs {
		return r.report, err
	}
	if err := r.garbage(ctx); err != nil {
		return r.report, err
	}
	return r.report, r.files(ctx)
}

// check refuses an age at which messages of the jobs may still exist.
func (c *Cleaner) check(ctx context.Context) error {
	if c.OlderThan < MinCleanAge {
		return fmt.Errorf("%w: %s is less than %s. A message can be hidden for %s, and the record of a job that has ended is all that keeps "+
			"such a message from starting it again",
			ErrTooYoung, days(c.OlderThan), days(MinCleanAge), days(queue.MaxDelay))
	}
	for _, q := range c.Queues() {
		messages, err := q.Peek(ctx, queue.MaxClaim)
		if queueerror.HasCode(err, queueerror.QueueNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		for _, m := range messages {
			if waits := time.Since(m.InsertedAt); waits >= c.OlderThan {
				return fmt.Errorf("%w: queue %s has a message that was put %s ago, so an old one of a job that has ended may still be behind it, "+
					"and would start it again. Give more than that, or let workers get to it first", ErrBacklog, q.Name(), days(waits))
			}
		}
	}
	return nil
}

// days is a time in days and hours.
func days(d time.Duration) string {
	d = d.Round(time.Hour)
	if hours := d % (24 * time.Hour); hours > 0 || d == 0 {
		return fmt.Sprintf("%dd%dh", d/(24*time.Hour), hours/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// cleaning is one run of a Cleaner.
type cleaning struct {
	*Cleaner
	progress func(CleanReport)
	failed   func(string, error)
	poison   map[string]bool // jobs with a message on the poison queue
	brought  broughtFiles

	poisonJobs int // different ids of those jobs

	mu     sync.Mutex // guards calls of progress and failed, and what follows
	report CleanReport
}

// findPoison finds the jobs with a message on the poison queue: replaying that message
// would start the job again if the job had no record. A dry run looks at the front alone,
// since looking further hides the messages for a while. Another command that has looked
// further hides messages too: then nothing may be removed.
func (r *cleaning) findPoison(ctx context.Context) error {
	r.poison = map[string]bool{}
	seen := 0
	add := func(it Item) error {
		seen++
		if !r.poison[it.Poison.ID] {
			r.poisonJobs++
		}
		for _, id := range []string{it.Poison.ID, it.Poison.MessageID} {
			r.poison[id] = true
		}
		return nil
	}
	p := &PoisonQueue{Poison: r.Poison}
	items, about, err := p.Peek(ctx)
	if queueerror.HasCode(err, queueerror.QueueNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	r.report.PoisonUnseen = r.DryRun && about > len(items)
	if r.DryRun || len(items) < queue.MaxClaim || about == len(items) {
		for _, it := range items {
			_ = add(it) // it has no error
		}
	} else if err := p.All(ctx, add); err != nil {
		return err
	}
	if hidden := about - seen; hidden > 0 && !r.DryRun {
		return fmt.Errorf("about %d messages of the poison queue are hidden, because another command has read them, and their jobs must "+
			"keep their records: repeat the command in 2 minutes", hidden)
	}
	return nil
}

// progressEvery is how many records are read between two calls of progress.
const progressEvery = 1000

// all goes through records and logs, and removes the selected entries.
func (r *cleaning) all(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(cleanParallel)
	err := r.walk(ctx, func(record *checkpoint.Record, log *joblog.Stored) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if record != nil {
			r.keep(record)
			r.count(func(report *CleanReport) {
				if report.Read++; report.Read%progressEvery == 0 && r.progress != nil {
					r.progress(*report)
				}
			})
		}
		if r.mayRemove(record, log) {
			group.Go(func() error { r.one(context.WithoutCancel(ctx), record, log); return nil })
		}
		return nil
	})
	_ = group.Wait() // its functions return no error
	return err
}

// mayRemove decides on a job: on its record, its log, or both.
func (r *cleaning) mayRemove(record *checkpoint.Record, log *joblog.Stored) bool {
	if record == nil {
		return !r.SkipOrphanedLogs && log.ReadAt.Sub(log.ModifiedAt) >= r.OlderThan
	}
	isOver := record.Status == checkpoint.Done || record.Status == checkpoint.Cancelled
	if !isOver || record.ReadAt.Sub(record.ModifiedAt) < r.OlderThan || r.Select != nil && !r.Select(*record) {
		return false
	}
	if r.poison[record.ID] {
		r.count(func(report *CleanReport) { report.Poison++ })
		return false
	}
	return true
}

// one removes the record and the log of a job.
func (r *cleaning) one(ctx context.Context, record *checkpoint.Record, log *joblog.Stored) {
	if record != nil {
		if !r.DryRun {
			err := r.Records.Remove(ctx, *record)
			switch {
			case errors.Is(err, checkpoint.ErrChanged):
				r.count(func(report *CleanReport) { report.Changed++ })
				return
			case err != nil:
				r.fail(record.ID, err)
				return
			}
		}
		r.count(func(report *CleanReport) {
			report.Bytes += record.Size
			if record.Status == checkpoint.Done {
				report.Done++
			} else {
				report.Cancelled++
			}
		})
		r.outputsOf(ctx, *record)
	}
	if log == nil {
		return
	}
	removed, err := true, error(nil)
	if record == nil { // or this version cannot read it
		_, err := r.Records.Read(ctx, log.ID)
		removed = errors.Is(err, checkpoint.ErrNotFound)
		if !removed && err != nil {
			r.fail(log.ID, err)
		}
	}
	if removed && !r.DryRun {
		removed, err = r.Logs.Remove(ctx, *log)
	}
	if err != nil {
		r.fail(log.ID, err)
		return
	}
	r.count(func(report *CleanReport) {
		if removed {
			report.Logs, report.LogBytes = report.Logs+1, report.LogBytes+log.Size
		}
	})
}

func (r *cleaning) count(add func(*CleanReport)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	add(&r.report)
}

func (r *cleaning) fail(id string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.report.Failed++
	if r.failed != nil {
		r.failed(id, err)
	}
}

// errOrder means that a listing is not in the order of names, so that records and logs
// cannot be told to belong together.
var errOrder = errors.New("the storage service lists blobs in no order: nothing more is removed")

// walk calls visit for each job that has a record or a log, with both. A record that is
// gone when its log is listed, or the other way round, is nil.
func (r *cleaning) walk(ctx context.Context, visit func(*checkpoint.Record, *joblog.Stored) error) error {
	nextRecord, stopRecords := iter.Pull2(ordered(readable(r.Records.ListAnd(ctx, "", func(string) {
		r.count(func(report *CleanReport) { report.Skipped++ })
	})), func(x checkpoint.Record) string { return x.ID }))
	defer stopRecords()
	nextLog, stopLogs := iter.Pull2(ordered(r.Logs.List(ctx), func(x joblog.Stored) string { return x.ID }))
	defer stopLogs()
	log, logErr, hasLog := nextLog()
	for {
		record, recordErr, hasRecord := nextRecord()
		if err := errors.Join(recordErr, logErr); err != nil {
			return err
		}
		for hasLog && (!hasRecord || comparePaths(log.ID, record.ID) < 0) {
			orphan := log
			if err := visit(nil, &orphan); err != nil {
				return err
			}
			if log, logErr, hasLog = nextLog(); logErr != nil {
				return logErr
			}
		}
		if !hasRecord {
			return nil
		}
		var of *joblog.Stored
		if log.ID == record.ID { // it is empty after the last log
			of = new(log)
			log, logErr, hasLog = nextLog()
		}
		if err := visit(&record, of); err != nil {
			return err
		}
	}
}

// readable yields the records that this version can read. The others have names that are
// not known, if they are records at all.
func readable(listing iter.Seq2[checkpoint.Record, error]) iter.Seq2[checkpoint.Record, error] {
	return func(yield func(checkpoint.Record, error) bool) {
		for r, err := range listing {
			if (err != nil || r.Version == checkpoint.Version) && !yield(r, err) {
				return
			}
		}
	}
}

func comparePaths(a, b string) int { return strings.Compare(jobid.Path(a), jobid.Path(b)) }

// ordered yields the items of a listing, and ends with an error if they are not in the
// order of names.
func ordered[T any](listing iter.Seq2[T, error], id func(T) string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		last, first := "", true
		for x, err := range listing {
			if err == nil && !first && comparePaths(last, id(x)) >= 0 {
				err = errOrder
			}
			if !yield(x, err) || err != nil {
				return
			}
			last, first = id(x), false
		}
	}
}
