package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/bench/loop"
	"github.com/spotworker/spotworker/internal/lab/emulator/storage"
)

// putsCommand puts messages over the SDK and does nothing else.
type putsCommand struct {
	Messages int    `help:"How many."`
	Parallel int    `help:"Calls at once."`
	Storage  string `help:"Connection string."`
}

// Run puts the messages and returns.
func (c *putsCommand) Run(ctx context.Context) error {
	options := &azqueue.ClientOptions{ClientOptions: policy.ClientOptions{Transport: &http.Client{Transport: loop.NewTransport(c.Parallel)}}}
	queue, err := azqueue.NewQueueClientFromConnectionString(c.Storage, names().Queue, options)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.SetLimit(c.Parallel)
	for i := range c.Messages {
		group.Go(func() error {
			text := fmt.Sprintf(`{"v":1,"id":"019b0000-0000-7000-8000-%012d","kind":"noop","payload":%s}`, i, payload)
			_, err := queue.EnqueueMessage(ctx, base64.StdEncoding.EncodeToString([]byte(text)),
				&azqueue.EnqueueMessageOptions{TimeToLive: new(int32(-1))})
			return err
		})
	}
	return group.Wait()
}

// putParallel is the producer's default.
const putParallel = 16

// putWay is a program that puts messages. lines is its standard input.
type putWay struct {
	title, program string
	args           []string
	lines          string
}

// measurePuts prints the table of the producer.
func (b *bench) measurePuts(ctx context.Context) error {
	ways := []putWay{
		{"producer lines", b.producer, []string{"--quiet", "lines", "-"}, strings.Repeat(`{"kind":"noop","payload":`+payload+"}\n", b.Messages)},
		{"SDK loop", b.self, []string{"puts", fmt.Sprintf("--messages=%d", b.Messages), fmt.Sprintf("--parallel=%d", putParallel)}, ""},
	}
	var table grid
	table.add("Latency", "", "Messages/s", "CPU a message, µs")
	for _, latency := range b.Latency {
		rate, cpu := make([]values, len(ways)), make([]values, len(ways))
		for round := range b.Rounds {
			for i := range ways {
				at := (i + round) % len(ways)
				perSecond, micros, err := b.measurePut(ctx, ways[at], latency)
				if err != nil {
					return fmt.Errorf("%s at %s: %w", ways[at].title, latency, err)
				}
				b.report("%s, %s, round %d: %.0f messages/s, %.0f µs", latency, ways[at].title, round+1, perSecond, micros)
				rate[at], cpu[at] = append(rate[at], perSecond), append(cpu[at], micros)
			}
		}
		for i, w := range ways {
			table.add(latency.String(), w.title, rate[i].show("%.0f"), cpu[i].show("%.0f"))
		}
		table.add(latency.String(), "producer ÷ SDK loop", rate[0].over(rate[1]).show("%.2f"), cpu[0].over(cpu[1]).show("%.2f"))
	}
	b.say("## Putting %d jobs, %d calls at once\n\nFrom start to exit of the program.\n\n%s", b.Messages, putParallel, &table)
	return nil
}

// measurePut runs a program to its end.
func (b *bench) measurePut(ctx context.Context, w putWay, latency time.Duration) (perSecond, micros float64, err error) {
	s, err := b.startStorage(ctx, latency, 0)
	if err != nil {
		return 0, 0, err
	}
	defer s.kill()
	args := w.args
	env := []string{"AZURE_STORAGE_CONNECTION_STRING=" + s.connectionString}
	if w.lines == "" {
		args = append(args, "--storage="+s.connectionString)
	}
	program, args := b.pin(sideCore, w.program, args)
	begun := time.Now()
	cmd := command(ctx, env, program, args)
	cmd.Stdin = strings.NewReader(w.lines)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return 0, 0, err
	}
	took, used := time.Since(begun), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime()
	c, err := s.counts()
	if err != nil {
		return 0, 0, err
	}
	if put := c.Calls[storage.OpPutMessage]; put != int64(b.Messages) {
		return 0, 0, fmt.Errorf("%d messages were put, not %d", put, b.Messages)
	}
	return float64(b.Messages) / took.Seconds(), float64(used.Microseconds()) / float64(b.Messages), nil
}
