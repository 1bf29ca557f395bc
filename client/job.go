package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/job"
)

// Status is the state of a job in its record.
type Status string

// The statuses. A job that waits for its first worker has no record, and so no status:
// see [ErrNotFound].
const (
	StatusOpen      Status = "open"      // it waits for a worker: it ran before, or is in a group
	StatusRunning   Status = "running"   // a worker has it, or had it when it died
	StatusDone      Status = "done"      // it has its result
	StatusPoison    Status = "poison"    // it was dead-lettered; Replay starts it again
	StatusCancelled Status = "cancelled" // an operator cancelled it

	// StatusUnknown is the status of a record that this version cannot read.
	StatusUnknown Status = "unknown"
)

// Ended reports whether the job has ended: it is done, poison or cancelled.
func (s Status) Ended() bool { return checkpoint.Status(s).Final() }

// Job has the data of a job's record.
type Job struct {
	ID     string `json:"id"`
	Kind   string `json:"kind,omitzero"`
	Status Status `json:"status"`

	// Group is the group of jobs that the job was put in; empty for none.
	Group string `json:"group,omitzero"`

	// Fraction (0 to 1) and Text are the last recorded progress.
	Fraction float64 `json:"fraction"`
	Text     string  `json:"text,omitzero"`

	// Reason is why the job failed last, or why it is poison or cancelled.
	Reason string `json:"reason,omitzero"`

	// Owner is the worker, or the operator, that wrote the record last.
	Owner string `json:"owner,omitzero"`

	// Again is the value of Deliveries when the job was last put again ([PutOptions]), 0 if it
	// never was. The numbers below, but for Deliveries and Cost, count from there.
	Again int `json:"again,omitzero"`

	// Deliveries is how often a worker claimed the job, or it was put again. Interruptions counts the times that a
	// worker handed the job over, because its VM was evicted or it was stopped.
	Deliveries    int `json:"deliveries"`
	Interruptions int `json:"interruptions"`

	// Failures counts failures in a row without progress, TotalFailures all of them, and
	// UncleanExits the workers in a row that died with the job.
	Failures      int `json:"failures"`
	TotalFailures int `json:"total_failures"`
	UncleanExits  int `json:"unclean_exits"`

	// RunTime is how long handlers have run for the job, as of UpdatedAt.
	RunTime time.Duration `json:"run_seconds"`

	// Cost is the cost of the job, as of UpdatedAt.
	Cost Cost

	// StateSize is the size in bytes of the state from which the next worker continues;
	// StateVersion is the handler's own number for its format.
	StateSize    int64 `json:"state_bytes"`
	StateVersion int

	// HandOver is how long the worker of a running job needs to take the job's state and send it,
	// as in its last saves. It is set with [Job.Live], also if the record is newer than the
	// heartbeat; 0 if it is not known.
	HandOver time.Duration `json:"hand_over_seconds,omitzero"`

	// StateNeeds are the requirements of the state on a worker, as its handler reported them;
	// empty for any worker.
	StateNeeds string

	// ResultSize is the size in bytes of the result of a job that is done.
	ResultSize int64 `json:"result_bytes"`

	// Inputs are the input files of the job, as they were put, of [Client.Get], [Client.Log] and
	// [Client.LogEnd]. They are nil if the record has no room for them.
	Inputs []job.Input `json:"inputs,omitzero"`

	// FollowUps are the jobs that the job's handler has put, of the same methods as Inputs.
	FollowUps FollowUps `json:",inline"`

	// OutputFiles and OutputBytes count the outputs of a job that is done, or the
	// outputs in the last checkpoint of another job: see [Client.Outputs].
	OutputFiles int   `json:"output_files,omitzero"`
	OutputBytes int64 `json:"output_bytes,omitzero"`

	// CreatedAt is when a worker claimed the job for the first time; until then, for a job of
	// a group, when it was put. ClaimedAt is when the last worker claimed it,
	// and EndedAt when the job ended, by the clocks of the writers. A time
	// is zero if it is not known.
	CreatedAt time.Time `json:"created_at,omitzero"`
	ClaimedAt time.Time `json:"claimed_at,omitzero"`
	EndedAt   time.Time `json:"ended_at,omitzero"`

	// UpdatedAt is when the record was written last, and ReadAt when it was read, both
	// by the clock of the storage service: their difference is the record's age, however
	// wrong the clock of this machine is.
	UpdatedAt time.Time `json:"updated_at,omitzero"`
	ReadAt    time.Time

	// Deadline is when the job should be done, and Estimate how long its work takes on a
	// VM that nothing interrupts; zero if the producer did not say.
	Deadline time.Time     `json:"deadline,omitzero"`
	Estimate time.Duration `json:"estimate_seconds,omitzero"`

	// MoveReason is why the job was moved to the queue for VMs of regular priority; empty
	// if it was not.
	MoveReason string `json:"move_reason,omitzero"`

	// WorkSHA256 identifies the work that the id stands for. It is the SHA-256 of the
	// payload in hex. If the job has inputs, their list is hashed too, so it is not the
	// hash of the payload alone.
	WorkSHA256 string `json:"work_sha256,omitzero"`

	// Runs are the last deliveries of the job, at most eight, the oldest first, of the same methods as
	// Inputs. A job that is done in its first delivery without a checkpoint has none.
	Runs []Run `json:"runs,omitzero"`

	// Live is how far the job is by its worker's last heartbeat, which is written every 15
	// seconds. Only [Client.Live] and [Client.ReadLive] set it; nil if the job is not running,
	// or its record is newer than the heartbeat.
	Live *Live `json:"live,omitzero"`
}

// FollowUps are the jobs that the handler of a job has put. They are empty for a job without a
// record.
type FollowUps struct {
	IDs  []string `json:"follow_ups,omitzero"`      // of the first ones, at most eight
	More bool     `json:"more_follow_ups,omitzero"` // whether there are more
}

// Run is one delivery of a job, as its record has it.
type Run struct {
	// Delivery counts the job's deliveries from 1. Worker is the name of its worker, cut to 48 bytes.
	Delivery int    `json:"delivery"`
	Worker   string `json:"worker,omitzero"`

	// StartedAt is when the job was claimed, and EndedAt when the delivery ended, by the worker's clock. EndedAt
	// is zero while it runs.
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at,omitzero"`

	// Outcome is done, evicted, interrupted (by a drain, a stop or a break), failed, poison, cancelled,
	// lost (the worker died, or an operator took the job from it) or ended; empty while it runs. It is
	// again for an entry that is no delivery: Worker put the job again, to run from scratch.
	Outcome string `json:"outcome,omitzero"`

	// Checkpoints counts the states that were recorded, the last one at CheckpointAt.
	Checkpoints  int       `json:"checkpoints"`
	CheckpointAt time.Time `json:"checkpoint_at,omitzero"`

	// Redone is the time whose progress was lost, so that the next delivery did the work again. It is an
	// estimate after the outcome lost.
	Redone time.Duration `json:"redone_seconds"`

	// Error is why the delivery failed, in short; empty if it did not. [Job].Reason has the last one in full.
	Error string `json:"error,omitzero"`
}

// runsOf returns the deliveries in a record.
func runsOf(r checkpoint.Record) (all []Run) {
	for _, run := range r.Runs.Runs() {
		one := Run{Delivery: run.Delivery, Worker: run.Worker, StartedAt: run.Start, Outcome: string(run.Outcome), Checkpoints: run.Saves,
			Redone: run.Redone, Error: run.Error}
		if run.Took > 0 {
			one.EndedAt = run.Start.Add(run.Took)
		}
		if run.Saves > 0 {
			one.CheckpointAt = run.Start.Add(run.SavedAfter)
		}
		all = append(all, one)
	}
	return all
}

// Cost is the cost of a job: time in workers' slots, over all its deliveries.
type Cost struct {
	// Useful is the time of handlers whose progress is in the recorded state or in the
	// result, Redone the time of handlers whose progress was lost, and Overhead all
	// other time in slots: waiting, restoring, saving at the end, committing.
	Useful   time.Duration `json:"useful_seconds"`
	Redone   time.Duration `json:"redone_seconds"`
	Overhead time.Duration `json:"overhead_seconds"`

	// Evictions counts the times that the job was handed over because the platform
	// announced the end of a VM, and UncleanExits the workers that died with it.
	Evictions    int `json:"evictions"`
	UncleanExits int `json:"unclean_exits"`
}

// Total returns the time in slots.
func (c Cost) Total() time.Duration { return c.Useful + c.Redone + c.Overhead }

// costOf returns the costs in a record.
func costOf(r checkpoint.Record) Cost {
	l := r.Spent()
	return Cost{
		Useful: l.Useful, Redone: l.Redone, Overhead: l.Overhead,
		Evictions: l.Evictions, UncleanExits: l.Exits,
	}
}

// Age returns how long ago the record was written, by the clock of the storage service.
func (j Job) Age() time.Duration { return j.ReadAt.Sub(j.UpdatedAt) }

// jobOf returns the data of a record.
func jobOf(r checkpoint.Record) Job {
	j := Job{
		ID: r.ID, Kind: r.Kind, Group: r.Group, Status: Status(r.Status), Fraction: r.Fraction, Text: r.Text, Reason: r.Reason, Owner: r.Owner,
		CreatedAt: r.CreatedAt, ClaimedAt: r.ClaimedAt, EndedAt: r.EndedAt, UpdatedAt: r.ModifiedAt, ReadAt: r.ReadAt,
		Deliveries: r.Generation, Again: r.Again, Failures: r.Failures, TotalFailures: r.FailuresTotal,
		Interruptions: r.Interruptions, UncleanExits: r.UncleanExits(), RunTime: r.RunTime, Deadline: r.Deadline, Estimate: r.Estimate,
		MoveReason: r.MoveReason, Cost: costOf(r), WorkSHA256: r.PayloadHash,
		OutputFiles: r.Outputs.Files, OutputBytes: r.Outputs.Bytes,
	}
	switch {
	case r.Version != checkpoint.Version:
		return Job{ID: r.ID, Status: StatusUnknown, UpdatedAt: r.ModifiedAt, ReadAt: r.ReadAt}
	case r.Status == checkpoint.Done:
		j.Fraction, j.ResultSize = 1, r.Size
	case r.HasState():
		j.StateSize, j.StateVersion, j.StateNeeds = r.StateSize, r.StateVersion, r.StateNeeds
	}
	return j
}

// inFull returns the data of a record with the job's inputs, which are packed in it, its
// follow-up jobs and its deliveries.
func inFull(r checkpoint.Record) Job {
	j := jobOf(r)
	if j.Status != StatusUnknown {
		j.FollowUps.IDs, j.FollowUps.More = r.FollowUps.IDs()
		j.Runs = runsOf(r)
	}
	if json.Unmarshal(r.UnpackInputs(), &j.Inputs) != nil { // as for a record without the list
		j.Inputs = nil
	}
	return j
}

// Get returns the record of a job, in one call. The error is [ErrNotFound] if it has none, and
// [ErrNewerVersion] if this version cannot read it.
func (c *Client) Get(ctx context.Context, id string) (Job, error) {
	r, err := c.read(ctx, id)
	if r.ID == "" {
		return Job{}, err
	}
	return inFull(r), err
}

// read returns the record of a job. With [ErrNewerVersion] it returns the fields that it could
// read.
func (c *Client) read(ctx context.Context, id string) (checkpoint.Record, error) {
	if err := jobid.Validate(id); err != nil {
		return checkpoint.Record{}, err
	}
	r, err := c.stores.Records.Read(ctx, id)
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		return checkpoint.Record{}, fmt.Errorf("job %s: %w", id, ErrNotFound)
	case err != nil:
		return checkpoint.Record{}, c.readable(err, toRead)
	case r.Version != checkpoint.Version:
		return r, fmt.Errorf("job %s: %w", id, ErrNewerVersion)
	}
	return r, nil
}

// Filter selects jobs. The zero value selects all that have a record.
type Filter struct {
	// Status selects the jobs with one of these statuses; all if it is empty.
	Status []Status

	// Kind selects the jobs of a kind, Group the jobs of a group, and Prefix the jobs whose
	// id starts with it.
	Kind, Group, Prefix string

	// CreatedAfter and CreatedBefore select by [Job.CreatedAt], UpdatedAfter and
	// UpdatedBefore by [Job.UpdatedAt]. Zero is no limit.
	CreatedAfter, CreatedBefore time.Time
	UpdatedAfter, UpdatedBefore time.Time

	// Select selects among the jobs that the fields above select; nil selects all.
	Select func(Job) bool

	// Skipped is called for each blob in the container of records whose name is no record's
	// name, with the blob's name. Such blobs are not listed. Optional.
	Skipped func(blob string)
}

// Has reports whether a job is selected.
func (f Filter) Has(j Job) bool {
	return (len(f.Status) == 0 || slices.Contains(f.Status, j.Status)) &&
		(f.Kind == "" || j.Kind == f.Kind) && (f.Group == "" || j.Group == f.Group) && strings.HasPrefix(j.ID, f.Prefix) &&
		within(j.CreatedAt, f.CreatedAfter, f.CreatedBefore) && within(j.UpdatedAt, f.UpdatedAfter, f.UpdatedBefore) &&
		(f.Select == nil || f.Select(j))
}

// within reports whether a time is after one and before another. Each of the two may be
// zero.
func within(t, after, before time.Time) bool {
	return (after.IsZero() || t.After(after)) && (before.IsZero() || t.Before(before))
}

// List yields the selected jobs, in unspecified order. Every call shows 5,000 records of
// the deployment with every filter, which selects after the call. A record that this
// version cannot read is listed with [StatusUnknown]. An error ends the sequence; a loop
// that ends early makes no further call.
//
// Jobs that no worker has claimed yet are not listed, unless they are in a group: they are
// on the queue alone, which can be counted ([Client.Queues]) but not searched.
func (c *Client) List(ctx context.Context, f Filter) iter.Seq2[Job, error] {
	return func(yield func(Job, error) bool) {
		for r, err := range c.records(ctx, f) {
			if err != nil {
				yield(Job{}, c.readable(err, toRead))
				return
			}
			if j := jobOf(r); f.Has(j) && !yield(j, nil) {
				return
			}
		}
	}
}

// records yields the records of the jobs whose ids have the filter's prefix.
func (c *Client) records(ctx context.Context, f Filter) iter.Seq2[checkpoint.Record, error] {
	skipped := f.Skipped
	if skipped == nil {
		skipped = func(string) {}
	}
	return c.stores.Records.ListAnd(ctx, f.Prefix, skipped)
}

// Log is the kept output and log of a job: the output of its program (docs/jobs.md),
// and the lines that its handler logged with job.Logger. It has the lines up to the
// job's last checkpoint, also if its VM is gone.
type Log struct {
	// Job is the job's record.
	Job Job

	// Lines are ordered by delivery and number.
	Lines []LogLine
}

// LogLine is a line of a job's log, or says that lines are missing.
type LogLine struct {
	// Delivery is the job's delivery that logged the line, from 1, and Worker the worker
	// that had it. Delivery is 0 for deliveries without kept lines.
	Delivery int    `json:"delivery"`
	Worker   string `json:"worker,omitzero"`

	// Number counts the lines of a delivery from 1.
	Number int `json:"number"`

	// LeftOut is how many lines are missing here; then the fields below are zero, and
	// Number is the number of the first missing line. LeftOut is 0 for a line.
	LeftOut int `json:"left_out,omitzero"`

	// At is when the line was logged, by the worker's clock.
	At time.Time `json:"at,omitzero"`

	// Source is stdout, stderr, or the level of a handler's line, in lower case.
	Source string `json:"source,omitzero"`

	// Text is the line without its end. It may have any bytes: it comes from the job.
	Text string
}

const (
	// logDelay is how long after a job's record its log may be written, which is longer
	// than its end.
	logDelay = 10 * time.Second

	// logPoll is how often it is read again during that time.
	logPoll = 500 * time.Millisecond
)

// Log returns a job's log, in one call, or two if it is longer than a KiB. The error is
// [ErrNotFound] if the job has no record. A job that logged nothing, or whose workers
// keep no logs, has no lines.
func (c *Client) Log(ctx context.Context, id string) (Log, error) {
	r, err := c.read(ctx, id)
	if err != nil {
		return Log{}, err
	}
	end := joblog.Parse([]byte(r.Log))
	if end.Whole() && r.Status != checkpoint.Cancelled { // the last lines of a cancelled job are in the blob
		return logOf(r, end), nil
	}
	for waited := time.Duration(0); ; waited += logPoll {
		stored, err := c.stores.Logs.Read(ctx, r.ID, r.CreatedAt)
		if err != nil {
			return Log{}, c.readable(err, toRead)
		}
		// A worker writes the record first. What lies between may be on its way.
		if age := r.ReadAt.Sub(r.ModifiedAt); !stored.LacksBefore(end) || age+waited >= logDelay {
			return logOf(r, joblog.Merge(stored, end)), nil
		}
		select {
		case <-time.After(logPoll):
		case <-ctx.Done():
			return Log{}, context.Cause(ctx)
		}
	}
}

// LogEnd returns the last lines of a job's log, as far as the job's record has them, in
// one call.
func (c *Client) LogEnd(ctx context.Context, id string) (Log, error) {
	r, err := c.read(ctx, id)
	if err != nil {
		return Log{}, err
	}
	return logOf(r, joblog.Parse([]byte(r.Log))), nil
}

// logOf returns the lines of a document.
func logOf(r checkpoint.Record, d joblog.Document) Log {
	l := Log{Job: inFull(r)}
	if d.Dropped > 0 {
		l.Lines = append(l.Lines, LogLine{LeftOut: d.Dropped})
	}
	for _, s := range d.Sections {
		line := LogLine{Delivery: s.Generation, Worker: s.Worker, Number: 1}
		gap := func(to int) {
			if missing := line; to > line.Number {
				missing.LeftOut = to - line.Number
				l.Lines = append(l.Lines, missing)
			}
		}
		for _, stored := range s.Lines {
			gap(stored.Number)
			source, after, text := stored.Decode()
			line.Number = stored.Number
			full := line
			full.At, full.Source, full.Text = s.Began.Add(after), source, text
			l.Lines = append(l.Lines, full)
			line.Number++
		}
		gap(s.Count + 1)
	}
	return l
}
