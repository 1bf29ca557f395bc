package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
)

// TestFirstLookIsInTheAccountOfTheID: a client that has not read over which accounts jobs are
// spread needs one call for a job, and a client with fewer accounts finds the jobs of its own.
func TestFirstLookIsInTheAccountOfTheID(t *testing.T) {
	_, servers := setupTwo(t)
	open := func(more ...string) *Client {
		c, err := Open(Options{ConnectionString: servers["home"].ConnectionString(), MoreConnectionStrings: more, Transport: servers})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	both, alone := open(servers["second"].ConnectionString()), open()
	for account, name := range []string{"home", "second"} {
		id := idsOf(account, 1)[0]
		seedIn(t, both, account, id, StatusDone)
		for _, s := range servers {
			s.ResetCounts()
		}
		if _, err := both.Get(t.Context(), id); err != nil || servers[name].Counts()[storage.OpGetBlobProperties] != 1 {
			t.Errorf("Get = %v after %v in account %s, want one read there", err, servers[name].Counts(), name)
		}
		for other, s := range servers {
			if other != name && len(s.Counts()) > 0 {
				t.Errorf("calls in the other account = %v, want none", s.Counts())
			}
		}
		if account == 0 {
			if _, err := alone.Accounts(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := alone.Get(t.Context(), id); errors.Is(err, ErrNotFound) != (account == 1) {
			t.Errorf("Get of a job in account %s by a client of the first = %v", name, err)
		}
	}
}

// TestFirstErrorCounts: if several accounts fail, the error is of the account that was asked
// first.
func TestFirstErrorCounts(t *testing.T) {
	c, servers := setupTwo(t)
	id := idsOf(1, 1)[0]
	servers["second"].OnCall(func(storage.Call) storage.Fault { return refused })
	servers["home"].OnCall(func(storage.Call) storage.Fault {
		return storage.Fault{Refuse: &storage.Error{Status: 404, Code: "ContainerNotFound"}}
	})
	if _, err := c.Get(t.Context(), id); !errors.Is(err, ErrDenied) {
		t.Errorf("Get of a job of the second account = %v, want that account's error", err)
	}
	if _, err := c.Orphans(t.Context(), 0); !errors.Is(err, ErrNoDeployment) || errors.As(err, new(*AccountsError)) {
		t.Errorf("Orphans = %v, want the error of the first account", err)
	}
}

// TestOnlySeveralAccountsAreNamed: an error about the requests of operators names the first
// account if there are more.
func TestOnlySeveralAccountsAreNamed(t *testing.T) {
	c, servers := setupTwo(t)
	alone := setup(t)
	for _, s := range []*storage.Server{servers["home"], alone.server} {
		s.OnCall(func(storage.Call) storage.Fault { return refused })
	}
	_, err := c.Steering(t.Context())
	if !errors.Is(err, ErrDenied) || !strings.HasPrefix(err.Error(), "storage account home: ") {
		t.Errorf("Steering of two accounts = %v, want the account to be named", err)
	}
	if _, err := alone.Steering(t.Context()); !errors.Is(err, ErrDenied) || strings.HasPrefix(err.Error(), "storage account") {
		t.Errorf("Steering of one account = %v, want no name", err)
	}
}

// TestSkippedBlobsOfAccounts: blobs that are no records are reported from each account.
func TestSkippedBlobsOfAccounts(t *testing.T) {
	c, _ := setupTwo(t)
	var want, got []string
	for _, s := range c.stores.Accounts {
		for i := range 2 {
			name := fmt.Sprintf("strange-%s-%d", s.Account.Name(), i)
			blob := s.Account.Container(c.stores.Names.Records).NewBlockBlobClient(name)
			if _, err := blob.UploadBuffer(t.Context(), nil, nil); err != nil {
				t.Fatal(err)
			}
			want = append(want, name)
		}
	}
	for _, f := range []Filter{{}, {Skipped: func(blob string) { got = append(got, blob) }}} {
		for j, err := range c.List(t.Context(), f) {
			t.Errorf("List = %+v, %v, want nothing", j, err)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("skipped blobs = %q, want %q", got, want)
	}
}

// TestListWhoseContextEnds: the list ends with the cause, and does not look complete.
func TestListWhoseContextEnds(t *testing.T) {
	c, _ := setupTwo(t)
	for account := range 2 {
		for _, id := range idsOf(account, 30) {
			seedIn(t, c, account, id, StatusDone)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	enough := errors.New("enough")
	var last error
	for _, err := range c.List(ctx, Filter{}) {
		last = err
		cancel(enough)
	}
	if !errors.Is(last, enough) {
		t.Errorf("List whose context ends = %v, want its cause", last)
	}
}

// TestNamesOfAccounts: the names of the given accounts come in order, and accounts in another
// order are the problem, however many there are.
func TestNamesOfAccounts(t *testing.T) {
	c, _ := setupTwo(t)
	a, err := c.Accounts(t.Context())
	if want := []string{"home", "second"}; err != nil || !slices.Equal(a.Names, want) || !slices.Equal(a.Spread, want) || a.ForIDs != 2 ||
		a.Problem != nil {
		t.Errorf("Accounts = %+v, %v, want %q without a problem", a, err, want)
	}
	if err := c.stores.Spread.Write(t.Context(), queue.Spread{Names: []string{"home", "x", "second"}, IDs: 1}); err != nil {
		t.Fatal(err)
	}
	if a, err := c.Accounts(t.Context()); err != nil || a.Problem == nil || !strings.Contains(a.Problem.Error(), "in this order") {
		t.Errorf("Accounts in another order = %+v, %v, want that problem", a, err)
	}
}

// TestSlowAccount: an account that answers within the time is no failure, a single account has
// all the time, and work that is done counts even if it took too long.
func TestSlowAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, servers := setupTwo(t)
		servers["second"].OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: 5 * time.Second} })
		if _, about, err := c.PeekPoison(t.Context()); about != 0 || err != nil {
			t.Errorf("PeekPoison of an account that takes 5 s = %d, %v", about, err)
		}
		servers["second"].OnCall(nil)
		late := func(*account, *answers) error { time.Sleep(accountWait + time.Second); return nil }
		if err := c.fromEach(t.Context(), toRead, late); err != nil {
			t.Errorf("a view that ends late = %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if err := c.inEach(ctx, toRead, func(int, *account) error { cancel(); return nil }); err != nil {
			t.Errorf("a view that was done when its context ended = %v", err)
		}
		alone := setup(t)
		failed := errors.New("its own")
		err := alone.fromEach(t.Context(), toRead, func(_ *account, a *answers) error {
			time.Sleep(accountWait + time.Second)
			return errors.Join(failed, a.ctx.Err())
		})
		if !errors.Is(err, failed) || errors.Is(err, context.Canceled) {
			t.Errorf("a slow view of a single account = %v, want its own error", err)
		}
	})
}

// TestFirstPutOnDemand: a client that has read nothing puts a job for VMs of regular priority in
// the account of its id.
func TestFirstPutOnDemand(t *testing.T) {
	_, servers := setupTwo(t)
	for account, name := range []string{"home", "second"} {
		c, err := Open(Options{ConnectionString: servers["home"].ConnectionString(),
			MoreConnectionStrings: []string{servers["second"].ConnectionString()}, Transport: servers})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Put(t.Context(), Spec{ID: idsOf(account, 1)[0], Kind: "k", OnDemand: true}); err != nil {
			t.Error(err)
		}
		if n := len(servers[name].Messages(c.stores.OnDemand.Name())); n != 1 {
			t.Errorf("messages on demand in account %s = %d, want 1", name, n)
		}
	}
}

// TestResultsAreReadTwice: the result of a job that a listing and a read found at once, the latter because another account has
// a bar of its id, comes from its own account each time.
func TestResultsAreReadTwice(t *testing.T) {
	c, _ := setupTwo(t)
	for account := range 2 {
		for _, id := range append(idsOf(0, 1), idsOf(1, 1)...) {
			id = fmt.Sprintf("in-%d-%s", account, id)
			if _, err := c.accounts[1-account].stores.Records.Cancel(t.Context(), id, "spotctl@test", "", true); err != nil {
				t.Fatal(err)
			}
			seedIn(t, c, account, id, StatusDone)
			records := &allRecords{client: c}
			r, err := records.Read(t.Context(), id)
			if err != nil || r.Status != checkpoint.Done {
				t.Fatalf("Read of %s = %s, %v, want it done", id, r.Status, err)
			}
			for range 2 {
				if result, err := records.ResultOf(t.Context(), r); err != nil || string(result) != `{"of":"`+id+`"}` {
					t.Errorf("result of %s = %q, %v, want its own", id, result, err)
				}
			}
		}
	}
}

// TestBarredInAnotherAccount: a cancel that failed in the account of a job may have barred the
// id in another one. The record of the job counts, in whichever order the accounts are asked. A
// bar counts if no account has another record.
func TestBarredInAnotherAccount(t *testing.T) {
	c, servers := setupTwo(t)
	for job, n := range []int{1, 70} { // the second is waited for by a listing
		bar := c.accounts[1-job].stores.Records
		var ids []string
		for _, id := range append(idsOf(0, n), idsOf(1, n)...) {
			id = fmt.Sprintf("of-%d-%s", job, id)
			if _, err := bar.Cancel(t.Context(), id, "spotctl@test", "", true); err != nil {
				t.Fatal(err)
			}
			seedIn(t, c, job, id, StatusDone)
			if j, err := c.Get(t.Context(), id); err != nil || j.Status != StatusDone {
				t.Errorf("Get of %s = %s, %v, want it done", id, j.Status, err)
			}
			ids = append(ids, id)
		}
		ended := 0
		for o, err := range c.WaitMany(t.Context(), ids, WaitOptions{}) {
			if ended++; err != nil || o.Err != nil || string(o.Result) != `{"of":"`+o.Job.ID+`"}` {
				t.Errorf("outcome of %s = %s, %v, %v, want its result", o.Job.ID, o.Result, o.Err, err)
			}
		}
		if ended != len(ids) {
			t.Errorf("outcomes = %d, want %d", ended, len(ids))
		}
	}

	id := idsOf(0, 1)[0]
	if _, err := c.accounts[1].stores.Records.Cancel(t.Context(), id, "spotctl@test", "", true); err != nil {
		t.Fatal(err)
	}
	if j, err := c.Get(t.Context(), id); err != nil || j.Status != StatusCancelled {
		t.Errorf("Get of an id that is barred = %s, %v, want it cancelled", j.Status, err)
	}
	servers["home"].OnCall(func(storage.Call) storage.Fault { return refused })
	if j, err := c.Get(t.Context(), id); err == nil || !strings.Contains(err.Error(), "storage account home") {
		t.Errorf("Get while the account of the job refuses = %s, %v, want that error", j.Status, err)
	}
}
