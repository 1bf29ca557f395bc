// Command dapr takes messages from a queue with the storage queue binding of Dapr
// and does nothing with them, for make bench.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/dapr/components-contrib/bindings"
	"github.com/dapr/components-contrib/bindings/azure/storagequeues"
	"github.com/dapr/components-contrib/metadata"
	"github.com/dapr/kit/logger"

	"github.com/spotworker/spotworker/bench/peers/probe"
)

func main() {
	go probe.Serve(os.Stdin, os.Stdout)
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "dapr:", err)
		os.Exit(1)
	}
}

// run starts as many components as the variable BENCH_COPIES says. Each takes one
// message at a time.
func run(ctx context.Context) error {
	copies, err := strconv.Atoi(os.Getenv("BENCH_COPIES"))
	if err != nil {
		return err
	}
	for range copies {
		log := logger.NewLogger("bench")
		log.SetOutput(io.Discard)
		component := storagequeues.NewAzureStorageQueues(log)
		err := component.Init(ctx, bindings.Metadata{Base: metadata.Base{Properties: map[string]string{
			"accountName":       os.Getenv("BENCH_ACCOUNT"),
			"accountKey":        os.Getenv("BENCH_KEY"),
			"endpoint":          os.Getenv("BENCH_QUEUE_HOST"),
			"queueName":         os.Getenv("BENCH_QUEUE"),
			"visibilityTimeout": "30s",
		}}})
		if err != nil {
			return err
		}
		if err := component.Read(ctx, discard); err != nil {
			return err
		}
	}
	select {}
}

func discard(context.Context, *bindings.ReadResponse) ([]byte, error) { return nil, nil }
