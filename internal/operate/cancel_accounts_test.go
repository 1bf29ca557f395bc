package operate

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/deployment"
)

// cancelInAccounts runs a test with a Canceller over three accounts.
func cancelInAccounts(t *testing.T, test func(t *testing.T, a *cancelRig)) {
	t.Helper()
	inAccounts(t, func(t *testing.T, d *deployment.Deployment, servers []*storage.Server) {
		spread(t, d, 3)
		a := &cancelRig{accounts: d.Accounts, servers: servers}
		a.Canceller = &Canceller{Records: d.Records, Control: d.Control, Name: "spotctl@test", Accounts: a.records, Queues: a.queues}
		test(t, a)
	})
}

type cancelRig struct {
	*Canceller
	accounts []*deployment.Stores
	servers  []*storage.Server
}

func (a *cancelRig) records(string) (all []AccountRecords) {
	for _, s := range a.accounts {
		all = append(all, AccountRecords{s.Records, s.Account.Name()})
	}
	return all
}

func (a *cancelRig) queues(_ context.Context, account string) ([]*queue.Queue, error) {
	for _, s := range a.accounts {
		if s.Account.Name() == account {
			return append(slices.Clip(s.Jobs.All()), s.OnDemand), nil
		}
	}
	return nil, errors.New("no such account")
}

// runs makes the record of a running job in an account.
func (a *cancelRig) runs(t *testing.T, in int, id string) *checkpoint.Claim {
	t.Helper()
	d := checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: queue.Payload{}.Hash(), MessageID: "m"}
	claim, err := a.accounts[in].Records.Create(t.Context(), d, "vm_0")
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

// hide puts a message that no look shows.
func (a *cancelRig) hide(t *testing.T, in int, id string) {
	t.Helper()
	if err := a.accounts[in].Queue.Put(t.Context(), queue.Envelope{ID: id, Kind: "k"}, time.Hour); err != nil {
		t.Fatal(err)
	}
}

// fault makes the blob calls of an account fail.
func (a *cancelRig) fault(in int, f storage.Fault) {
	a.servers[in].OnCall(func(c storage.Call) storage.Fault {
		if c.Service == storage.BlobService && !strings.Contains(c.Container, "control") {
			return f
		}
		return storage.Fault{}
	})
}

var refusal = storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationFailure"}}

// want cancels a job and compares the outcome.
func (a *cancelRig) want(t *testing.T, id string, want Action, details ...string) CancelOutcome {
	t.Helper()
	var got CancelOutcome
	if err := a.Cancel(t.Context(), slices.Values([]string{id}), func(o CancelOutcome) error { got = o; return nil }); err != nil {
		t.Error(err)
	}
	if got.Action != want || (got.Err != nil) != (want == Failed || want == Refused) {
		t.Errorf("cancel of %s = %s, %q, %v; want %s", id, got.Action, got.Detail, got.Err, want)
	}
	for _, detail := range details {
		if !strings.Contains(got.Detail, detail) {
			t.Errorf("cancel of %s = %q, want %q in it", id, got.Detail, detail)
		}
	}
	return got
}

// TestCancelInAccountsThatRefuse: an account that refuses hides no job of another one. A job that
// may be in that account is no unknown job, and the account is asked again for the next job.
func TestCancelInAccountsThatRefuse(t *testing.T) {
	for _, knownOnly := range []bool{false, true} {
		cancelInAccounts(t, func(t *testing.T, a *cancelRig) {
			a.KnownOnly = knownOnly
			a.runs(t, 1, "in-second")
			a.runs(t, 2, "in-third")
			a.fault(0, storage.Fault{Refuse: &storage.Error{Status: 403, Code: "InsufficientAccountPermissions"}})
			a.fault(1, refusal)
			a.want(t, "in-third", Cancelled, "it was running on vm_0")
			if o := a.want(t, "absent", Failed, "storage account first: ", "InsufficientAccountPermissions"); len(o.BarredIn) > 0 {
				t.Errorf("barred in %q, want in none: no message is hidden", o.BarredIn)
			}
			a.hide(t, 2, "absent")
			if o := a.want(t, "absent", Failed, "storage account first: "); (len(o.BarredIn) == 1 && o.BarredIn[0] == "third") == knownOnly {
				t.Errorf("barred in %q, known only: %t", o.BarredIn, knownOnly)
			}
			for _, server := range a.servers {
				server.OnCall(nil)
			}
			a.want(t, "in-second", Cancelled, "it was running on vm_0")
			if knownOnly {
				a.want(t, "other", Unknown, "it has no record: it waits for its first worker")
			}
		})
	}
}

// TestCancelInASilentAccount: each job would wait 15 s for an account that does not answer, so the
// account is asked once. An interruption by the operator is no silence.
func TestCancelInASilentAccount(t *testing.T) {
	cancelInAccounts(t, func(t *testing.T, a *cancelRig) {
		a.KnownOnly = true
		a.runs(t, 1, "in-second")
		a.runs(t, 2, "in-third")
		a.fault(1, storage.Fault{Before: 5 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = a.Cancel(ctx, slices.Values([]string{"in-third"}), func(CancelOutcome) error { return nil })
		a.want(t, "in-second", Cancelled, "it was running on vm_0")

		a.fault(1, storage.Fault{Before: time.Hour})
		for _, row := range []struct {
			id   string
			want Action
			took time.Duration
		}{{"in-third", Cancelled, accountWait}, {"absent", Failed, 0}, {"in-third", Cancelled, 0}} {
			began := time.Now()
			o := a.want(t, row.id, row.want)
			if took := time.Since(began); took != row.took {
				t.Errorf("cancel of %s took %s, want %s", row.id, took, row.took)
			}
			if row.want == Failed && !strings.Contains(o.Detail, "storage account second: it did not answer within 15s") {
				t.Errorf("cancel of %s = %q, want that the account did not answer", row.id, o.Detail)
			}
		}
	})
}

// TestCancelOfANewerRecordInAccounts: a record of a newer version is refused, and is no silence of
// its account.
func TestCancelOfANewerRecordInAccounts(t *testing.T) {
	cancelInAccounts(t, func(t *testing.T, a *cancelRig) {
		a.runs(t, 1, "newer")
		blob := a.accounts[1].Account.Container("test-jobs").NewBlobClient(a.servers[1].Blobs("test-jobs")[0].Name)
		if _, err := blob.SetMetadata(t.Context(), map[string]*string{"v": new("99")}, nil); err != nil {
			t.Fatal(err)
		}
		a.runs(t, 1, "in-second")
		a.want(t, "newer", Refused, "its record was written by a newer version")
		a.want(t, "in-second", Cancelled, "it was running on vm_0")
	})
}

// TestCancelWithoutQueuesInAccounts: without queues a job without a record is barred in each account.
func TestCancelWithoutQueuesInAccounts(t *testing.T) {
	cancelInAccounts(t, func(t *testing.T, a *cancelRig) {
		a.Queues = nil
		if o := a.want(t, "absent", Barred); strings.Contains(o.Detail, "searched") {
			t.Errorf("detail = %q, want nothing about queues: there are none", o.Detail)
		}
		for i, s := range a.accounts {
			if r, err := s.Records.Read(t.Context(), "absent"); err != nil || r.Status != checkpoint.Cancelled {
				t.Errorf("record in account %d = %s, %v, want it cancelled", i, r.Status, err)
			}
		}
	})
}

// TestCancelOfAJobThatIsBarredElsewhere: a cancel that failed in one account may have barred the
// id in another. The bar decides nothing about the job: a repeat cancels it where it is, and
// reports it as cancelled only if no account can run it.
func TestCancelOfAJobThatIsBarredElsewhere(t *testing.T) {
	for name, row := range map[string]struct {
		runs, done, hidden  bool // in the second account
		knownOnly, seenOnly bool
		away                bool // the second account
		want                Action
		detail              string
	}{
		"runs":               {runs: true, want: Cancelled, detail: "it was running on vm_0"},
		"runs, known":        {runs: true, knownOnly: true, want: Cancelled, detail: "it was running on vm_0"},
		"is done":            {runs: true, done: true, want: Over, detail: "it is done already"},
		"hidden":             {hidden: true, want: Barred},
		"hidden, seen only":  {hidden: true, seenOnly: true, want: Unknown, detail: "barred in storage account first, and it has no record in "},
		"hidden, known":      {hidden: true, knownOnly: true, want: Unknown, detail: "barred in storage account first, and it has no record in "},
		"in no other":        {want: Cancelled, detail: "it was cancelled before"},
		"in no other, known": {knownOnly: true, want: Unknown, detail: "barred in storage account first, and it has no record in "},
		"away":               {away: true, want: Failed, detail: "storage account second: "},
		"away, known":        {away: true, knownOnly: true, want: Failed, detail: "storage account second: "},
	} {
		t.Run(name, func(t *testing.T) {
			cancelInAccounts(t, func(t *testing.T, a *cancelRig) {
				a.KnownOnly, a.SeenOnly = row.knownOnly, row.seenOnly
				if _, err := a.accounts[0].Records.Cancel(t.Context(), "job", "spotctl@test", "", true); err != nil {
					t.Fatal(err)
				}
				if row.runs {
					if claim := a.runs(t, 1, "job"); row.done {
						if err := claim.Commit(t.Context(), nil); err != nil {
							t.Fatal(err)
						}
					}
				}
				if row.hidden {
					a.hide(t, 1, "job")
				}
				if row.away {
					a.fault(1, refusal)
				}
				o := a.want(t, "job", row.want, row.detail)
				if isNamed := slices.Equal(o.BarredIn, []string{"first"}); isNamed != (row.away && !row.knownOnly) {
					t.Errorf("barred in %q", o.BarredIn)
				}
				a.fault(1, storage.Fault{})
				r, err := a.accounts[1].Records.Read(t.Context(), "job")
				if want := row.want == Barred || row.want == Cancelled && row.runs; want != (err == nil && r.Status == checkpoint.Cancelled) {
					t.Errorf("record in the second account = %q, %v; want it cancelled: %t", r.Status, err, want)
				}
			})
		})
	}
}

// TestCancelOfAJobThatIsBarredInAllAccounts: such a job is cancelled already.
func TestCancelOfAJobThatIsBarredInAllAccounts(t *testing.T) {
	cancelInAccounts(t, func(t *testing.T, a *cancelRig) {
		a.Queues = nil
		a.want(t, "job", Barred)
		for _, a.KnownOnly = range []bool{false, true} {
			a.want(t, "job", Cancelled, "it was cancelled before")
		}
	})
}
