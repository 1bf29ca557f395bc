package operate

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/deployment"
)

// inAccounts runs a test in virtual time with a deployment over three new accounts.
func inAccounts(t *testing.T, test func(t *testing.T, d *deployment.Deployment, servers []*storage.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		names, err := azure.NamesFor("test", "")
		if err != nil {
			t.Fatal(err)
		}
		var accounts []*azure.Account
		var servers []*storage.Server
		for _, name := range []string{"first", "second", "third"} {
			server := storage.New(storage.Options{Account: name})
			account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
			if err != nil {
				t.Fatal(err)
			}
			accounts, servers = append(accounts, account), append(servers, server)
		}
		test(t, deployment.Join(accounts, names), servers)
	})
}

// spread spreads the jobs over accounts, and fails the test if it cannot.
func spread(t *testing.T, d *deployment.Deployment, accounts int) queue.Spread {
	t.Helper()
	done, err := SpreadOver(t.Context(), d, accounts, false)
	if err != nil || done.Accounts() != accounts {
		t.Fatalf("SpreadOver %d = %+v, %v", accounts, done, err)
	}
	return done
}

// TestSpreadOverWhileJobsWait: while there is any job, message or record, in whatever place,
// no account is removed, and jobs with chosen ids stay where they are.
func TestSpreadOverWhileJobsWait(t *testing.T) {
	put := func(of func(*deployment.Stores) *queue.Queue, delay time.Duration) func(*testing.T, *deployment.Stores) {
		return func(t *testing.T, s *deployment.Stores) {
			if err := of(s).Put(t.Context(), queue.Envelope{ID: "a", Kind: "k"}, delay); err != nil {
				t.Fatal(err)
			}
		}
	}
	jobs := func(s *deployment.Stores) *queue.Queue { return s.Queue }
	for name, remain := range map[string]func(t *testing.T, s *deployment.Stores){
		"a message":        put(jobs, 0),
		"a hidden message": put(jobs, time.Hour),
		"on demand":        put(func(s *deployment.Stores) *queue.Queue { return s.OnDemand }, 0),
		"poison":           put(func(s *deployment.Stores) *queue.Queue { return s.Poison }, 0),
		"another queue": func(t *testing.T, s *deployment.Stores) {
			if err := Resize(t.Context(), s.Jobs, 3, 0, func(int) {}); err != nil {
				t.Fatal(err)
			}
			put(func(s *deployment.Stores) *queue.Queue { return s.Jobs.At(2) }, 0)(t, s)
		},
		"a record": func(t *testing.T, s *deployment.Stores) {
			claim, err := s.Records.Create(t.Context(), checkpoint.Delivery{ID: "a", Kind: "k", PayloadHash: queue.Payload{}.Hash(),
				MessageID: "m"}, "worker")
			if err = errors.Join(err, claim.Commit(t.Context(), nil)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		for in := range 2 {
			inAccounts(t, func(t *testing.T, d *deployment.Deployment, _ []*storage.Server) {
				if done := spread(t, d, 2); done.IDs != 2 {
					t.Fatalf("an empty deployment has chosen ids in %d accounts, want 2", done.IDs)
				}
				remain(t, d.Accounts[in])
				if _, err := SpreadOver(t.Context(), d, 1, false); !errors.Is(err, ErrFewerAccounts) {
					t.Errorf("%s in account %d: SpreadOver 1 = %v, want ErrFewerAccounts", name, in, err)
				}
				if _, err := SpreadOver(t.Context(), d, 1, true); !errors.Is(err, ErrFewerAccounts) {
					t.Errorf("%s in account %d: SpreadOver 1 with chosen ids = %v, want ErrFewerAccounts", name, in, err)
				}
				if known, err := d.Spread.Known(); err != nil || known.Accounts() != 2 || known.IDs != 2 {
					t.Errorf("%s in account %d: after a refusal over %+v, %v, want two accounts", name, in, known, err)
				}
				if done := spread(t, d, 3); done.IDs != 2 {
					t.Errorf("%s in account %d: chosen ids over %d accounts, want 2", name, in, done.IDs)
				}
			})
		}
	}
}

// TestSpreadOverEmpty: an empty deployment has any number of accounts.
func TestSpreadOverEmpty(t *testing.T) {
	inAccounts(t, func(t *testing.T, d *deployment.Deployment, _ []*storage.Server) {
		for _, n := range []int{1, 3, 2, 1, 2} {
			if done := spread(t, d, n); done.IDs != n {
				t.Errorf("over %d accounts: chosen ids over %d, want all", n, done.IDs)
			}
		}
		if _, err := SpreadOver(t.Context(), &deployment.Deployment{
			Stores: d.Stores, Accounts: d.Accounts[:1], Spread: d.Spread,
		}, 1, false); err == nil {
			t.Error("SpreadOver 1 with one account given of two = nil, want an error")
		}
	})
}

// TestSpreadOverWithoutAnAnswer: an account that refuses is no empty one, and nothing is
// recorded.
func TestSpreadOverWithoutAnAnswer(t *testing.T) {
	for _, row := range []struct {
		account   int
		operation string
		queue     string // empty for all
		over      int
	}{
		{0, storage.OpGetQueueMetadata, "", 2},
		{0, "SetQueueMetadata", "", 3},
		{1, storage.OpGetQueueMetadata, "", 1},
		{1, storage.OpGetQueueMetadata, "test-jobs-poison", 1},
		{1, storage.OpListBlobs, "", 1},
		{1, storage.OpGetQueueMetadata, "", 3},
		{1, storage.OpGetQueueMetadata, "test-jobs-poison", 3},
		{1, storage.OpListBlobs, "", 3},
		{1, storage.OpCreateQueue, "", 3},
		{1, storage.OpCreateContainer, "", 3},
	} {
		inAccounts(t, func(t *testing.T, d *deployment.Deployment, servers []*storage.Server) {
			spread(t, d, 2)
			servers[row.account].OnCall(func(c storage.Call) storage.Fault {
				if c.Operation == row.operation && (row.queue == "" || row.queue == c.Queue) {
					return refusal
				}
				return storage.Fault{}
			})
			if _, err := SpreadOver(t.Context(), d, row.over, false); err == nil || errors.Is(err, ErrFewerAccounts) {
				t.Errorf("SpreadOver while %+v is refused = %v, want its error", row, err)
			}
			servers[row.account].OnCall(nil)
			if _, err := d.Jobs.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
			if known, err := d.Spread.Known(); err != nil || known.Accounts() != 2 {
				t.Errorf("after %+v was refused over %+v, %v, want two accounts", row, known, err)
			}
		})
	}
}

// TestSpreadOverInAnotherOrder: accounts that are given in another order than they were spread
// over are refused, and a job in an account that is added keeps chosen ids where they are.
func TestSpreadOverInAnotherOrder(t *testing.T) {
	inAccounts(t, func(t *testing.T, d *deployment.Deployment, _ []*storage.Server) {
		spread(t, d, 2)
		names, err := azure.NamesFor("test", "")
		if err != nil {
			t.Fatal(err)
		}
		other := deployment.Join([]*azure.Account{d.Accounts[0].Account, d.Accounts[2].Account, d.Accounts[1].Account}, names)
		if _, err := SpreadOver(t.Context(), other, 2, false); !errors.Is(err, queue.ErrAccounts) {
			t.Errorf("SpreadOver in another order = %v, want ErrAccounts", err)
		}
		third := d.Accounts[2]
		if err := third.Create(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := third.Queue.Put(t.Context(), queue.Envelope{ID: "a", Kind: "k"}, 0); err != nil {
			t.Fatal(err)
		}
		if done := spread(t, d, 3); done.IDs != 2 {
			t.Errorf("chosen ids over %d accounts, want 2: the third has a job", done.IDs)
		}
	})
}
