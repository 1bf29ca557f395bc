package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/deployment"
)

// account is one storage account of the deployment.
type account struct {
	stores *deployment.Stores
	writer string // the name of the client, as records show it
}

// account returns the account of that name; empty is the first.
func (c *Client) account(name string) *account {
	i := slices.IndexFunc(c.accounts, func(a *account) bool { return a.stores.In == name })
	return c.accounts[max(i, 0)]
}

// likely returns all accounts, beginning with the accounts that the job of an id belongs in
// if the accounts are the same as when it was put.
func (c *Client) likely(id string) []*account {
	n := len(c.accounts)
	order := []*account{c.accounts[queue.AccountOf(id, n)]}
	if known, err := c.stores.Spread.Known(); err == nil {
		for _, accounts := range []int{known.IDs, known.Accounts()} {
			if at := queue.AccountOf(id, accounts); at < n {
				order = append([]*account{c.accounts[at]}, order...)
			}
		}
	}
	var all []*account
	for _, a := range append(order, c.accounts...) {
		if !slices.Contains(all, a) {
			all = append(all, a)
		}
	}
	return all
}

// find reads the record of a job, and returns its account. If the record is not in the
// likely account, that costs one call for each account. A bar counts if no account has
// another record of the job. If one of them does not answer and no other has the record, the
// error is from that account.
func (c *Client) find(ctx context.Context, id string) (*account, checkpoint.Record, error) {
	var failed error
	var barred *account
	var bar checkpoint.Record
	for _, a := range c.likely(id) {
		r, err := a.stores.Records.Read(ctx, id)
		switch {
		case err == nil && r.IsBar():
			barred, bar = a, r
		case err == nil:
			return a, r, nil
		case !errors.Is(err, checkpoint.ErrNotFound) && failed == nil:
			failed = c.inAccountOf(a, err)
		}
	}
	switch {
	case failed == nil && barred != nil:
		return barred, bar, nil
	case failed == nil:
		failed = checkpoint.ErrNotFound
	}
	return c.accounts[0], checkpoint.Record{}, failed
}

// inAccountOf adds the name of an account to an error if there are several accounts.
func (c *Client) inAccountOf(a *account, err error) error {
	if len(c.accounts) == 1 {
		return err
	}
	return fmt.Errorf("storage account %s: %w", a.stores.Account.Name(), err)
}

// recordsOf returns the records of accounts.
func recordsOf(accounts []*account) (all []operate.AccountRecords) {
	for _, a := range accounts {
		all = append(all, operate.AccountRecords{Store: a.stores.Records, Account: a.stores.Account.Name()})
	}
	return all
}

// allRecords are the records in all accounts. It implements [producer.Records].
type allRecords struct {
	client *Client
	found  sync.Map // the accounts of jobs that are done, by id, where it is not the account of the id
}

// Read reads the record of a job.
func (a *allRecords) Read(ctx context.Context, id string) (checkpoint.Record, error) {
	part, r, err := a.client.find(ctx, id)
	a.keep(r, part)
	return r, err
}

// keep keeps the account of a job that is done.
func (a *allRecords) keep(r checkpoint.Record, part *account) {
	if r.Status == checkpoint.Done && part != a.client.likely(r.ID)[0] {
		a.found.Store(r.ID, part)
	}
}

// List lists the records of all accounts, all accounts at once. An error comes last, for
// the accounts that could not be listed.
func (a *allRecords) List(ctx context.Context, prefix string) iter.Seq2[checkpoint.Record, error] {
	return a.list(ctx, prefix, nil)
}

// list is List, and calls skipped, where it is not nil, for blobs that are no records.
func (a *allRecords) list(ctx context.Context, prefix string, skipped func(blob string)) iter.Seq2[checkpoint.Record, error] {
	var mu sync.Mutex // one call at a time
	skip := func(blob string) {
		if mu.Lock(); skipped != nil {
			skipped(blob)
		}
		mu.Unlock()
	}
	if len(a.client.accounts) == 1 { // merged reads ahead, and so makes a call for a page that nobody wants
		return a.client.stores.Records.ListAnd(ctx, prefix, skip)
	}
	type listed struct {
		checkpoint.Record
		in *account
	}
	all := merged(ctx, a.client, toRead, func(part *account, answers *answers, found func(listed) bool) error {
		for r, err := range part.stores.Records.ListAnd(answers.ctx, prefix, skip) {
			if err != nil {
				return err
			}
			if !found(listed{r, part}) {
				return context.Cause(answers.ctx)
			}
		}
		return nil
	})
	return func(yield func(checkpoint.Record, error) bool) {
		for r, err := range all {
			a.keep(r.Record, r.in)
			if !yield(r.Record, err) {
				return
			}
		}
	}
}

// ResultOf reads the result of a job that Read or List returned. Both may return a job at once,
// since one account may have a bar of its id.
func (a *allRecords) ResultOf(ctx context.Context, r checkpoint.Record) ([]byte, error) {
	part := a.client.likely(r.ID)[0]
	if found, ok := a.found.Load(r.ID); ok {
		part, _ = found.(*account)
	}
	return part.stores.Records.ResultOf(ctx, r)
}

// Accounts are the storage accounts of a deployment.
type Accounts struct {
	// Names are the accounts that this client was given, in order, and Spread the
	// accounts that the deployment's jobs are spread over; Spread is empty if all jobs
	// are in the first account.
	Names, Spread []string

	// ForIDs is over how many of Spread, from the first on, jobs are spread whose id was
	// chosen.
	ForIDs int

	// Problem is why the two do not go together; nil if they do.
	Problem error
}

// Accounts returns the accounts of the deployment, in one call to the first of them.
func (c *Client) Accounts(ctx context.Context) (Accounts, error) {
	if err := c.accounts[0].readShards(ctx); err != nil {
		return Accounts{}, c.readable(err, toRead)
	}
	known, problem := c.known()
	a := Accounts{Spread: known.Names, ForIDs: known.IDs, Problem: problem}
	for _, s := range c.stores.Accounts {
		a.Names = append(a.Names, s.Account.Name())
	}
	return a, nil
}

// known returns over which accounts the jobs of the deployment were spread when that was
// read last, and why that does not go together with the accounts of this client.
func (c *Client) known() (spread queue.Spread, problem error) {
	spread, problem = c.stores.Spread.Known()
	if given := len(c.accounts); problem == nil && spread.Accounts() > given {
		problem = fmt.Errorf("jobs are put in %d accounts, and this program was given %d: what is in the others is not seen", spread.Accounts(),
			given)
	}
	return spread, problem
}

// AccountsError means that some storage accounts of a deployment with several could not
// be read, or written to. The other accounts' data was returned, or their part was
// done.
type AccountsError struct {
	// Names are those accounts.
	Names []string

	// Err is the error of the first of them.
	Err error

	// NotDone says that something was to be done in them, and was not, or not entirely.
	// Repeating it is harmless. Otherwise they could not be read.
	NotDone bool
}

// Error names the accounts and says why the first could not be read, or written to.
func (e *AccountsError) Error() string {
	if e.NotDone {
		return fmt.Sprintf("not done, or not entirely, in storage account %s: %v; the others are done, repeat it when that is fixed",
			strings.Join(e.Names, ", "), e.Err)
	}
	if len(e.Names) == 1 {
		return fmt.Sprintf("storage account %s cannot be read: %v", e.Names[0], e.Err)
	}
	return fmt.Sprintf("storage accounts %s cannot be read: %v", strings.Join(e.Names, ", "), e.Err)
}

// Unwrap returns the error of the first account.
func (e *AccountsError) Unwrap() error { return e.Err }

// accountWait is how long one of several accounts may take for an answer. A view of all
// does not wait longer for an account that does not answer.
const accountWait = 15 * time.Second

// errSilent means that an account did not answer in time.
var errSilent = fmt.Errorf("it did not answer within %s", accountWait)

// answers bounds the time between two answers of one of several accounts.
type answers struct {
	ctx   context.Context //nolint:containedctx // ends when an answer takes too long
	timer *time.Timer     // nil where there is one account
}

// came stops the time until awaited is called: while an answer is used, none is awaited.
func (a *answers) came() {
	if a.timer != nil {
		a.timer.Stop()
	}
}

func (a *answers) awaited() {
	if a.timer != nil {
		a.timer.Reset(accountWait)
	}
}

// fromEach calls read for each account, all at once. If some accounts could be read and
// others could not, the error is [*AccountsError].
func (c *Client) fromEach(ctx context.Context, n need, read func(part *account, answers *answers) error) error {
	return c.inEach(ctx, n, func(_ int, part *account) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		answers := &answers{ctx: ctx}
		if len(c.accounts) > 1 {
			answers.timer = time.AfterFunc(accountWait, func() { cancel(errSilent) })
			defer answers.timer.Stop()
		}
		err := read(part, answers)
		if err != nil && errors.Is(context.Cause(ctx), errSilent) {
			return errSilent
		}
		return err
	})
}

// inEach calls do for each account with its number, all at once, and leaves it to each call
// how long it may take. If some accounts failed and others did not, the error is
// [*AccountsError].
func (c *Client) inEach(ctx context.Context, n need, do func(i int, part *account) error) error {
	errs := make([]error, len(c.accounts))
	var group sync.WaitGroup
	for i, part := range c.accounts {
		group.Go(func() { errs[i] = do(i, part) })
	}
	group.Wait()
	if ctx.Err() != nil && cmp.Or(errs...) != nil {
		return context.Cause(ctx)
	}
	return c.unread(errs, n)
}

// changeEach is inEach for operations that change something.
func (c *Client) changeEach(ctx context.Context, n need, do func(i int, part *account) error) error {
	err := c.inEach(ctx, n, do)
	if some, ok := errors.AsType[*AccountsError](err); ok {
		some.NotDone = true
	}
	return err
}

// merged yields what read finds in each account, all accounts at once. read calls found,
// and ends when that returns false. An error comes last, for the accounts that could not
// be read.
func merged[T any](ctx context.Context, c *Client, n need, read func(part *account, answers *answers,
	found func(T) bool) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		values, ended := make(chan T, len(c.accounts)), make(chan error, 1)
		go func() {
			err := c.fromEach(ctx, n, func(part *account, answers *answers) error {
				return read(part, answers, func(v T) bool {
					answers.came()
					defer answers.awaited()
					select {
					case values <- v:
						return true
					case <-ctx.Done():
						return false
					}
				})
			})
			close(values)
			ended <- err
		}()
		for v := range values {
			if !yield(v, nil) {
				cancel()
				for range values { // until the goroutines that read have ended
				}
				return
			}
		}
		if err := <-ended; err != nil {
			var none T
			yield(none, err)
		}
	}
}

// unread returns the error for the accounts that could not be read, by the errors of all.
func (c *Client) unread(errs []error, n need) error {
	e := &AccountsError{}
	for i, err := range errs {
		if err == nil {
			continue
		}
		e.Names = append(e.Names, c.accounts[i].stores.Account.Name())
		if e.Err == nil {
			e.Err = c.accounts[i].readable(err, n)
		}
	}
	switch len(e.Names) {
	case 0:
		return nil
	case len(errs):
		return e.Err
	default:
		return e
	}
}
