package actions

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/text/spelling"
)

// CancelSum counts the outcomes of a cancel.
type CancelSum struct {
	Cancelled int    `json:"cancelled"`
	Barred    int    `json:"barred"`
	Over      int    `json:"over"`
	Unknown   int    `json:"unknown"`
	Refused   int    `json:"refused"`
	Failed    int    `json:"failed"`
	Error     string `json:"error,omitempty"` // why the exit code is not 0
}

// Count counts an outcome.
func (s *CancelSum) Count(a client.Action) {
	*map[client.Action]*int{
		client.Cancelled: &s.Cancelled, client.Barred: &s.Barred, client.Over: &s.Over, client.Unknown: &s.Unknown,
		client.Refused: &s.Refused, client.Failed: &s.Failed,
	}[a]++
}

// String returns the counts for people.
func (s *CancelSum) String() string {
	return fmt.Sprintf("%d cancelled, %d barred, %d over already, %d unknown, %d refused, %d failed", s.Cancelled, s.Barred, s.Over, s.Unknown,
		s.Refused, s.Failed)
}

// Outcome returns the error of a cancel that ended with err. ctx is the context without the
// time limit.
func (s *CancelSum) Outcome(ctx context.Context, err error) error {
	switch notDone := s.Over + s.Unknown + s.Refused + s.Failed; {
	case ctx.Err() != nil:
		return errors.New("interrupted; the jobs that were reported as cancelled are, the others are unchanged or cancelled")
	case notDone > 0:
		text := fmt.Sprintf("%d of %d jobs were not cancelled; their lines say why", notDone, notDone+s.Cancelled+s.Barred)
		if err != nil {
			return fmt.Errorf("%s; %w", text, err)
		}
		return errors.New(text)
	}
	return err
}

// CancelQuestion is asked before jobs are cancelled. jobs says how many.
func CancelQuestion(jobs string) string { return "Cancel " + jobs + "? This cannot be undone." }

// CheckCancelStatus returns an error if a selection of jobs to cancel has a status in which none
// can be cancelled.
func CheckCancelStatus(statuses []string) error {
	for _, status := range statuses {
		if status := client.Status(status); status != client.StatusOpen && status != client.StatusRunning {
			return fmt.Errorf("--status %s: only jobs that are open or running can be cancelled; spotctl poison purge "+
				"cancels jobs that were given up", status)
		}
	}
	return nil
}

// WithoutRecord says which jobs a selection does not have, unless it is of a group.
const WithoutRecord = "jobs that wait for their first worker have no record and are not selected, except jobs of groups"

// Matched are the jobs that a selection has.
type Matched struct {
	IDs           []string // of the jobs that have not ended
	Open, Running int
	Ended         int
	Skipped       int // blobs that are no records

	kinds, groups map[string]bool // of all records
}

// Match lists the records, and returns the jobs that the filter and has select.
func Match(ctx context.Context, c *client.Client, filter client.Filter, has func(client.Job) bool) (m Matched, err error) {
	m.kinds, m.groups = map[string]bool{}, map[string]bool{}
	for j, err := range c.List(ctx, client.Filter{Skipped: func(string) { m.Skipped++ }}) {
		if err != nil {
			return m, err
		}
		m.kinds[j.Kind], m.groups[j.Group] = true, true
		switch {
		case !filter.Has(j) || !has(j):
		case j.Status == client.StatusOpen:
			m.IDs, m.Open = append(m.IDs, j.ID), m.Open+1
		case j.Status == client.StatusRunning:
			m.IDs, m.Running = append(m.IDs, j.ID), m.Running+1
		default:
			m.Ended++
		}
	}
	return m, nil
}

// String counts the jobs that have not ended.
func (m *Matched) String() string {
	return fmt.Sprintf("%d jobs: %d open, %d running", len(m.IDs), m.Open, m.Running)
}

// Nothing returns an error if there is no record of the kind or group, and else a remark, for a
// selection without a job that has not ended.
func (m *Matched) Nothing(kind, group string) (remark string, err error) {
	for _, name := range []struct {
		what, given string
		known       map[string]bool
	}{{"group", group, m.groups}, {"kind", kind, m.kinds}} {
		if name.given == "" || name.known[name.given] {
			continue
		}
		text := fmt.Sprintf("no record has %s %q", name.what, name.given)
		if nearest := spelling.Nearest(name.given, slices.Sorted(maps.Keys(name.known))); nearest != "" {
			text += fmt.Sprintf(" (did you mean %q?)", nearest)
		}
		return "", errors.New(text + "; nothing was cancelled")
	}
	return fmt.Sprintf("no job is selected that has not ended; %d that match have", m.Ended), nil
}

// Meanwhile returns an error if jobs of a group that was cancelled match again.
func (m *Matched) Meanwhile(group string) error {
	if len(m.IDs) > 0 {
		return fmt.Errorf("%d jobs of group %s were put or replayed meanwhile and are not cancelled: repeat the command", len(m.IDs), group)
	}
	return nil
}
