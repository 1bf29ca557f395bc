// Package deployment has the queues and containers of a deployment. [Stores] has the queues
// and containers of one storage account, and [Deployment] is the list of all accounts.
// Workers, the commands and package client hold the same type, and one account is a list of
// one.
package deployment

import (
	"context"
	"fmt"
	"slices"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// Stores are the queues and containers of one storage account of a deployment. A job has its
// message, its record and its files in one account.
type Stores struct {
	// In is the account's name; empty for the first account of the deployment.
	In      string
	Account *azure.Account
	Names   azure.Names

	// Jobs are the queues of jobs; Queue is the first of them. A worker without Jobs takes
	// jobs from Queue alone.
	Jobs *queue.Shards

	Queue, OnDemand, Poison *queue.Queue
	Payloads                *queue.Payloads
	Logs                    *joblog.Store // nil in a worker that keeps no logs
	Records                 *checkpoint.Store
	Outputs                 *outputs.Store

	// Workers has the heartbeats of all workers, and Control the requests of operators. All
	// accounts share the containers of the first account.
	Workers *presence.Store
	Control *control.Store
}

// Deployment is the list of the accounts of a deployment. The embedded Stores belong to the
// first account.
type Deployment struct {
	*Stores
	Accounts []*Stores // all accounts, the first of the deployment first

	// Spread says over which accounts jobs are spread, and so in which account a job is.
	Spread *queue.Accounts
}

// Join returns the deployment with the queues and containers of those names in each account.
func Join(accounts []*azure.Account, names azure.Names) *Deployment {
	d := &Deployment{Stores: StoresOf(accounts[0], names)}
	d.Accounts = []*Stores{d.Stores}
	for _, account := range accounts[1:] {
		s := StoresIn(account.Name(), account, names)
		s.Workers, s.Control = d.Workers, d.Control
		d.Accounts = append(d.Accounts, s)
	}
	d.Spread = SpreadOver(d.Accounts)
	return d
}

// SpreadOver returns the queues of jobs in some accounts. It returns nil if the number of
// queues is not known in one of them.
func SpreadOver(accounts []*Stores) *queue.Accounts {
	names, jobs := make([]string, len(accounts)), make([]*queue.Shards, len(accounts))
	for i, s := range accounts {
		if s.Jobs == nil {
			return nil
		}
		names[i], jobs[i] = s.Account.Name(), s.Jobs
	}
	return queue.NewAccounts(names, jobs)
}

// Of returns the stores of the account of that name; empty is the first.
func (d *Deployment) Of(account string) *Stores {
	i := slices.IndexFunc(d.Accounts, func(s *Stores) bool { return s.In == account })
	return d.Accounts[max(i, 0)]
}

// Create creates the queues and containers of all accounts that do not exist.
func (d *Deployment) Create(ctx context.Context) error {
	for _, s := range d.Accounts {
		if err := s.Create(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ContainerNames returns the names of the containers of the account.
func (s *Stores) ContainerNames() []string {
	names := []string{s.Names.Records, s.Names.Payloads, s.Names.Outputs}
	if s.In == "" {
		names = append(names, s.Names.Workers, s.Names.Control)
	}
	return names
}

// Create creates the queues and containers of the account that do not exist.
func (s *Stores) Create(ctx context.Context) error {
	for _, q := range []*queue.Queue{s.Queue, s.OnDemand, s.Poison} {
		if err := q.Create(ctx); err != nil {
			return err
		}
	}
	for _, name := range s.ContainerNames() {
		if _, err := s.Account.Container(name).Create(ctx, nil); err != nil && !bloberror.HasCode(err, bloberror.ContainerAlreadyExists) {
			return fmt.Errorf("create container %s: %w", name, err)
		}
	}
	return nil
}

// StoresOf returns the queues and containers of those names in the first account.
func StoresOf(account *azure.Account, names azure.Names) *Stores { return StoresIn("", account, names) }

// StoresIn returns the queues and containers of those names in the account of that name; empty
// is the first.
func StoresIn(in string, account *azure.Account, names azure.Names) *Stores {
	jobs := queue.NewShardsIn(in, names.Queue, account.Queue)
	return &Stores{
		In: in, Account: account, Names: names, Jobs: jobs,
		Queue:    jobs.Main(),
		OnDemand: queue.NewIn(in, account.Queue(names.OnDemand), names.OnDemand),
		Poison:   queue.NewIn(in, account.Queue(names.Poison), names.Poison),
		Payloads: queue.NewPayloads(account.Container(names.Payloads)),
		Logs:     joblog.NewStore(account.Container(names.Payloads)),
		Records:  checkpoint.NewStore(account.Container(names.Records)),
		Workers:  presence.NewStore(account.Container(names.Workers)),
		Control:  control.NewStore(account.Container(names.Control)),
		Outputs:  outputs.NewStore(account.Container(names.Outputs)),
	}
}
