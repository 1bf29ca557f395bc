package operate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/queue"
)

const (
	// cancelBatch is how many jobs are cancelled between two changes of the control
	// document.
	cancelBatch = control.MaxCancels

	// cancelParallel is how many records are changed at once.
	cancelParallel = 16
)

// The results of a cancel.
const (
	// Cancelled means that nothing of the job is committed from now on.
	Cancelled Action = "cancelled"

	// Over means that the job had ended before; it is left alone.
	Over Action = "over"

	// Barred means that the job had no record and now has a cancelled record. If it
	// waits for its first worker, none starts it; if there is no such job, its id cannot
	// be used while the record is kept.
	Barred Action = "barred"

	// Unknown means that the job has no record in an account in which it may wait, and none
	// was made.
	Unknown Action = "unknown"
)

// Canceller cancels jobs that wait or run.
type Canceller struct {
	Records *checkpoint.Store
	Control *control.Store
	Name    string // recorded as the last writer

	// Reason is for people, in the jobs' records. Optional.
	Reason string

	// Queues returns the queues of an account on which a job without a record may wait for
	// its first worker; the account is empty where there is one. Where they show that the
	// job does not wait, no record is made. Without Queues every such job is barred.
	Queues func(ctx context.Context, account string) ([]*queue.Queue, error)

	// Accounts, if set, returns the records of all accounts in which a job may be, the most
	// likely one first, in place of Records.
	Accounts func(id string) []AccountRecords

	// KnownOnly leaves jobs without a record alone, also where they may wait for their
	// first worker.
	KnownOnly bool

	// SeenOnly bars no id: it leaves a job without a record alone, unless its message is
	// among those that the service shows.
	SeenOnly bool

	silent sync.Map // errors of accounts that did not answer, by name
}

// AccountRecords are the records in one of several storage accounts.
type AccountRecords struct {
	*checkpoint.Store
	Account string // its name
}

// accountWait is how long one of several accounts may take to cancel a job.
const accountWait = 15 * time.Second

// CancelOutcome is the result of a cancel for one job.
type CancelOutcome struct {
	ID     string
	Action Action // Cancelled, Barred, Over, Unknown, Refused or Failed
	Detail string // for people
	Err    error  // of Refused and Failed

	// BarredIn are the accounts in which the id is barred although the job may be in an
	// account that failed.
	BarredIn []string

	// Was is the job's record as it was; the zero value if there was none.
	Was checkpoint.Record
}

// Cancel cancels jobs: first their records, which decides, then the control document,
// which tells their workers within seconds. It calls report with each outcome, one at
// a time and in any order. An error of report ends the run, and so does the end of
// ctx. The error says that workers could not be told: the jobs that were reported as
// cancelled are, and their workers find out at their next write.
//
// A job costs two calls, and a thousand jobs two more. A job without a record costs one
// call more. All jobs without a record share one look at the queues, at two calls for
// each queue. Cancelling again is harmless.
func (c *Canceller) Cancel(ctx context.Context, ids iter.Seq[string], report func(CancelOutcome) error) error {
	batch := make([]string, 0, cancelBatch)
	for id := range ids {
		if batch = append(batch, id); len(batch) < cancelBatch {
			continue
		}
		if err := c.batch(ctx, batch, report); err != nil {
			return err
		}
		batch = batch[:0]
	}
	return c.batch(ctx, batch, report)
}

// batch cancels some jobs and names the cancelled jobs in the control document, also
// after an error: an operation that has begun is finished.
func (c *Canceller) batch(ctx context.Context, ids []string, report func(CancelOutcome) error) error {
	var mu sync.Mutex
	var cancelled []string
	var seen looks
	group, running := errgroup.WithContext(ctx)
	group.SetLimit(cancelParallel)
	for _, id := range ids {
		group.Go(func() error {
			if running.Err() != nil {
				return context.Cause(running)
			}
			outcome := c.one(running, id, &seen)
			mu.Lock()
			defer mu.Unlock()
			if slices.Contains([]Action{Cancelled, Barred, Failed}, outcome.Action) { // a write without an answer may have taken effect
				cancelled = append(cancelled, id)
			}
			return report(outcome)
		})
	}
	err := group.Wait()
	return errors.Join(err, c.announce(ctx, cancelled))
}

// announce names cancelled jobs in the control document.
func (c *Canceller) announce(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), announceTimeout)
	defer cancel()
	_, err := c.Control.Edit(ctx, func(d *control.Document, now time.Time) (bool, error) {
		d.AddCancels(ids, now)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("workers were not told of %d jobs that are or may be cancelled, and find out at their next checkpoint; "+
			"repeat the command to tell them: %w", len(ids), err)
	}
	return nil
}

// announceTimeout bounds the change of the control document after an interruption.
const announceTimeout = 30 * time.Second

// accounts returns the records of all accounts in which a job may be.
func (c *Canceller) accounts(id string) []AccountRecords {
	if c.Accounts != nil {
		return c.Accounts(id)
	}
	return []AccountRecords{{Store: c.Records}}
}

// one cancels one job. seen holds the queues' fronts, for all jobs.
func (c *Canceller) one(ctx context.Context, id string, seen *looks) CancelOutcome {
	if err := jobid.Validate(id); err != nil {
		return CancelOutcome{ID: id, Action: Refused, Detail: err.Error(), Err: err}
	}
	all := c.accounts(id)
	if len(all) == 1 && c.Queues == nil {
		was, err := c.cancelIn(ctx, all, 0, id, !c.KnownOnly)
		if errors.Is(err, checkpoint.ErrNotFound) {
			return unknownTo(id)
		}
		return outcomeOf(id, was, err)
	}
	var found search
	for i := range all {
		was, err := c.cancelIn(ctx, all, i, id, false)
		if found.add(all[i].Account, was, err) {
			return outcomeOf(id, was, err)
		}
	}
	switch {
	case found.failed != nil && (c.KnownOnly || len(found.absent)+len(found.barred) == 0):
		return outcomeOf(id, checkpoint.Record{}, found.failed)
	case found.failed == nil && len(found.absent) == 0: // barred in all accounts
		return outcomeOf(id, found.bar, nil)
	case c.KnownOnly:
		o := unknownTo(id)
		if len(found.barred) > 0 {
			o.Detail = found.text() + ": it waits there for its first worker, or there is no such job"
		}
		return o
	}
	return c.withoutRecord(ctx, all, id, seen)
}

// search is the result of a search of the accounts for a job's record. A bar decides nothing
// about the job in another account: a cancel may have failed there.
type search struct {
	absent []string // accounts without a record of the job
	barred []string // accounts that have a bar alone
	bar    checkpoint.Record
	failed error // of the first account that failed
}

// add adds the answer of one account. It reports whether that decides the cancel.
func (s *search) add(account string, was checkpoint.Record, err error) (decides bool) {
	switch {
	case errors.Is(err, checkpoint.ErrNotFound):
		s.absent = append(s.absent, account)
	case err == nil && was.IsBar():
		s.barred, s.bar = append(s.barred, account), was
	case err == nil, errors.Is(err, checkpoint.ErrUnknownFormat):
		return true
	case s.failed == nil:
		s.failed = err
	}
	return false
}

// text says in which accounts the job has a record.
func (s *search) text() string {
	if len(s.barred) == 0 {
		return "it has no record"
	}
	return fmt.Sprintf("it is barred in storage account %s, and it has no record in %s", strings.Join(s.barred, ", "),
		strings.Join(s.absent, ", "))
}

// unknownTo is the outcome for a job without a record if only records count.
func unknownTo(id string) CancelOutcome {
	return CancelOutcome{
		ID: id, Action: Unknown,
		Detail: "it has no record: it waits for its first worker, or there is no such job",
	}
}

// cancelIn cancels the record of a job in one of the accounts. One of several that has not
// answered once is not asked again, so that many jobs do not wait for it one after the
// other.
func (c *Canceller) cancelIn(
	ctx context.Context, all []AccountRecords, i int, id string, create bool,
) (checkpoint.Record, error) {
	in := all[i]
	if len(all) == 1 {
		return in.Cancel(ctx, id, c.Name, c.reason(), create)
	}
	if err, ok := c.silent.Load(in.Account); ok {
		return checkpoint.Record{}, err.(error) //nolint:forcetypeassert // as it was stored
	}
	within, cancel := context.WithTimeoutCause(ctx, accountWait, fmt.Errorf("it did not answer within %s", accountWait))
	defer cancel()
	was, err := in.Cancel(within, id, c.Name, c.reason(), create)
	if err == nil || errors.Is(err, checkpoint.ErrNotFound) || errors.Is(err, checkpoint.ErrUnknownFormat) {
		return was, err
	}
	if within.Err() != nil && ctx.Err() == nil {
		err = context.Cause(within)
	}
	err = fmt.Errorf("storage account %s: %w", in.Account, err)
	if ctx.Err() == nil && !errors.As(err, new(*azcore.ResponseError)) {
		c.silent.Store(in.Account, err)
	}
	return was, err
}

// withoutRecord cancels a job that had no record a moment ago in the accounts that answer.
// If its message is seen, it is cancelled in that account. Otherwise it is barred in each
// account whose queues do not show that it does not wait there.
func (c *Canceller) withoutRecord(ctx context.Context, all []AccountRecords, id string, seen *looks) CancelOutcome {
	fronts := seen.at(ctx, c, all)
	for i, f := range fronts {
		if !f.ids[id] {
			continue
		}
		was, err := c.cancelIn(ctx, all, i, id, true)
		o := outcomeOf(id, was, err)
		if o.Action == Barred {
			o.Action, o.Detail = Cancelled, "its message waits on the queue, and no worker starts it"
		}
		return o
	}
	return c.bar(ctx, all, id, fronts)
}

// bar cancels a job whose message is at the front of no queue, in each account whose queues
// do not show that it does not wait there.
func (c *Canceller) bar(ctx context.Context, all []AccountRecords, id string, fronts []look) CancelOutcome {
	var found search
	var made []string   // accounts that have a bar now and had no record
	var hiding []string // accounts without a record whose queues may hide the job
	for i, f := range fronts {
		in := all[i].Account
		was, err := c.cancelIn(ctx, all, i, id, f.mayHide() && !c.SeenOnly)
		switch {
		case err == nil && was.Version == 0:
			made = append(made, in)
		case found.add(in, was, err): // it was claimed in between
			return outcomeOf(id, was, err)
		case errors.Is(err, checkpoint.ErrNotFound) && f.mayHide():
			hiding = append(hiding, in)
		}
	}
	switch {
	case found.failed != nil:
		o := outcomeOf(id, checkpoint.Record{}, found.failed)
		o.BarredIn = slices.Concat(found.barred, made)
		return o
	case len(hiding) > 0, len(made)+len(found.barred) == 0:
		return unseenOf(id, fronts, found.text())
	case len(made) == 0:
		return outcomeOf(id, found.bar, nil)
	}
	o := outcomeOf(id, checkpoint.Record{}, nil)
	for _, f := range fronts {
		if f.err != nil && !errors.Is(f.err, errNoQueues) {
			o.Detail += fmt.Sprintf("; the queues could not be searched: %v", f.err)
			break
		}
	}
	return o
}

// mayHide reports whether the queues may have a message that was not seen.
func (l look) mayHide() bool { return l.err != nil || !l.complete() }

// unseenOf is the outcome for a job that was seen on no queue, if its id is not barred in each
// account whose queues may hide it. records says in which accounts it has a record.
func unseenOf(id string, fronts []look, records string) CancelOutcome {
	o := CancelOutcome{ID: id, Action: Unknown, Detail: "there is no such job: it has no record, and no message of it waits on the queues"}
	if !slices.ContainsFunc(fronts, look.mayHide) {
		return o
	}
	shown, queued := 0, 0
	for _, f := range fronts {
		shown, queued = shown+f.seen, queued+f.queued
	}
	o.Detail = fmt.Sprintf("%s, and it is not among the %d of %d messages that the service shows", records, shown, queued)
	for _, f := range fronts {
		if f.err != nil {
			o.Detail = fmt.Sprintf("%s, and the queues could not be searched: %v", records, f.err)
			break
		}
	}
	o.Detail += ". There is no such job, or it waits behind them: spotctl cancel --bar keeps every worker from starting it"
	return o
}

// looks holds the fronts of the queues of all accounts. The queues are looked at once.
type looks struct {
	once   sync.Once
	fronts []look // by account, in the order of their names
	names  []string
}

// look is the front of the queues of one account.
type look struct {
	front

	err error // why they could not be searched
}

// at returns the fronts of the queues of each of the accounts.
func (l *looks) at(ctx context.Context, c *Canceller, all []AccountRecords) []look {
	l.once.Do(func() {
		l.fronts, l.names = make([]look, len(all)), make([]string, len(all))
		var group sync.WaitGroup
		for i, in := range all {
			l.names[i] = in.Account
			group.Go(func() { l.fronts[i] = c.look(ctx, in.Account, len(all) > 1) })
		}
		group.Wait()
	})
	found := make([]look, len(all))
	for i, in := range all { // each job has an order of its own
		found[i] = l.fronts[slices.Index(l.names, in.Account)]
	}
	return found
}

// look looks at the front of the queues of an account. several says that there is more
// than one account.
func (c *Canceller) look(ctx context.Context, account string, several bool) look {
	if c.Queues == nil {
		return look{err: errNoQueues}
	}
	if several {
		if err, ok := c.silent.Load(account); ok {
			return look{err: err.(error)} //nolint:forcetypeassert // as it was stored
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, accountWait)
		defer cancel()
	}
	queues, err := c.Queues(ctx, account)
	if err != nil {
		return look{err: err}
	}
	f, err := lookAt(ctx, queues...)
	return look{f, err}
}

// errNoQueues means that a canceller was given no queues.
var errNoQueues = errors.New("no queues were given")

// outcomeOf describes the effect of a cancel on a record.
func outcomeOf(id string, was checkpoint.Record, err error) CancelOutcome {
	o := CancelOutcome{ID: id, Action: Cancelled, Was: was, Err: err}
	switch {
	case errors.Is(err, checkpoint.ErrUnknownFormat):
		o.Action, o.Detail = Refused, "its record was written by a newer version; use a spotctl of that version"
	case err != nil:
		o.Action, o.Detail = Failed, err.Error()
	case was.Version == 0:
		o.Action, o.Detail = Barred, "it had no record: if it waits for its first worker, none starts it; if there is no such job, the id "+
			"cannot be used while this record is kept"
	case was.Status == checkpoint.Cancelled:
		o.Detail = "it was cancelled before"
	case was.Status == checkpoint.Done:
		o.Action, o.Detail = Over, "it is done already; its result stands"
	case was.Status == checkpoint.Poison:
		o.Action, o.Detail = Over, "it is in the poison queue: spotctl poison purge cancels it there"
	case was.Status == checkpoint.Running:
		o.Detail = fmt.Sprintf("it was running on %s, which stops it within 30 s", was.Owner)
	default:
		o.Detail = "it was waiting for a worker"
	}
	return o
}

func (c *Canceller) reason() string {
	if c.Reason == "" {
		return "cancelled by an operator"
	}
	return c.Reason
}
