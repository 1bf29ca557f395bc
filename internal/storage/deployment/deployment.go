// Package deployment joins the queues and containers of one deployment, for the worker,
// the commands and package client.
package deployment

import (
	"context"
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/control"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// Stores are a deployment's queues and containers.
type Stores struct {
	// In is the account's name; empty for the first account of the deployment, which
	// alone has heartbeats and the control document of all.
	In      string
	Account *azure.Account
	Names   azure.Names

	// Jobs are the queues of jobs. Queue is the first.
	Jobs *queue.Shards

	Queue, OnDemand, Poison *queue.Queue
	Payloads                *queue.Payloads
	Logs                    *joblog.Store
	Records                 *checkpoint.Store
	Workers                 *presence.Store
	Control                 *control.Store
	Outputs                 *outputs.Store

	// More are the further accounts of the deployment, each with queues and containers of
	// the same names for its jobs. Only the first account has Workers, Control, and
	// Accounts, which decides the account of a job.
	More     []*Stores
	Accounts *queue.Accounts
}

// All returns the stores of all accounts, the first of the deployment first.
func (s *Stores) All() []*Stores { return append([]*Stores{s}, s.More...) }

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

// Of returns the stores of the account of that name; empty is the first.
func (s *Stores) Of(account string) *Stores {
	for _, other := range s.More {
		if other.In == account {
			return other
		}
	}
	return s
}

// Join returns the stores of a deployment with several accounts: the first, and further
// ones.
func Join(accounts []*azure.Account, names azure.Names) *Stores {
	home := StoresOf(accounts[0], names)
	list, jobs := []string{accounts[0].Name()}, []*queue.Shards{home.Jobs}
	for _, account := range accounts[1:] {
		s := storesIn(account.Name(), account, names)
		s.Workers, s.Control = home.Workers, home.Control
		home.More = append(home.More, s)
		list, jobs = append(list, account.Name()), append(jobs, s.Jobs)
	}
	home.Accounts = queue.NewAccounts(list, jobs)
	return home
}

// StoresOf returns the queues and containers of those names.
func StoresOf(account *azure.Account, names azure.Names) *Stores {
	s := storesIn("", account, names)
	s.Accounts = queue.NewAccounts([]string{account.Name()}, []*queue.Shards{s.Jobs})
	return s
}

// storesIn returns the queues and containers of those names in an account.
func storesIn(in string, account *azure.Account, names azure.Names) *Stores {
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
