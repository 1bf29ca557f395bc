package main

import (
	"context"
	"fmt"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/producer"
)

// digestsCommand puts a digest job for each blob of a container.
type digestsCommand struct {
	Container  string `help:"Container whose blobs are to be hashed. Workers must be allowed to read it: their --data-container." required:"" placeholder:"NAME" env:"-"`
	NamePrefix string `help:"Only the blobs whose name starts so." placeholder:"TEXT" env:"-"`
	Check      bool   `help:"List the jobs that have a record first, and skip them. On by default." default:"true" negatable:"" env:"-"`
}

// Help is shown by digests --help.
func (*digestsCommand) Help() string {
	return `A job's id follows from container, name and ETag of its blob. So a second run is for what is new: a blob that was written since gets a new job, and one that has a record, of whatever status, is skipped. (A job in the poison queue is not put again either; it is to be replayed.)

A job that no worker has taken up yet has no record: its message is put a second time. That is harmless, since the worker that gets a duplicate finds the job done, or leaves it to the other. With --no-check all messages are put, and nothing need be read but the container.`
}

func (c *digestsCommand) run(ctx context.Context, s *session) error {
	stores, err := s.open(ctx)
	if err != nil {
		return err
	}
	s.reportSkipped = false // that a blob was hashed before is nothing to tell
	p := s.producer(stores)
	if c.Check {
		known, err := producer.KnownDigests(ctx, stores.Records)
		switch {
		case ctx.Err() != nil:
			return errNothingYet
		case err != nil:
			return fmt.Errorf("%w; nothing was enqueued (--no-check does without the records)", err)
		}
		p.Skip = func(id string) (checkpoint.Status, bool) {
			found := known[id]
			return found, found.Final() || found != "" && !s.flags.TakeOver
		}
	}
	jobs := producer.Digests(ctx, stores.Account.Container(c.Container), c.Container, c.NamePrefix, s.flags.terms())
	return s.put(ctx, stores, p, source{jobs: jobs, total: -1, resumeHint: "running it again goes on with the rest"})
}
