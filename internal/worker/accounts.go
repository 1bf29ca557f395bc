package worker

import (
	"context"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/joblog"
	"github.com/spotworker/spotworker/internal/outputs"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/sources"
)

// Account are the queues and containers of one storage account. The fields are those of
// [Config].
type Account struct {
	Name string // empty for the first

	Queue, Poison, OnDemand *queue.Queue
	Shards                  *queue.Shards
	TakeFrom                []*queue.Queue

	Payloads *queue.Payloads
	Records  *checkpoint.Store
	Outputs  *outputs.Store
	Logs     *joblog.Store
}

// accounts returns all accounts, the first of the deployment first.
func (c *Config) accounts() []Account {
	first := Account{
		Queue: c.Queue, Poison: c.Poison, OnDemand: c.OnDemand, Shards: c.Shards, TakeFrom: c.TakeFrom,
		Payloads: c.Payloads, Records: c.Records, Outputs: c.Outputs, Logs: c.Logs,
	}
	return append([]Account{first}, c.More...)
}

// takeFrom returns the queues that jobs are taken from, in all accounts.
func (c *Config) takeFrom() (queues []*queue.Queue) {
	for _, a := range c.accounts() {
		queues = append(queues, a.TakeFrom...)
	}
	return queues
}

// moreStores returns what deliveries of the further accounts need.
func (c *Config) moreStores() (stores []delivery.Stores) {
	for _, a := range c.More {
		stores = append(stores, delivery.Stores{
			In: a.Name, Poison: a.Poison, OnDemand: a.OnDemand, Payloads: a.Payloads, Records: a.Records, Outputs: a.Outputs, Logs: a.Logs,
		})
	}
	return stores
}

// blobsFail reports whether calls for blobs of an account fail, where there are several.
func (w *Worker) blobsFail(account string) bool {
	return len(w.More) > 0 && w.Blobs.Fail(account, time.Now())
}

// sourcesOfAccounts returns the queues that jobs are taken from by account, and what
// checks the account.
func (w *Worker) sourcesOfAccounts() (all []sources.Account) {
	for _, a := range w.accounts() {
		all = append(all, sources.Account{
			Name: a.Name, TakeFrom: a.TakeFrom, Main: a.Queue, Shards: a.Shards,
			Check: func(ctx context.Context) error { return w.checkStorage(ctx, a) },
		})
	}
	return all
}
