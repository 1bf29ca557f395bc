// Package deployment has the queues and containers of a deployment, which are in one storage
// account. Workers, the commands and package client hold the same type.
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

// Stores are the queues and containers of a deployment.
type Stores struct {
	Account *azure.Account
	Names   azure.Names

	// Jobs are the queues of jobs; Queue is the first of them. A worker without Jobs takes
	// jobs from Queue alone.
	Jobs *queue.Shards

	// First has the jobs that are done before those of Queue, and OnDemand the jobs for VMs of
	// regular priority.
	Queue, First, OnDemand, Poison *queue.Queue

	Payloads *queue.Payloads
	Logs     *joblog.Store // nil in a worker that keeps no logs
	Records  *checkpoint.Store
	Outputs  *outputs.Store

	// Workers has the heartbeats of all workers, and Control the requests of operators.
	Workers *presence.Store
	Control *control.Store
}

// JobQueues returns the queues that may have messages of jobs, as far as their number is known.
func (s *Stores) JobQueues() []*queue.Queue {
	return append(slices.Clone(s.Jobs.All()), s.First, s.OnDemand)
}

// AllQueues is JobQueues with the poison queue.
func (s *Stores) AllQueues() []*queue.Queue { return append(s.JobQueues(), s.Poison) }

// ContainerNames returns the names of the containers.
func (s *Stores) ContainerNames() []string {
	return []string{s.Names.Records, s.Names.Payloads, s.Names.Outputs, s.Names.Workers, s.Names.Control}
}

// Create creates the queues and containers that do not exist.
func (s *Stores) Create(ctx context.Context) error {
	for _, q := range s.AllQueues() {
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

// StoresOf returns the queues and containers of those names in an account.
func StoresOf(account *azure.Account, names azure.Names) *Stores {
	jobs := queue.NewShards(names.Queue, account.Queue)
	return &Stores{
		Account: account, Names: names, Jobs: jobs,
		Queue:    jobs.Main(),
		First:    queue.New(account.Queue(names.First), names.First),
		OnDemand: queue.New(account.Queue(names.OnDemand), names.OnDemand),
		Poison:   queue.New(account.Queue(names.Poison), names.Poison),
		Payloads: queue.NewPayloads(account.Container(names.Payloads)),
		Logs:     joblog.NewStore(account.Container(names.Payloads)),
		Records:  checkpoint.NewStore(account.Container(names.Records)),
		Workers:  presence.NewStore(account.Container(names.Workers)),
		Control:  control.NewStore(account.Container(names.Control)),
		Outputs:  outputs.NewStore(account.Container(names.Outputs)),
	}
}
