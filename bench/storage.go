//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// storageCommand is the process with the storage account. It serves on loopback and
// answers each line of standard input with its counts.
type storageCommand struct {
	Latency  time.Duration `help:"Of each call."`
	Messages int           `help:"Jobs on the queue at the start."`
	Kind     string        `help:"Their kind."`
}

// opened is the first line that a storage process prints.
type opened struct{ ConnectionString string }

// counts are the calls of a storage process, by operation.
type counts map[string]int64

// done is how many messages were deleted.
func (c counts) done() int64 { return c[storage.OpDeleteMessage] }

// payload makes messages of about 100 bytes of JSON.
const payload = `{"n":1}`

// names are the queues and containers of a storage process.
func names() azure.Names {
	n, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		panic(err) // the default prefix is a good one
	}
	return n
}

// Run serves until standard input ends.
func (c *storageCommand) Run(ctx context.Context) error {
	server := storage.New(storage.Options{})
	server.SetFullPages() // calls are counted
	if err := c.fill(ctx, server); err != nil {
		return fmt.Errorf("fill the storage: %w", err)
	}
	server.OnCall(func(storage.Call) storage.Fault {
		return storage.Fault{Before: c.Latency / 2, After: c.Latency - c.Latency/2}
	})
	connectionString, err := server.Listen(storage.Addresses{})
	if err != nil {
		return err
	}
	defer server.Close()
	server.ResetCounts()
	encoder := json.NewEncoder(os.Stdout)
	if err := encoder.Encode(opened{connectionString}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := encoder.Encode(server.Counts()); err != nil {
			return err
		}
	}
	return nil
}

// fill creates queues and containers, and puts the messages.
func (c *storageCommand) fill(ctx context.Context, server *storage.Server) error {
	account, err := azure.Connect(azure.AccountConfig{
		ConnectionString: server.ConnectionString(), Transport: server.Transport(), Version: "bench",
	})
	if err != nil {
		return err
	}
	n := names()
	for _, name := range []string{n.Queue, n.First, n.OnDemand, n.Poison} {
		if err := queue.New(account.Queue(name), name).Create(ctx); err != nil {
			return err
		}
	}
	for _, name := range []string{n.Records, n.Payloads, n.Workers} {
		if _, err := account.Container(name).Create(ctx, nil); err != nil {
			return err
		}
	}
	jobs := queue.New(account.Queue(n.Queue), n.Queue)
	body, err := queue.JSONPayload([]byte(payload))
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(4)
	for range c.Messages {
		group.Go(func() error {
			id, err := uuid.NewV7()
			if err != nil {
				return err
			}
			return jobs.Put(ctx, queue.Envelope{ID: id.String(), Kind: c.Kind, Payload: body, EnqueuedAt: time.Now()}, 0)
		})
	}
	return group.Wait()
}

// storageProcess is a running storage account.
type storageProcess struct {
	*process
	connectionString string
}

// startStorage starts a storage account with so many jobs of a kind.
func (b *bench) startStorage(ctx context.Context, latency time.Duration, messages int, kind string) (*storageProcess, error) {
	p, err := b.startProcess(ctx, storageCore, []string{"GOGC=400"}, b.self,
		"storage", "--latency", latency.String(), "--messages", strconv.Itoa(messages), "--kind", kind)
	if err != nil {
		return nil, err
	}
	var first opened
	if err := p.answer(&first); err != nil {
		p.kill()
		return nil, fmt.Errorf("start the storage: %w", err)
	}
	return &storageProcess{p, first.ConnectionString}, nil
}

func (s *storageProcess) counts() (c counts, err error) {
	err = s.ask(&c)
	return c, err
}

// await waits until there were so many calls of an operation.
func (s *storageProcess) await(operation string, calls int) error {
	return within(fmt.Sprintf("there were not %d calls of %s", calls, operation), func() (bool, error) {
		c, err := s.counts()
		return c[operation] >= int64(calls), err
	})
}
