package overview

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/deployment"
)

// severalAccounts makes a deployment with that many accounts, each with a message on each
// of its queues.
func severalAccounts(t *testing.T, n int) (*client.Client, []*storage.Server) {
	t.Helper()
	var servers []*storage.Server
	for i := range n {
		servers = append(servers, storage.New(storage.Options{Account: fmt.Sprintf("account%d", i)}))
	}
	transport := servers[0].TransportWith(servers[1:]...)
	var more []string
	var accounts []*azure.Account
	for i, server := range servers {
		account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: transport})
		if err != nil {
			t.Fatal(err)
		}
		if accounts = append(accounts, account); i > 0 {
			more = append(more, server.ConnectionString())
		}
	}
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		t.Fatal(err)
	}
	stores := deployment.Join(accounts, names)
	if _, err := operate.SpreadOver(t.Context(), stores, n, false); err != nil {
		t.Fatal(err)
	}
	for _, s := range stores.Accounts {
		for _, q := range []*queue.Queue{s.Queue, s.OnDemand, s.Poison} {
			if err := q.Put(t.Context(), queue.Envelope{ID: "waits", Kind: "k"}, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	c, err := client.Open(client.Options{ConnectionString: servers[0].ConnectionString(), MoreConnectionStrings: more, Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return c, servers
}

// TestAccountsAreReadSideBySide: a snapshot of many accounts takes as long as a snapshot
// of one account. An account that does not answer costs its timeout once.
func TestAccountsAreReadSideBySide(t *testing.T) {
	const latency = 100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		c, servers := severalAccounts(t, 16)
		for _, server := range servers {
			server.OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: latency} })
		}
		s, err := Read(t.Context(), c)
		if err != nil || len(s.Faults) > 0 {
			t.Fatal(err, s.Faults)
		}
		if len(s.Waits) != 16+2 || s.Queues.Jobs.Messages != 16 {
			t.Errorf("%d waits and %d messages, want those of 16 queues of jobs, and of the two others together", len(s.Waits),
				s.Queues.Jobs.Messages)
		}
		// Records, heartbeats and queues; then the control document and the waits, in two rounds.
		if s.Took > 4*latency {
			t.Errorf("a snapshot of 16 accounts took %s, want at most 4 calls of %s", s.Took, latency)
		}
	})
	for _, sick := range []int{0, 3} {
		synctest.Test(t, func(t *testing.T) {
			c, servers := severalAccounts(t, 4)
			servers[sick].OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: time.Hour} })
			s, err := Read(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			if s.Queues.Jobs.Messages != 3 || len(s.Waits) != 3+2 {
				t.Errorf("without account %d: %d messages, waits %v; want those of the three others", sick, s.Queues.Jobs.Messages, s.Waits)
			}
			if most := 25 * time.Second; s.Took > most {
				t.Errorf("without account %d a snapshot took %s, want at most %s", sick, s.Took, most)
			}
		})
	}
}
