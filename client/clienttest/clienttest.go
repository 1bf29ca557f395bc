// Package clienttest is a local Azure for tests of programs that use package client:
// queues, records and a worker in memory, in one line.
//
//	c := clienttest.New(t, job.Kinds{"thumbnail": thumbnail})
//	id, err := c.Put(ctx, client.Spec{Kind: "thumbnail", Payload: "cat.jpg"})
//	...
//	result, err := c.Wait(ctx, id)
//
// It speaks the protocol of Azure Storage with the real client and the real worker, and
// opens no socket. In a bubble of testing/synctest its clock is virtual: no test waits
// for a delay, a poll or a retry.
//
// The account is lenient in one thing: there are no roles, so that everything is
// allowed.
package clienttest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/storage/deployment"
	"github.com/spotworker/spotworker/internal/worker"
	"github.com/spotworker/spotworker/job"
)

// concurrency is how many jobs run at once.
const concurrency = 8

// New returns the client of a deployment in memory, in which a worker runs these kinds
// until the test ends. With nil no worker runs, and jobs stay on the queue. The logs of
// the worker and its handlers go to the test's output.
func New(t testing.TB, kinds job.Kinds) *client.Client {
	t.Helper()
	c, err := client.Open(Options(t, kinds))
	if err != nil {
		t.Fatalf("clienttest: %v", err)
	}
	return c
}

// Options returns the options with which [client.Open] reaches a deployment like the
// deployment of [New], for a program that opens its client itself. All clients with them
// share the deployment.
func Options(t testing.TB, kinds job.Kinds) client.Options {
	t.Helper()
	server := storage.New(storage.Options{})
	o := client.Options{ConnectionString: server.ConnectionString(), Transport: server.Transport(), Name: t.Name()}
	c, err := client.Open(o)
	if err == nil {
		err = c.Create(context.Background())
	}
	if err == nil && len(kinds) > 0 {
		err = work(t, server, kinds)
	}
	if err != nil {
		t.Fatalf("clienttest: %v", err)
	}
	return o
}

// work runs a worker until the test ends.
func work(t testing.TB, server *storage.Server, kinds job.Kinds) error {
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
	if err != nil {
		return err
	}
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		return err
	}
	s := deployment.StoresOf(account, names)
	s.Control = nil // no operator is emulated
	w, err := worker.New(worker.Config{
		Settings: delivery.Settings{
			Accounts: []*deployment.Stores{s}, Kinds: kinds, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		},
		Concurrency: concurrency, Host: "clienttest", Program: "clienttest",
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("clienttest: the worker ended: %v", err)
		}
	})
	return nil
}
