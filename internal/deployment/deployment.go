// Package deployment joins the queues and containers of one deployment: those that a
// worker, the commands and package client use.
package deployment

import (
	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/control"
	"github.com/spotworker/spotworker/internal/joblog"
	"github.com/spotworker/spotworker/internal/outputs"
	"github.com/spotworker/spotworker/internal/presence"
	"github.com/spotworker/spotworker/internal/queue"
)

// Stores are a deployment's queues and containers.
type Stores struct {
	Account *azure.Account
	Names   azure.Names

	// Jobs are the queues of jobs, of which Queue is the first.
	Jobs *queue.Shards

	Queue, OnDemand, Poison *queue.Queue
	Payloads                *queue.Payloads
	Logs                    *joblog.Store
	Records                 *checkpoint.Store
	Workers                 *presence.Store
	Control                 *control.Store
	Outputs                 *outputs.Store
}

// StoresOf returns the queues and containers of those names.
func StoresOf(account *azure.Account, names azure.Names) *Stores {
	jobs := queue.NewShards(names.Queue, account.Queue)
	return &Stores{
		Account: account, Names: names, Jobs: jobs,
		Queue:    jobs.Main(),
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
