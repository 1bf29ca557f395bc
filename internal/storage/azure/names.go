package azure

import (
	"fmt"
	"strings"
)

// Names are the queues and containers of one deployment. Several deployments
// share a storage account by using different prefixes.
type Names struct {
	Queue    string // jobs to do
	First    string // jobs to do before the others
	OnDemand string // jobs for VMs of regular priority
	Poison   string // dead-lettered messages, with their reasons
	Records  string // container: one blob per job
	Payloads string // container: payloads too large for a message
	Workers  string // container: one blob per worker
	Control  string // container: what operators ask of all workers
	Outputs  string // container: files that jobs store for others
}

// DefaultPrefix is the default prefix of the names of queues and containers.
const DefaultPrefix = "spotworker"

// NamesFor returns the names with that prefix. The queue is "<prefix>-jobs", or queue
// if that is not empty.
func NamesFor(prefix, queue string) (Names, error) {
	if queue == "" {
		queue = prefix + "-jobs"
	}
	n := Names{
		Queue: queue, First: queue + "-first", OnDemand: queue + "-ondemand", Poison: queue + "-poison",
		Records: prefix + "-jobs", Payloads: prefix + "-payloads", Workers: prefix + "-workers",
		Control: prefix + "-control", Outputs: prefix + "-outputs",
	}
	for _, name := range []string{n.Queue, n.First, n.OnDemand, n.Poison, n.Records, n.Payloads, n.Workers, n.Control, n.Outputs} {
		if err := validName(name); err != nil {
			return Names{}, fmt.Errorf("name %q made from prefix %q and queue %q: %w", name, prefix, queue, err)
		}
	}
	return n, nil
}

// validName checks the service's rule for the names of queues and containers: 3–63
// lower-case letters, digits and single dashes between them.
func validName(name string) error {
	if len(name) < 3 || len(name) > 63 {
		return fmt.Errorf("must have 3 to 63 characters")
	}
	for _, c := range name {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-') {
			return fmt.Errorf("has %q; allowed are a-z 0-9 and -", c)
		}
	}
	if strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") || strings.Contains(name, "--") {
		return fmt.Errorf("must not start or end with a dash, nor have two in a row")
	}
	return nil
}

// validAccount reports whether name is a valid name of a storage account: 3–24
// lower-case letters and digits. Anything else could lead to another host.
func validAccount(name string) bool {
	for _, c := range name {
		if !('a' <= c && c <= 'z' || '0' <= c && c <= '9') {
			return false
		}
	}
	return len(name) >= 3 && len(name) <= 24
}
