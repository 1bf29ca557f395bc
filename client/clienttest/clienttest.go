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
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/delivery"
	"github.com/spotworker/spotworker/internal/deployment"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/storage/azure"
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
	o, stop, err := start(t.Name(), kinds, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatalf("clienttest: %v", err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Errorf("clienttest: %v", err)
		}
	})
	return o
}

// Start is [New] for code without a [testing.TB], such as an example. stop ends the worker,
// and returns its error. log gets the logs of the worker and its handlers; nil discards them.
func Start(kinds job.Kinds, log *slog.Logger) (c *client.Client, stop func() error, err error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	o, stop, err := start("clienttest", kinds, log)
	if err != nil {
		return nil, nil, err
	}
	if c, err = client.Open(o); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return c, stop, nil
}

// start starts a deployment and its worker.
func start(name string, kinds job.Kinds, log *slog.Logger) (o client.Options, stop func() error, err error) {
	server := storage.New(storage.Options{})
	o = client.Options{ConnectionString: server.ConnectionString(), Transport: server.Transport(), Name: name}
	c, err := client.Open(o)
	if err == nil {
		err = c.Create(context.Background())
	}
	stop = func() error { return nil }
	if err == nil && len(kinds) > 0 {
		stop, err = work(server, kinds, log)
	}
	return o, stop, err
}

// work runs a worker until stop is called.
func work(server *storage.Server, kinds job.Kinds, log *slog.Logger) (stop func() error, err error) {
	account, err := azure.Connect(azure.AccountConfig{ConnectionString: server.ConnectionString(), Transport: server.Transport()})
	if err != nil {
		return nil, err
	}
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		return nil, err
	}
	s := deployment.StoresOf(account, names)
	s.Control = nil // no operator is emulated
	w, err := worker.New(worker.Config{
		Settings: delivery.Settings{
			Stores: s, Kinds: kinds, Log: log,
		},
		Concurrency: concurrency, Host: "clienttest", Program: "clienttest",
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() error {
		cancel()
		if err := <-ended; err != nil {
			return fmt.Errorf("the worker ended: %w", err)
		}
		return nil
	}, nil
}
