package client

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/operate"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// byAccount sends calls to the emulator of the account in their paths.
type byAccount map[string]*storage.Server

func (a byAccount) Do(r *http.Request) (*http.Response, error) {
	account, _, _ := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
	if a[account] == nil {
		return nil, fmt.Errorf("a call to account %q, which was not given", account)
	}
	return a[account].Transport().Do(r)
}

// TestAccounts: a client puts jobs in the accounts of a deployment, finds them wherever
// they are, and sees all of them.
func TestAccounts(t *testing.T) {
	ctx := t.Context()
	servers := byAccount{"home": storage.New(storage.Options{Account: "home"}), "second": storage.New(storage.Options{Account: "second"})}
	open := func(more ...string) *Client {
		c, err := Open(Options{ConnectionString: servers["home"].ConnectionString(), MoreConnectionStrings: more, Transport: servers})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	alone, both := open(), open(servers["second"].ConnectionString())
	if err := alone.Create(ctx); err != nil {
		t.Fatal(err)
	}
	put := func(c *Client, id string) error {
		_, err := c.Put(ctx, Spec{ID: id, Kind: "k"})
		return err
	}
	if err := put(alone, "before"); err != nil {
		t.Fatal(err)
	}
	if err := put(both, "unsure"); !errors.Is(err, queue.ErrAccounts) {
		t.Errorf("put of a chosen id while no account is recorded = %v, want ErrAccounts", err)
	}
	if s, err := operate.SpreadOver(ctx, both.stores, 2, false); err != nil || s.IDs != 1 || s.Accounts() != 2 {
		t.Fatalf("SpreadOver of a deployment with a message = %+v, %v; want chosen ids in one account", s, err)
	}
	both = open(servers["second"].ConnectionString()) // as a program that starts
	for i := range 40 {
		if err := put(both, ""); err != nil {
			t.Fatal(err)
		}
		if err := put(both, fmt.Sprintf("chosen-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	messages := len(servers["second"].Messages("spotworker-jobs"))
	if messages == 0 || messages > 40 {
		t.Errorf("messages in the second account = %d, want some of the 40 with new ids", messages)
	}
	if q, err := both.Queues(ctx); err != nil || q.Jobs.Messages != 81 || len(q.Shards) != 2 || q.PutOver != 2 ||
		q.Shards[1].Name != "second/spotworker-jobs" {
		t.Errorf("Queues = %+v, %v; want 81 messages on two queues", q, err)
	}

	// A record is found in either account, and one of the first is not made again in the
	// second.
	id := "chosen-in-second"
	for i := 0; queue.AccountOf(id, 2) != 1; i++ {
		id = fmt.Sprintf("chosen-in-second-%d", i)
	}
	second := both.account("second").stores
	if _, err := second.Records.Cancel(ctx, id, "test", "", true); err != nil {
		t.Fatal(err)
	}
	if j, err := both.Get(ctx, id); err != nil || j.Status != StatusCancelled {
		t.Errorf("Get of a job in the second account = %+v, %v", j, err)
	}
	if _, err := alone.Get(ctx, id); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get without that account = %v, want ErrNotFound", err)
	}
	n := 0
	for _, err := range both.List(ctx, Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("jobs listed = %d, want 1", n)
	}
	err := both.Cancel(ctx, []string{"unheard-of"}, CancelOptions{}, func(r ActionResult) error {
		if r.Action != Barred {
			t.Errorf("cancel of an id without a record = %+v, want barred", r)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	barred := 0
	for _, s := range both.stores.Accounts {
		if r, err := s.Records.Read(ctx, "unheard-of"); err == nil && r.Status == checkpoint.Cancelled {
			barred++
		}
	}
	if barred != 1 {
		t.Errorf("records of a barred id = %d, want one, in the account with more messages than are seen", barred)
	}

	// Chosen ids follow where an operator asks for that; then a client of one account refuses
	// ids that belong elsewhere.
	if s, err := operate.SpreadOver(ctx, both.stores, 2, true); err != nil || s.IDs != 2 {
		t.Fatalf("SpreadOver with chosen ids = %+v, %v", s, err)
	}
	if _, err := operate.SpreadOver(ctx, both.stores, 1, false); !errors.Is(err, operate.ErrFewerAccounts) {
		t.Errorf("SpreadOver fewer accounts = %v, want ErrFewerAccounts", err)
	}
	if err := put(open(), id); !errors.Is(err, queue.ErrAccounts) {
		t.Errorf("put of an id of the second account by a client of the first = %v, want ErrAccounts", err)
	}
	if a, err := open().Accounts(ctx); err != nil || a.Problem == nil {
		t.Errorf("Accounts of a client that lacks one = %+v, %v; want a problem", a, err)
	}
}

// TestAccountDoesNotAnswer: while one of two accounts refuses calls or hangs, views show the
// other account's data and name the account, in bounded time.
func TestAccountDoesNotAnswer(t *testing.T) {
	for _, sick := range []string{"home", "second"} {
		for what, fault := range map[string]storage.Fault{
			"refuses": {Refuse: &storage.Error{Status: 403, Code: "AuthorizationFailure"}},
			"hangs":   {Before: 10 * time.Minute},
		} {
			t.Run(sick+" "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					servers := byAccount{"home": storage.New(storage.Options{Account: "home"}), "second": storage.New(storage.Options{Account: "second"})}
					both, err := Open(Options{ConnectionString: servers["home"].ConnectionString(),
						MoreConnectionStrings: []string{servers["second"].ConnectionString()}, Transport: servers})
					if err != nil {
						t.Fatal(err)
					}
					if _, err := operate.SpreadOver(t.Context(), both.stores, 2, false); err != nil {
						t.Fatal(err)
					}
					for _, s := range both.stores.Accounts {
						if err := s.Queue.Put(t.Context(), queue.Envelope{ID: "waits", Kind: "k"}, 0); err != nil {
							t.Fatal(err)
						}
						if err := s.Poison.PutUnchanged(t.Context(), "poison"); err != nil {
							t.Fatal(err)
						}
						if _, err := s.Records.Cancel(t.Context(), "in-"+s.Account.Name(), "test", "", true); err != nil {
							t.Fatal(err)
						}
					}
					servers[sick].OnCall(func(storage.Call) storage.Fault { return fault })
					isPartial := func(view string, err error) {
						t.Helper()
						if some, ok := errors.AsType[*AccountsError](err); !ok || !slices.Equal(some.Names, []string{sick}) {
							t.Errorf("%s = %v, want an error that names account %s", view, err, sick)
						}
					}
					began := time.Now()
					q, err := both.Queues(t.Context())
					isPartial("Queues", err)
					if q.Jobs.Messages != 1 || q.Poison.Messages != 1 || len(q.Shards) != 1 || q.PutOver != 1 || !q.Poison.Exists {
						t.Errorf("Queues = %+v, want those of the other account", q)
					}
					messages, about, err := both.PeekPoison(t.Context())
					isPartial("PeekPoison", err)
					if len(messages) != 1 || about != 1 {
						t.Errorf("PeekPoison = %d messages of about %d, want that of the other account", len(messages), about)
					}
					var ids []string
					isNamed := false
					for j, err := range both.List(t.Context(), Filter{}) {
						if err != nil {
							isPartial("List", err)
							isNamed = true
						} else {
							ids = append(ids, j.ID)
						}
					}
					if !isNamed {
						t.Error("List ends without an error")
					}
					if want := "in-" + map[string]string{"home": "second", "second": "home"}[sick]; !slices.Equal(ids, []string{want}) {
						t.Errorf("List = %q, want %s", ids, want)
					}
					for _, err := range both.List(t.Context(), Filter{}) {
						if err == nil {
							break
						}
					}
					if took := time.Since(began); took > 4*accountWait {
						t.Errorf("four views took %s, want at most %s", took, 4*accountWait)
					}
					servers["home"].OnCall(func(storage.Call) storage.Fault { return fault })
					servers["second"].OnCall(func(storage.Call) storage.Fault { return fault })
					if _, err := both.Queues(t.Context()); err == nil || errors.As(err, new(*AccountsError)) {
						t.Errorf("Queues without any account = %v, want the error of the first", err)
					}
				})
			})
		}
	}
}

// TestPutWhileAnAccountDoesNotAnswer: jobs that belong in the other account are put.
func TestPutWhileAnAccountDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := byAccount{"home": storage.New(storage.Options{Account: "home"}), "second": storage.New(storage.Options{Account: "second"})}
		both, err := Open(Options{ConnectionString: servers["home"].ConnectionString(),
			MoreConnectionStrings: []string{servers["second"].ConnectionString()}, Transport: servers})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := operate.SpreadOver(t.Context(), both.stores, 2, false); err != nil {
			t.Fatal(err)
		}
		servers["second"].OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: 10 * time.Minute} })
		some, ok := errors.AsType[*AccountsError](both.Create(t.Context()))
		if !ok || !slices.Equal(some.Names, []string{"second"}) {
			t.Errorf("Create = %v, want an error that names the second account", some)
		}
		const jobs = 20
		failed := 0
		sum, err := both.PutMany(t.Context(), func(yield func(Spec, error) bool) {
			for range jobs {
				if !yield(Spec{Kind: "k"}, nil) {
					return
				}
			}
		}, PutOptions{Report: func(r PutResult) error {
			if r.Err != nil {
				failed++
			}
			return nil
		}})
		if sum.Put == 0 || failed == 0 || sum.Put+failed != jobs {
			t.Errorf("PutMany = %+v, %v with %d failures, want some of %d put and the others reported", sum, err, failed, jobs)
		}
		if n := len(servers["home"].Messages(both.stores.Queue.Name())); n != sum.Put {
			t.Errorf("%d messages in the account that answers, want %d", n, sum.Put)
		}
	})
}

// TestChangesWhileAnAccountDoesNotAnswer: what changes jobs is done in the other account, in
// time that does not grow with the number of jobs, and repeating it finishes the rest.
func TestChangesWhileAnAccountDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := byAccount{"home": storage.New(storage.Options{Account: "home"}), "second": storage.New(storage.Options{Account: "second"})}
		both, err := Open(Options{ConnectionString: servers["home"].ConnectionString(),
			MoreConnectionStrings: []string{servers["second"].ConnectionString()}, Transport: servers})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := operate.SpreadOver(t.Context(), both.stores, 2, false); err != nil {
			t.Fatal(err)
		}
		const jobs = 60 // in each account
		var ids []string
		for _, s := range both.stores.Accounts {
			for i := range jobs {
				id := fmt.Sprintf("%s-%d", s.Account.Name(), i)
				claim, err := s.Records.Create(t.Context(), checkpoint.Delivery{ID: id, Kind: "k", PayloadHash: queue.Payload{}.Hash(), MessageID: id},
					"worker")
				if err == nil {
					err = claim.Release(t.Context(), checkpoint.Snapshot{})
				}
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, id)
			}
		}
		cancelAll := func() (count map[Action]int) {
			count = map[Action]int{}
			if err := both.Cancel(t.Context(), ids, CancelOptions{}, func(r ActionResult) error {
				count[r.Action]++
				if r.Action == Failed && !strings.Contains(r.Detail, "storage account second: it did not answer within") {
					t.Errorf("%s failed: %s; want the account to be named", r.ID, r.Detail)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
			return count
		}
		servers["second"].OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: time.Hour} })
		began := time.Now()
		if got := cancelAll(); got[Cancelled] != jobs || got[Failed] != jobs {
			t.Errorf("cancel without the second account = %v, want %d cancelled and %d failed", got, jobs, jobs)
		}
		if took := time.Since(began); took > 2*accountWait {
			t.Errorf("cancel of %d jobs took %s, want at most %s", len(ids), took, 2*accountWait)
		}
		servers["second"].OnCall(nil)
		if got := cancelAll(); got[Cancelled] != 2*jobs {
			t.Errorf("cancel again = %v, want all %d cancelled", got, 2*jobs)
		}
	})
}

// TestCancelWhileAnAccountDoesNotAnswer: a job without a record is cancelled in the account
// where its message is seen, whether the other answers or not, and barred only where its
// message may be unseen.
func TestCancelWhileAnAccountDoesNotAnswer(t *testing.T) {
	for name, row := range map[string]struct {
		in     string // the account with its message; empty for none
		hidden bool   // its message cannot be seen
		others int    // messages in front of it
		away   string
		want   Action
		writes []string // the accounts with a record then
	}{
		"waits, the other is away":        {in: "home", away: "second", want: Cancelled, writes: []string{"home"}},
		"waits, the first is away":        {in: "second", away: "home", want: Cancelled, writes: []string{"second"}},
		"waits, all answer":               {in: "second", want: Cancelled, writes: []string{"second"}},
		"hidden, all answer":              {in: "second", hidden: true, want: Barred, writes: []string{"second"}},
		"behind others, all answer":       {in: "home", others: queue.MaxClaim, want: Barred, writes: []string{"home"}},
		"behind others, one is away":      {in: "home", others: queue.MaxClaim, away: "second", want: Failed, writes: []string{"home"}},
		"no such job":                     {want: Unknown},
		"no such job, the other is away":  {away: "second", want: Failed},
		"in the account that is away":     {in: "second", away: "second", want: Failed},
		"the first is away, and unwanted": {away: "home", want: Failed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers := byAccount{"home": storage.New(storage.Options{Account: "home"}), "second": storage.New(storage.Options{Account: "second"})}
				both, err := Open(Options{ConnectionString: servers["home"].ConnectionString(),
					MoreConnectionStrings: []string{servers["second"].ConnectionString()}, Transport: servers})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := operate.SpreadOver(t.Context(), both.stores, 2, false); err != nil {
					t.Fatal(err)
				}
				if row.in != "" {
					q := both.account(map[string]string{"second": "second"}[row.in]).stores.Queue
					for i := range row.others {
						if err := q.Put(t.Context(), queue.Envelope{ID: fmt.Sprintf("other-%d", i), Kind: "k"}, 0); err != nil {
							t.Fatal(err)
						}
					}
					if err := q.Put(t.Context(), queue.Envelope{ID: "job", Kind: "k"}, 0); err != nil {
						t.Fatal(err)
					}
					if row.hidden {
						if _, err := q.Claim(t.Context(), 1, time.Hour); err != nil {
							t.Fatal(err)
						}
					}
				}
				var result ActionResult
				cancel := func() error {
					return both.Cancel(t.Context(), []string{"job"}, CancelOptions{}, func(r ActionResult) error { result = r; return nil })
				}
				if row.away != "" {
					servers[row.away].OnCall(func(storage.Call) storage.Fault { return storage.Fault{Before: time.Hour} })
				}
				// The control document is in the first account.
				if err := cancel(); (err != nil) != (row.away == "home") {
					t.Errorf("Cancel = %v", err)
				}
				if row.away != "" {
					servers[row.away].OnCall(nil)
				}
				var writes []string
				for _, s := range both.stores.Accounts {
					r, err := s.Records.Read(t.Context(), "job")
					if err == nil && r.Status == checkpoint.Cancelled {
						writes = append(writes, s.Account.Name())
					}
				}
				if result.Action != row.want || !slices.Equal(writes, row.writes) {
					t.Errorf("cancel = %s (%s) with records in %q, want %s with records in %q", result.Action, result.Detail, writes, row.want, row.writes)
				}
				isNamed := strings.Contains(result.Detail, "storage account "+row.away+": it did not answer within")
				if row.want == Failed && (!isNamed || strings.Contains(result.Detail, "barred") != (len(row.writes) > 0)) {
					t.Errorf("detail = %q, want it to name the account that is away, and where the id is barred", result.Detail)
				}
				again := map[bool]Action{true: Cancelled, false: Unknown}[len(row.writes) > 0 || row.in != ""]
				if err := cancel(); err != nil || result.Action != again {
					t.Errorf("cancel again = %s (%s), %v, want %s", result.Action, result.Detail, err, again)
				}
			})
		})
	}
}

// TestPutManyWhileAnAccountFails: however many jobs there are, and however an account
// fails, the jobs of the other account are put. Without any account the run ends.
func TestPutManyWhileAnAccountFails(t *testing.T) {
	jobs := proof.Times(900, 3000)
	refuses := storage.Fault{Refuse: &storage.Error{Status: 403, Code: "AuthorizationFailure"}}
	breaks := storage.Fault{Refuse: &storage.Error{Status: 500, Code: "InternalError"}}
	for name, row := range map[string]struct {
		fault  storage.Fault
		away   []string
		starts bool // the client has read nothing before
		least  int  // of 30 jobs, as many are put at least
	}{
		"the second refuses":            {refuses, []string{"second"}, false, 13},
		"the second breaks":             {breaks, []string{"second"}, false, 13},
		"the second breaks from before": {breaks, []string{"second"}, true, 13},
		"the first breaks":              {breaks, []string{"home"}, false, 13},
		"the first breaks from before":  {breaks, []string{"home"}, true, 30},
		"both refuse":                   {refuses, []string{"home", "second"}, false, 0},
		"both break":                    {breaks, []string{"home", "second"}, false, 0},
		"both break from before":        {breaks, []string{"home", "second"}, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				servers := byAccount{"home": storage.New(storage.Options{Account: "home"}), "second": storage.New(storage.Options{Account: "second"})}
				open := func() *Client {
					c, err := Open(Options{ConnectionString: servers["home"].ConnectionString(),
						MoreConnectionStrings: []string{servers["second"].ConnectionString()}, Transport: servers, Parallel: 1})
					if err != nil {
						t.Fatal(err)
					}
					return c
				}
				both := open()
				if _, err := operate.SpreadOver(t.Context(), both.stores, 2, false); err != nil {
					t.Fatal(err)
				}
				if row.starts {
					both = open()
				}
				for _, name := range row.away {
					servers[name].OnCall(func(storage.Call) storage.Fault { return row.fault })
				}
				sum, err := both.PutMany(t.Context(), func(yield func(Spec, error) bool) {
					for range jobs {
						if !yield(Spec{Kind: "k"}, nil) {
							return
						}
					}
				}, PutOptions{})
				least := row.least * jobs / 30
				if ends := least == 0; sum.Put < least || (err != nil) != ends || ends && sum.Failed > 100 || !ends && sum.Put+
					sum.Failed != jobs {
					t.Errorf("PutMany = %+v, %v, want %d jobs put at least", sum, err, least)
				}
			})
		})
	}
}
