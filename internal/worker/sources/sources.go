// Package sources knows the queues that a worker takes jobs from. The jobs of a
// deployment may be spread over several queues, whose number it reads from time to time,
// and over several storage accounts.
package sources

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/internal/storage/deployment"
	"github.com/spotworker/spotworker/internal/storage/outage"
)

const (
	// shardsEvery is how often a worker reads how many queues of jobs there are, give or
	// take a quarter: one call for each account.
	shardsEvery = time.Minute

	// checkEvery is how often an account is checked that was not ready.
	checkEvery = 15 * time.Second

	// othersWait is how long a worker that starts waits for the other accounts when one is
	// ready.
	othersWait = 3 * time.Second
)

// Sources are the queues that a worker takes jobs from: with the first queue of jobs all
// of its shards, whose number may change, in each account that is ready. Its methods may
// be called from several goroutines.
type Sources struct {
	Config
	taken atomic.Pointer[[]*queue.Queue]

	mu      sync.Mutex
	ready   []bool // the accounts that have answered every call of a check once
	started bool   // the first check has ended: later readings are changes
	told    string // the text logged about accounts that this worker was not given
}

// Config holds the settings of [Sources].
type Config struct {
	// Accounts are the accounts of the deployment; the deployment's first account comes first.
	Accounts []*deployment.Stores

	// TakeFrom are the queues of each account that jobs are taken from. For [Spot] that are
	// all shards of the queue of jobs, if the account has any.
	TakeFrom []Choice

	// Check makes one call to everything that the jobs of an account need except its
	// queues in TakeFrom.
	Check func(context.Context, *deployment.Stores) error

	// Spread says over which accounts jobs are spread. Optional.
	Spread *queue.Accounts

	// Failing reports whether calls to an account fail, so that it is checked until they do
	// not.
	Failing func(account string) bool

	Jitter retry.Jitter
	Log    *slog.Logger
}

// Choice is a queue that each account has and that jobs may be taken from.
type Choice string

// The choices.
const (
	Spot     Choice = "spot"      // the queue of jobs, with its shards
	OnDemand Choice = "on-demand" // the queue of jobs for VMs of regular priority
)

// Chosen returns the queues of an account by choices, without the further shards. A queue
// that the account does not have is nil.
func Chosen(a *deployment.Stores, choices []Choice) []*queue.Queue {
	queues := make([]*queue.Queue, len(choices))
	for i, choice := range choices {
		switch choice {
		case Spot:
			queues[i] = a.Queue
		case OnDemand:
			queues[i] = a.OnDemand
		}
	}
	return queues
}

// New returns sources before anything was read.
func New(c Config) *Sources {
	s := &Sources{Config: c, ready: make([]bool, len(c.Accounts))}
	s.taken.Store(new(Chosen(c.Accounts[0], c.TakeFrom)))
	return s
}

// Taken returns the queues that jobs are taken from. The slice is another one after each
// change.
func (s *Sources) Taken() []*queue.Queue { return *s.taken.Load() }

// Place returns the queue for new messages of a job whose id may be put again.
func (s *Sources) Place(id string) (*queue.Queue, error) {
	if s.Spread == nil {
		return s.Accounts[0].Queue, nil
	}
	return s.Spread.Place(id, true)
}

// readsShards reports whether jobs are taken from all shards of the queue of jobs in an
// account, so that their number must be read.
func (s *Sources) readsShards(a *deployment.Stores) bool {
	return a.Jobs != nil && slices.Contains(s.TakeFrom, Spot)
}

// Complete reports whether jobs are taken from all accounts. The queues of an account that was
// never ready are missing in [Sources.Taken].
func (s *Sources) Complete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.Contains(s.ready, false)
}

// reads reports whether the number of queues in an account must be read. In the first of
// several accounts the same call says where follow-up jobs belong.
func (s *Sources) reads(i int) bool {
	a := s.Accounts[i]
	return s.readsShards(a) || i == 0 && len(s.Accounts) > 1 && a.Jobs != nil
}

// Check makes one call to everything that the jobs of an account need, in all accounts at
// once. It returns an error if no account is ready: the first in the order of the calls,
// so that an operator who fixes one thing after the other sees the same error until it
// is fixed. Jobs of an account that is not ready wait; [Sources.Follow] checks it again.
// An account that answered an earlier Check and fails this one is not ready for this one.
func (s *Sources) Check(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		account int
		err     error
	}
	results := make(chan result, len(s.Accounts))
	for i := range s.Accounts {
		go func() { results <- result{i, s.checkAccount(ctx, i)} }()
	}
	errs := make([]error, len(s.Accounts))
	answered := false
	var late <-chan time.Time
	for ended := 0; ended < len(s.Accounts); {
		select {
		case r := <-results:
			ended++
			errs[r.account] = r.err
			answered = answered || r.err == nil
			if r.err == nil && late == nil {
				late = time.After(othersWait)
			}
		case <-late:
			return s.checked(ctx, errs, answered)
		}
	}
	return s.checked(ctx, errs, answered)
}

// checked logs which accounts are not ready, or returns why none answered.
func (s *Sources) checked(ctx context.Context, errs []error, answered bool) error {
	defer s.start(ctx)
	if !answered {
		return cmp.Or(errs...)
	}
	ready, _ := s.readiness()
	for i := range ready {
		if !ready[i] && ctx.Err() == nil {
			s.Log.ErrorContext(ctx, "storage account is not ready; its jobs wait, and those of the other accounts do not", "resource", s.nameOf(i),
				"error", errs[i], "retry_in", checkEvery)
		}
	}
	return nil
}

// start ends the start once an account is ready. If the worker then takes from other queues
// than configured, one line of the log names them all, in place of one line for each account.
func (s *Sources) start(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.started || !slices.Contains(s.ready, true) {
		return
	}
	s.started = true
	if taken := s.Taken(); !slices.Equal(taken, Chosen(s.Accounts[0], s.TakeFrom)) {
		s.logTaken(ctx, taken)
	}
}

func (s *Sources) logTaken(ctx context.Context, taken []*queue.Queue) {
	s.Log.InfoContext(ctx, "jobs are taken from another number of queues", "take_from", queue.Names(taken))
}

// nameOf returns the name of an account for people.
func (s *Sources) nameOf(account int) string {
	if s.Spread != nil && s.Spread.Name(account) != "" {
		return s.Spread.Name(account)
	}
	return cmp.Or(s.Accounts[account].In, "the first one")
}

// readiness returns which accounts are ready, and whether the first check has ended.
func (s *Sources) readiness() (ready []bool, started bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ready), s.started
}

// checkAccount checks one account. From then on jobs are taken from it.
func (s *Sources) checkAccount(ctx context.Context, i int) error {
	a := s.Accounts[i]
	var checks []func(context.Context) error
	for _, q := range Chosen(a, s.TakeFrom) {
		checks = append(checks, func(ctx context.Context) error {
			if q == a.Queue && a.Jobs != nil {
				_, err := a.Jobs.Read(ctx)
				return err
			}
			_, err := q.Depth(ctx)
			return err
		})
	}
	if err := All(ctx, append(checks, func(ctx context.Context) error { return s.Config.Check(ctx, a) })); err != nil {
		return err
	}
	if !s.readsShards(a) {
		s.read(ctx, i)
	}
	s.mu.Lock()
	s.ready[i] = true
	s.mu.Unlock()
	s.update(ctx)
	return nil
}

// All runs checks at once, and returns the first error in their order.
func All(ctx context.Context, checks []func(context.Context) error) error {
	errs := make([]error, len(checks))
	var group sync.WaitGroup
	for i, check := range checks {
		group.Go(func() { errs[i] = check(ctx) })
	}
	group.Wait()
	return cmp.Or(errs...)
}

// Follow reads the number of queues from time to time until ctx ends. From the end of the
// first check on, it checks the accounts that were not ready.
func (s *Sources) Follow(ctx context.Context) {
	if len(s.Accounts) == 1 && !s.readsShards(s.Accounts[0]) {
		return
	}
	due := time.Now().Add(s.Jitter.Vary(shardsEvery))
	for retry.Sleep(ctx, min(s.Jitter.Vary(checkEvery), time.Until(due))) == nil {
		now := time.Now()
		isDue := !now.Before(due)
		var group sync.WaitGroup
		ready, started := s.readiness()
		for i, a := range s.Accounts {
			switch {
			case ready[i] && isDue:
				group.Go(func() { s.read(ctx, i) })
			case !ready[i] && started:
				group.Go(func() { s.checkAgain(ctx, i) })
			case ready[i] && s.Failing(a.In):
				group.Go(func() { _ = s.Config.Check(ctx, a) }) // who counts failures counts this one
			}
		}
		group.Wait()
		if isDue {
			due = now.Add(s.Jitter.Vary(shardsEvery))
		}
		s.update(ctx)
	}
}

// checkAgain checks an account that was not ready.
func (s *Sources) checkAgain(ctx context.Context, i int) {
	if err := s.checkAccount(ctx, i); err == nil {
		s.Log.InfoContext(ctx, "storage account is ready; its jobs are taken", "resource", s.nameOf(i))
	} else if ctx.Err() == nil {
		s.Log.DebugContext(ctx, "storage account is still not ready", "resource", s.nameOf(i), "error", err)
	}
}

// read reads the number of queues in an account.
func (s *Sources) read(ctx context.Context, i int) {
	if !s.reads(i) {
		return
	}
	if _, err := s.Accounts[i].Jobs.Read(ctx); err != nil && ctx.Err() == nil {
		s.Log.Log(ctx, outage.Level(err, slog.LevelWarn), "number of queues not read; jobs are taken from those known", "error", err,
			"take_from", queue.Names(s.Taken()))
	}
}

// update takes jobs from the queues that are known now, and makes a call to each new one, all
// at once.
func (s *Sources) update(ctx context.Context) {
	var group sync.WaitGroup
	for _, q := range s.take(ctx) {
		group.Go(func() {
			if _, err := q.Depth(ctx); err != nil && ctx.Err() == nil {
				s.Log.Log(ctx, outage.Level(err, slog.LevelError), "queue cannot be read; its jobs wait, and those of the other queues do not", "queue",
					q.Name(), "error", err)
			}
		})
	}
	group.Wait()
}

// take takes jobs from the queues that are known now, and returns the new queues. It
// makes no call: accounts that answer do not wait for an account that does not.
func (s *Sources) take(ctx context.Context) (added []*queue.Queue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tellUnknown(ctx)
	before, next := s.Taken(), s.known()
	if len(next) == 0 || slices.Equal(before, next) {
		return nil
	}
	s.taken.Store(&next)
	if s.started {
		s.logTaken(ctx, next)
	}
	return slices.DeleteFunc(slices.Clone(next), func(q *queue.Queue) bool { return slices.Contains(before, q) })
}

// known returns the queues of jobs of all accounts that are ready. The caller holds the
// lock.
func (s *Sources) known() (all []*queue.Queue) {
	for i, a := range s.Accounts {
		if !s.ready[i] {
			continue
		}
		for _, q := range Chosen(a, s.TakeFrom) {
			if q == a.Queue && a.Jobs != nil {
				all = append(all, a.Jobs.All()...)
			} else {
				all = append(all, q)
			}
		}
	}
	return all
}

// tellUnknown logs once that jobs are put in accounts that this worker was not given.
func (s *Sources) tellUnknown(ctx context.Context) {
	if s.Spread == nil {
		return
	}
	text := ""
	if known, err := s.Spread.Known(); err == nil && known.Accounts() > len(s.Accounts) {
		text = strings.Join(known.Names[len(s.Accounts):], ",")
	} else if err != nil && known.Accounts() > 1 {
		text = err.Error()
	}
	if text != "" && text != s.told {
		s.Log.ErrorContext(ctx, "the deployment has other accounts than this worker was given; jobs there wait for workers that have them: "+
			"set --more-account as on the other workers", "resource", text)
	}
	s.told = text
}
