package main

import (
	"context"
	"fmt"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/producer"
)

// digestsCommand puts a digest job for each blob of a container.
type digestsCommand struct {
	Container  string `help:"Container of the blobs to hash. Workers must be allowed to read it: their --data-container." required:"" placeholder:"NAME" env:"-"`
	NamePrefix string `help:"Only blobs whose name starts with this." placeholder:"TEXT" env:"-"`
	Check      bool   `help:"List the jobs that have a record first, and skip them. On by default." default:"true" negatable:"" env:"-"`
}

// Help is shown by digests --help.
func (*digestsCommand) Help() string {
	return `A job's id is derived from container, name and ETag of its blob. So a second run puts only what is new: a blob that was written since gets a new job, and a job that has a record, of any status, is skipped. (A job in the poison queue is not put again either: replay it.)

A job that no worker has claimed yet has no record: its message is put a second time. That is harmless, since the worker that gets a duplicate finds the job done, or leaves it to the other worker. With --no-check all messages are put, and only the container is read.`
}

func (c *digestsCommand) run(ctx context.Context, s *session) error {
	stores, err := s.open(ctx)
	if err != nil {
		return err
	}
	s.report.reportSkipped = false // a blob that was hashed before needs no report
	p := s.producer(stores)
	if c.Check {
		known, err := producer.KnownDigests(ctx, stores.Records)
		switch {
		case ctx.Err() != nil:
			return errNothingYet
		case err != nil:
			return fmt.Errorf("%w; nothing was enqueued (--no-check does not read the records)", err)
		}
		p.Skip = func(id string) (checkpoint.Status, bool) {
			found := known[id]
			return found, found.Final() || found != "" && !s.flags.TakeOver
		}
	}
	jobs := producer.Digests(ctx, stores.Account.Container(c.Container), c.Container, c.NamePrefix, s.flags.terms())
	return s.put(ctx, stores, p, source{jobs: jobs, total: -1, resumeHint: "running it again continues with the rest"})
}
