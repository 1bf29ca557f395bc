package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// accounts are the metrics of each storage account of a deployment that has several. They
// have no series where there is one account.
type accounts struct {
	names   []string // the first of the deployment first
	calls   *counters
	outages map[string]*outage
}

func newAccounts(g *guard) *accounts {
	return &accounts{calls: g.counters("account_calls_total",
		"Calls to each account, if there are several; each retry counted.",
		"account", "service", "status"), outages: map[string]*outage{}}
}

// Accounts makes metrics for each of several storage accounts. It must be called before
// the first call to storage.
func (s *Storage) Accounts(names []string) {
	if len(names) < 2 {
		return
	}
	s.accounts.names = names
	for _, name := range names {
		s.accounts.outages[name] = &outage{}
	}
}

// CalledAccount counts one call to the storage account of that name, empty for the first
// of the deployment, where there are several.
func (s *Storage) CalledAccount(account, service, status string, took time.Duration, answered bool) {
	if len(s.accounts.names) == 0 {
		return
	}
	if account == "" {
		account = s.accounts.names[0]
	}
	if o := s.accounts.outages[account]; o != nil {
		s.accounts.calls.inc(account, service, status)
		o.observe(answered, took)
	}
}

var accountOutageDesc = prometheus.NewDesc(namespace+"_account_unreachable_seconds_total",
	"As storage_unreachable_seconds_total for each account, if there are several. Only its jobs wait.", []string{"account"}, nil)

// Describe implements [prometheus.Collector].
func (a *accounts) Describe(out chan<- *prometheus.Desc) { out <- accountOutageDesc }

// Collect implements [prometheus.Collector].
func (a *accounts) Collect(out chan<- prometheus.Metric) {
	for _, name := range a.names {
		out <- constant(accountOutageDesc, prometheus.CounterValue, a.outages[name].seconds(), name)
	}
}
