package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
	"github.com/spotworker/spotworker/internal/lab/emulator/tlsca"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/storage/azure"
)

// storageCommand is the process with the storage account. It serves on loopback and
// answers each line of standard input with its counts.
type storageCommand struct {
	Latency  time.Duration `help:"Of each call."`
	Messages int           `help:"Jobs on the queue at the start."`
	Kind     string        `help:"Their kind." default:"noop"`
	TLS      string        `name:"tls" help:"Serve over TLS, and write the authority's certificate to this file."`
}

// opened is the first line that a storage process prints.
type opened struct {
	ConnectionString string
}

// counts are the answer of a storage process. Done is how many messages were deleted.
type counts struct {
	Calls map[string]int64
	Done  int64
}

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
	connectionString, err := c.listen(server)
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
		calls := server.Counts()
		if err := encoder.Encode(counts{Calls: calls, Done: calls[storage.OpDeleteMessage]}); err != nil {
			return err
		}
	}
	return nil
}

// listen begins to serve and returns the connection string.
func (c *storageCommand) listen(server *storage.Server) (string, error) {
	if c.TLS == "" {
		return server.Listen(storage.Addresses{})
	}
	authority, err := tlsca.New()
	if err != nil {
		return "", err
	}
	config, err := authority.ServerConfig()
	if err != nil {
		return "", err
	}
	if err := authority.WriteFile(c.TLS); err != nil {
		return "", err
	}
	endpoints, err := server.ListenTLS(storage.Addresses{}, config)
	return server.ConnectionStringAt(endpoints), err
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
