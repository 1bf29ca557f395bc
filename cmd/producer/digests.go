package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/producer"
)

// digestsCommand puts a digest job for each blob of a container.
type digestsCommand struct {
	Container  string `help:"${about_digests_container}" required:"" placeholder:"NAME" env:"-"`
	NamePrefix string `help:"Only blobs whose name starts with this." placeholder:"TEXT" env:"-"`
	Check      bool   `help:"List the jobs that have a record first, and skip them. On by default." default:"true" negatable:"" env:"-"`
}

// Help is shown by digests --help.
func (*digestsCommand) Help() string {
	return `A job's id is derived from container, name and ETag of its blob. So a second run puts only
what is new: a blob that was written since gets a new job, and a job that has a record, of any
status, is skipped. (A job in the poison queue is not put again either: replay it.)

A job that no worker has claimed yet has no record: its message is put a second time. That is
harmless, since the worker that gets a duplicate finds the job done, or leaves it to the other
worker. With --no-check all messages are put, and only the container is read.`
}

func (d *digestsCommand) run(ctx context.Context, s *session) error {
	stores, err := s.flags.Open(1, version) // for a container that is none of the deployment's
	if err != nil {
		return err
	}
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	s.report.reportSkipped = false // a blob that was hashed before needs no report
	options := s.options(false)
	if d.Check {
		known, err := knownDigests(ctx, c)
		switch {
		case ctx.Err() != nil:
			return errNothingYet
		case err != nil:
			return fmt.Errorf("%w; nothing was enqueued (--no-check does not read the records)", err)
		}
		options.Skip = func(id string) (client.Status, bool) {
			found := known[id]
			if found.Group != s.flags.Group && s.flags.Group != "" {
				return "", false // the put says that the job is in another group
			}
			return found.Status, found.Status.Ended() && !s.flags.Again || found.Status != "" && !found.Status.Ended() && !s.flags.TakeOver
		}
	}
	jobs := producer.Digests(ctx, stores.Account.Container(d.Container), d.Container, d.NamePrefix, s.flags.defaults())
	return s.put(ctx, c, source{jobs: specs(jobs), total: -1, resumeHint: "running it again continues with the rest"}, options)
}

// knownDigests returns all jobs of [producer.Digests] that have a record.
// An open or running job needs no second message; a job that has ended would not run.
func knownDigests(ctx context.Context, c *client.Client) (map[string]client.Job, error) {
	known := map[string]client.Job{}
	for job, err := range c.List(ctx, client.Filter{Prefix: producer.DigestPrefix}) {
		if errors.Is(err, client.ErrNoDeployment) {
			break
		}
		if err != nil {
			return nil, err
		}
		known[job.ID] = client.Job{Status: job.Status, Group: job.Group}
	}
	return known, nil
}
