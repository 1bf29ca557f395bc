package client

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/spotworker/spotworker/internal/jobid"
	"github.com/spotworker/spotworker/internal/text/spelling"
)

// ErrNoGroup means that no record is in a group of that name. The error is a
// [*NoGroupError].
var ErrNoGroup = errors.New("no job is in this group")

// NoGroupError says that no record is in a group.
type NoGroupError struct {
	Group string

	// Nearest is the group that was probably meant; empty if none is similar.
	Nearest string
}

// Error names the group, and the group that was probably meant.
func (e *NoGroupError) Error() string {
	text := fmt.Sprintf("no job is in group %q", e.Group)
	if e.Nearest != "" {
		text += fmt.Sprintf(" (did you mean %q?)", e.Nearest)
	}
	return text
}

// Is reports whether target is [ErrNoGroup].
func (e *NoGroupError) Is(target error) bool { return target == ErrNoGroup }

// Group returns all jobs of a group, in unspecified order: also the jobs that no worker has
// claimed, since a put in a group creates the record first. It costs a listing of all
// records, one call for each 5,000. The error is a [*NoGroupError] if there is none.
func (c *Client) Group(ctx context.Context, group string) ([]Job, error) {
	if err := jobid.ValidateGroup(group); err != nil {
		return nil, err
	}
	var jobs []Job
	known := map[string]bool{}
	for j, err := range c.List(ctx, Filter{}) {
		switch {
		case err != nil:
			return nil, err
		case j.Group == group:
			jobs = append(jobs, j)
		case j.Group != "":
			known[j.Group] = true
		}
	}
	if len(jobs) > 0 {
		return jobs, nil
	}
	return nil, &NoGroupError{Group: group, Nearest: spelling.Nearest(group, slices.Sorted(maps.Keys(known)))}
}

// WaitGroup is [Client.WaitMany] for the jobs of a group. It also waits for jobs that are put
// in the group while it waits: it ends when a listing shows no job that has not ended. It
// lists the records at the beginning and after each round of waiting.
func (c *Client) WaitGroup(ctx context.Context, group string, o WaitOptions) iter.Seq2[Outcome, error] {
	return func(yield func(Outcome, error) bool) {
		waited := map[string]bool{}
		for {
			jobs, err := c.Group(ctx, group)
			if err != nil && !(errors.Is(err, ErrNoGroup) && len(waited) > 0) { // its records may be removed by now
				yield(Outcome{}, err)
				return
			}
			var ids []string
			for _, j := range jobs {
				if !waited[j.ID] {
					waited[j.ID] = true
					ids = append(ids, j.ID)
				}
			}
			if len(ids) == 0 {
				return
			}
			for outcome, err := range c.WaitMany(ctx, ids, o) {
				if !yield(outcome, err) || err != nil {
					return
				}
			}
		}
	}
}
