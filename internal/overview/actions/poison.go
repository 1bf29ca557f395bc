package actions

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
)

// PoisonSum counts the outcomes of a replay or purge.
type PoisonSum struct {
	Replayed int      `json:"replayed"`
	Purged   int      `json:"purged"`
	Dropped  int      `json:"dropped"`
	Refused  int      `json:"refused"`
	Failed   int      `json:"failed"`
	Hidden   int      `json:"hidden,omitempty"` // about how many messages could not be seen
	NotFound []string `json:"not_found,omitempty"`
	Error    string   `json:"error,omitempty"` // why the exit code is not 0
}

// Count counts an outcome. It reports whether the message was found.
func (s *PoisonSum) Count(r client.ActionResult) bool {
	if r.Action == client.NotPoison {
		s.NotFound = append(s.NotFound, r.ID)
		return false
	}
	*map[client.Action]*int{
		client.Replayed: &s.Replayed, client.Purged: &s.Purged, client.Dropped: &s.Dropped,
		client.Refused: &s.Refused, client.Failed: &s.Failed,
	}[r.Action]++
	return true
}

// String returns the counts for people.
func (s *PoisonSum) String() string {
	return fmt.Sprintf("%d replayed, %d purged, %d dropped, %d refused, %d failed", s.Replayed, s.Purged, s.Dropped, s.Refused, s.Failed)
}

// Outcome returns the error of a replay or purge that ended with err: that error, or an error
// about messages that were not found or not handled. ctx is the context without the time limit.
func (s *PoisonSum) Outcome(ctx context.Context, err error) error {
	switch undone := s.Refused + s.Failed; {
	case ctx.Err() != nil:
		return errors.New("interrupted; what was begun is finished, the rest is unchanged")
	case err != nil:
		return err
	case len(s.NotFound) > 0:
		return NotPoison(s.NotFound...)
	case undone > 0:
		return fmt.Errorf("nothing was done for %d of the messages; their lines say why", undone)
	}
	return nil
}

// NotPoison is the error of jobs without a message that could be read.
func NotPoison(ids ...string) error {
	return fmt.Errorf("the poison queue has no message of %s, or another command has read it and hides it for up to 2 minutes",
		strings.Join(ids, ", "))
}

// PurgeQuestion is asked before a purge. which says what of the messages.
func PurgeQuestion(which string, about int) string {
	return fmt.Sprintf("Purge %s about %d messages? This cannot be undone.", which, about)
}

// RequeueSum counts the actions for jobs that have lost their messages.
type RequeueSum struct {
	Requeued int      `json:"requeued"`
	Dropped  int      `json:"dropped"`
	Refused  int      `json:"refused"`
	Failed   int      `json:"failed"`
	NotFound []string `json:"not_found,omitempty"`
	DryRun   bool     `json:"dry_run"`
	Error    string   `json:"error,omitempty"` // why the exit code is not 0
}

// OrphanIdle is for how long the record of a job was not written before the job may have lost its
// message.
const OrphanIdle = time.Hour

// WouldRequeue is the action of a dry run for a job that would be requeued.
const WouldRequeue client.Action = "requeue"

// Count counts an outcome.
func (s *RequeueSum) Count(a client.Action) {
	switch a {
	case client.Requeued, WouldRequeue:
		s.Requeued++
	case client.Dropped:
		s.Dropped++
	case client.Refused:
		s.Refused++
	default:
		s.Failed++
	}
}

// String returns the counts for people.
func (s *RequeueSum) String() string {
	return fmt.Sprintf("%d requeued, %d dropped, %d refused, %d failed", s.Requeued, s.Dropped, s.Refused, s.Failed)
}

// Outcome returns the error of a requeue that ended with err.
func (s *RequeueSum) Outcome(err error) error {
	switch {
	case err != nil && len(s.NotFound) > 0:
		return fmt.Errorf("%w; not found elsewhere: %s", err, strings.Join(s.NotFound, ", "))
	case err != nil:
		return err
	case len(s.NotFound) > 0:
		return fmt.Errorf("not among the jobs that orphans list shows (ended, written more recently than --idle, or with a "+
			"message on a queue): %s", strings.Join(s.NotFound, ", "))
	case s.Refused+s.Failed > 0:
		return fmt.Errorf("nothing was done for %d of the jobs; their lines say why", s.Refused+s.Failed)
	}
	return nil
}

// Coverage says how much of the queues was seen, if that leaves doubts about orphans.
func Coverage(o *client.Orphans) string {
	if len(o.Jobs) == 0 || o.Complete() {
		return ""
	}
	return fmt.Sprintf("the queues hold about %d messages, of which %d were seen: listed jobs may have one that is hidden or further back",
		o.Queued, o.Seen)
}
