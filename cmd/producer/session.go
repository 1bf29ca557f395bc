package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/queue"
)

// session is what a command works with.
type session struct {
	flags          *flags
	stdin          io.Reader
	stdout, stderr io.Writer
}

// errNothingYet is for an interruption before the first job.
var errNothingYet = errors.New("interrupted; nothing was enqueued")

// open connects to the storage account and creates what is missing there.
func (s *session) open(ctx context.Context) (*cli.Stores, error) {
	stores, err := s.flags.Open(s.flags.Parallel, version)
	if err != nil {
		return nil, err
	}
	containers := map[string]*container.Client{}
	for _, name := range []string{stores.Names.Records, stores.Names.Payloads, stores.Names.Workers} {
		containers[name] = stores.Account.Container(name)
	}
	err = producer.Create(ctx, []*queue.Queue{stores.Queue, stores.Poison}, containers)
	if ctx.Err() != nil {
		return nil, errNothingYet
	}
	return stores, err
}

// producer returns a producer that prints ids and failures.
func (s *session) producer(stores *cli.Stores) *producer.Producer {
	return &producer.Producer{
		Queue: stores.Queue, Payloads: stores.Payloads, Parallel: s.flags.Parallel,
		Confirmed: func(id string) error {
			_, err := fmt.Fprintln(s.stdout, id)
			return err
		},
		Failed: s.complain,
	}
}

// complain says why a job was not enqueued.
func (s *session) complain(bad *producer.JobError) {
	fmt.Fprintf(s.stderr, "%s\n", azure.Explain(bad))
}

// put puts the jobs and sums up. again says what is to be known for running the
// command again after it was interrupted.
func (s *session) put(ctx context.Context, p *producer.Producer, jobs iter.Seq2[producer.Job, error], again string) error {
	began := time.Now()
	sum, err := p.Run(ctx, jobs)
	fmt.Fprintf(s.stderr, "%d enqueued on %s, %d skipped, %d failed, in %v\n",
		sum.Enqueued, p.Queue.Name(), sum.Skipped, sum.Failed, time.Since(began).Round(time.Millisecond))
	place := "before the first job"
	if sum.Last != "" {
		place = "after " + sum.Last
	}
	switch {
	case errors.Is(err, producer.ErrInterrupted):
		return fmt.Errorf("interrupted %s; %s", place, again)
	case err != nil:
		return fmt.Errorf("stopped %s: %w; %s", place, err, again)
	case sum.Failed > 0:
		return fmt.Errorf("%d of %d jobs are not confirmed to be on the queue; the lines above say why", sum.Failed, sum.Enqueued+sum.Skipped+sum.Failed)
	}
	return nil
}
