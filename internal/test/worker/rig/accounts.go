package rig

import (
	"fmt"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/deployment"
	"github.com/spotworker/spotworker/internal/storage/outage"
	"github.com/spotworker/spotworker/internal/test/worker/recorder"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/internal/worker/intake"
)

// Accounts are the storage accounts of a deployment that has several: the testbed's and
// further ones.
type Accounts struct {
	b       *Bed
	Servers []*storage.Server
	All     *deployment.Deployment
	Lack    map[string]bool // workers that were given the first account alone, by VM
}

// AccountName returns the name of an account by its number; empty for the first.
func AccountName(i int) string {
	if i == 0 {
		return ""
	}
	return fmt.Sprintf("further%d", i)
}

// transport sends each call to the account that its path names.
func (a *Accounts) transport() policy.Transporter {
	return a.Servers[0].TransportWith(a.Servers[1:]...)
}

// Connect returns the stores of so many of the accounts.
func (a *Accounts) Connect(n int, transport policy.Transporter, pressure *intake.Pressure, onEnd func(outage.Call)) *deployment.Deployment {
	a.b.T.Helper()
	var all []*azure.Account
	for i := range n {
		all = append(all, a.b.WatchedAccountAt(i, transport, pressure, onEnd))
	}
	s := deployment.Join(all, a.b.Names)
	for _, in := range s.Accounts {
		if a.b.Chunk > 0 {
			in.Records = in.Records.WithChunks(a.b.Chunk)
		}
	}
	return s
}

// join gives a worker its accounts, over its link.
func (a *Accounts) join(k *Link, c *worker.Config) {
	n := len(a.Servers)
	if a.Lack[c.Host] {
		n = 1
	}
	blobs := &outage.Blobs{}
	s := a.Connect(n, k, c.Pressure, blobs.Ended)
	c.Accounts, c.Spread, c.Blobs = s.Accounts, s.Spread, blobs
}

// Put puts a job in the account where its id belongs.
func (a *Accounts) Put(id, kind, payload string) {
	a.b.T.Helper()
	q, err := a.All.Spread.Place(id, true)
	if err != nil {
		a.b.T.Fatal(err)
	}
	a.b.PutOn(q, id, kind, payload)
}

// Of returns the number of the account of a job.
func (a *Accounts) Of(id string) int { return queue.AccountOf(id, len(a.Servers)) }

// IsDone reports whether a job is done, by the record in its account.
func (a *Accounts) IsDone(id string) bool {
	r, err := a.All.Accounts[a.Of(id)].Records.Read(a.b.T.Context(), id)
	return err == nil && r.Status == checkpoint.Done
}

// IDs returns so many ids of each account, with that prefix.
func (a *Accounts) IDs(prefix string, each int) [][]string {
	all := make([][]string, len(a.Servers))
	for i, left := 0, each*len(a.Servers); left > 0; i++ {
		id := fmt.Sprintf("%s-%d", prefix, i)
		if at := a.Of(id); len(all[at]) < each {
			all[at] = append(all[at], id)
			left--
		}
	}
	return all
}

// AddAccounts makes so many accounts of the testbed's one, and spreads jobs over them.
func (b *Bed) AddAccounts(n int) *Accounts {
	b.T.Helper()
	a := b.MakeAccounts(n)
	spread := queue.Spread{IDs: n}
	for _, s := range a.All.Accounts {
		if err := s.Create(b.T.Context()); err != nil {
			b.T.Fatal(err)
		}
		spread.Names = append(spread.Names, s.Account.Name())
	}
	if err := a.All.Spread.Write(b.T.Context(), spread); err != nil {
		b.T.Fatal(err)
	}
	return a
}

// MakeAccounts makes so many accounts of the testbed's one. The further ones have no
// queues and containers, and the first does not say that there are several.
func (b *Bed) MakeAccounts(n int) *Accounts {
	b.T.Helper()
	b.Sharded = true
	a := &Accounts{b: b, Servers: []*storage.Server{b.Server}}
	for i := range n - 1 {
		a.Servers = append(a.Servers, storage.New(storage.Options{Account: AccountName(i + 1)}))
	}
	b.Accounts = a
	for i, server := range a.Servers[1:] {
		if b.Recorder != nil {
			b.Recorder.Watch(server, AccountName(i+1))
		}
	}
	a.All = a.Connect(n, b.Transport("test"), nil, nil)
	return a
}

// Servers returns the emulators of all accounts.
func (b *Bed) Servers() []*storage.Server {
	if b.Accounts == nil {
		return []*storage.Server{b.Server}
	}
	return b.Accounts.Servers
}

// storesFor returns the stores of the account of a job. If the recorder does not know it, that
// is the account that has the record, the first account if none has.
func (b *Bed) storesFor(id string) *deployment.Stores {
	if b.Recorder != nil && b.Recorder.HomeOf != nil {
		home := b.Recorder.HomeOf(id)
		for i := range b.Servers() {
			if AccountName(i) == home {
				return b.ConnectAt(i, b.Transport("test"))
			}
		}
	}
	for i, server := range b.Servers()[1:] {
		for _, blob := range server.Blobs(b.Names.Records) {
			if recorder.JobOfBlob(blob.Name) == id && blob.Metadata["status"] != "" {
				return b.ConnectAt(i+1, b.Transport("test"))
			}
		}
	}
	return b.Stores
}
