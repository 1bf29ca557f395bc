package delivery

import (
	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/joblog"
	"github.com/spotworker/spotworker/internal/outputs"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/renewal"
)

// Stores are the queues and containers of one storage account of a deployment. All of a
// job is in the account of its message.
type Stores struct {
	In       string // the account's name; empty for the first
	Poison   *queue.Queue
	OnDemand *queue.Queue // nil if no job is moved
	Payloads *queue.Payloads
	Records  *checkpoint.Store
	Outputs  *outputs.Store // nil stores none
	Logs     *joblog.Store  // nil keeps none
}

// account is what the deliveries from one storage account share. What waits for its
// answers waits for no other account: its renewals and the writes of its logs.
type account struct {
	poison   *queue.Queue
	onDemand *queue.Queue
	payloads *queue.Payloads
	records  *checkpoint.Store
	outputs  *outputs.Store
	logs     *joblog.Keeper
	renewals *renewal.Set
	mover    mover
}

func newAccount(s Stores, c Config) *account {
	return &account{
		poison: s.Poison, onDemand: s.OnDemand, payloads: s.Payloads, records: s.Records, outputs: s.Outputs,
		logs: joblog.NewKeeper(s.Logs, c.LogSize), renewals: renewal.NewSet(c.Visibility),
	}
}
