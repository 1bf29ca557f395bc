package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// errWaitTimeout ends the waiting after --wait-timeout.
var errWaitTimeout = errors.New("the waiting timed out")

// waiting waits for the jobs of a run.
type waiting struct {
	session *session
	client  *client.Client
	jobs    map[string]work // by id
	over    map[string]bool // jobs that have ended
}

// work identifies the work behind a job's id.
type work struct{ kind, hash string }

// add returns a report that also adds each job that has, or had, a message.
func (w *waiting) add(report func(client.PutResult) error) func(client.PutResult) error {
	w.jobs, w.over = map[string]work{}, map[string]bool{}
	return func(r client.PutResult) error {
		if r.Err == nil {
			w.jobs[r.ID] = work{r.Kind, r.WorkSHA256}
		}
		return report(r)
	}
}

// run waits until all jobs have ended, and reports their outcomes.
func (w *waiting) run(ctx context.Context) error {
	s := w.session
	began, all := time.Now(), len(w.jobs)
	s.report.sum.Waited = &endings{Pending: all}
	within := ctx
	if s.flags.WaitTimeout > 0 {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeoutCause(ctx, s.flags.WaitTimeout, errWaitTimeout)
		defer cancel()
	}
	s.report.screen.begin("waiting", int64(all))
	if !s.report.screen.bars && !s.report.json && all > 0 {
		s.report.note("waiting for %d jobs", all)
	}
	watching, stop := context.WithCancel(within)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		noteWorkers(watching, w.client.Workers, s.report.note)
	}()
	err := w.reportAll(within)
	stop()
	<-watched
	s.report.screen.end()
	n := s.report.sum.Waited
	s.report.note("%d done, %d poison, %d cancelled, %d pending, in %v",
		n.Done, n.Poison, n.Cancelled, n.Pending, time.Since(began).Round(time.Millisecond))
	pending := fmt.Sprintf("the jobs continue; not ended: %d of %d%s", n.Pending, all, w.open()) + producer.UnreadRemark(err)
	switch {
	case ctx.Err() != nil && err != nil:
		return fmt.Errorf("interrupted; %s", pending)
	case errors.Is(err, errWaitTimeout):
		return fmt.Errorf("waited for %s; %s", s.flags.WaitTimeout, pending)
	case err != nil:
		return fmt.Errorf("stopped waiting: %w; %s", err, pending)
	case n.bad() > 0:
		return fmt.Errorf("%d of %d jobs ended without a result; the lines above say why", n.bad(), all)
	}
	return nil
}

// How often a wait looks whether any worker is alive, and how often it says that none is.
const (
	lookEvery = time.Minute
	sayEvery  = 10 * time.Minute
)

// noteWorkers says when no worker is alive: at the start, when that changes, and every ten
// minutes. It costs one call a minute. It ends with ctx, or if heartbeats may not be read.
func noteWorkers(ctx context.Context, list func(context.Context) ([]client.Worker, error), note func(format string, args ...any)) {
	said := time.Time{} // when it was said last that none is alive; zero if one is
	for {
		workers, err := list(ctx)
		switch {
		case ctx.Err() != nil || errors.Is(err, client.ErrDenied):
			return
		case err != nil && !errors.Is(err, client.ErrNoDeployment):
			// The wait itself reports an outage.
		case slices.ContainsFunc(workers, func(w client.Worker) bool { return w.Life() == client.Alive }):
			if !said.IsZero() {
				note("a worker is alive again")
			}
			said = time.Time{}
		case said.IsZero() || time.Since(said) >= sayEvery:
			said = time.Now()
			note("no worker is alive%s: the jobs wait until one starts", lastHeartbeat(workers))
		}
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return
		}
	}
}

// lastHeartbeat says how long ago the last heartbeat was written; empty if there is none.
func lastHeartbeat(workers []client.Worker) string {
	if len(workers) == 0 {
		return ", and no heartbeat was ever written"
	}
	last := slices.MinFunc(workers, func(a, b client.Worker) int { return cmp.Compare(a.Age, b.Age) })
	return fmt.Sprintf(", the last heartbeat was written %s ago by %s", last.Age.Round(time.Second), plaintext.Line(last.Name))
}

// open names the first of the jobs that have not ended, for the end of a sentence.
func (w *waiting) open() string {
	const named = 5
	var ids []string
	for _, id := range slices.Sorted(maps.Keys(w.jobs)) {
		if !w.over[id] && len(ids) < named {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		return ""
	}
	text := ": " + strings.Join(ids, ", ")
	if more := len(w.jobs) - len(w.over) - len(ids); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// reportAll reports each outcome as soon as it is known.
func (w *waiting) reportAll(ctx context.Context) error {
	for outcome, err := range w.client.WaitMany(ctx, slices.Sorted(maps.Keys(w.jobs)), client.WaitOptions{}) {
		if err != nil {
			return err
		}
		w.over[outcome.Job.ID] = true
		if err := w.session.report.ended(w.checked(outcome)); err != nil {
			return fmt.Errorf("cannot report the job's outcome (job %s): %w", outcome.Job.ID, err)
		}
	}
	return nil
}

// checked returns the outcome of the job that was put: an id that was used before, for
// other work, has another job's.
func (w *waiting) checked(o client.Outcome) client.Outcome {
	put, j := w.jobs[o.Job.ID], o.Job
	if errors.Is(o.Err, client.ErrNewerVersion) || matches(j.Kind, put.kind) && matches(j.WorkSHA256, put.hash) {
		return o
	}
	return client.Outcome{Job: j, Err: fmt.Errorf("%w (kind %q, %s); this message goes to the poison queue", client.ErrOtherWork, j.Kind,
		j.Status)}
}

// matches reports whether a recorded property is the job's. A property that was not
// recorded, as after a cancellation before any claim, matches everything.
func matches(recorded, put string) bool { return recorded == "" || recorded == put }
