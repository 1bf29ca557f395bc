// Command benthos takes messages from a queue with the input azure_queue_storage of
// Benthos and drops them, for make bench.
package main

import (
	"context"
	"fmt"
	"os"

	_ "github.com/benthosdev/benthos/v4/public/components/azure" // the input
	_ "github.com/benthosdev/benthos/v4/public/components/pure"  // the output
	"github.com/benthosdev/benthos/v4/public/service"

	"github.com/spotworker/spotworker/bench/peers/probe"
)

// config is a stream of as many copies of the input as BENCH_COPIES says. Each copy
// takes 32 messages at a time, the most that the service gives.
const config = `
input:
  broker:
    copies: %s
    inputs:
      - azure_queue_storage:
          storage_connection_string: %q
          queue_name: %q
          max_in_flight: 32
output:
  drop: {}
`

func main() {
	go probe.Serve(os.Stdin, os.Stdout)
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "benthos:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	builder := service.NewStreamBuilder()
	if err := builder.SetYAML(fmt.Sprintf(config, os.Getenv("BENCH_COPIES"), os.Getenv("BENCH_CONNECTION_STRING"),
		os.Getenv("BENCH_QUEUE"))); err != nil {
		return err
	}
	if err := builder.SetLoggerYAML("level: ERROR"); err != nil {
		return err
	}
	stream, err := builder.Build()
	if err != nil {
		return err
	}
	return stream.Run(ctx)
}
