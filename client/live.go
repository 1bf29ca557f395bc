package client

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/jobfiles/joblog"
)

// Live is how far a running job is by its worker's last heartbeat. Other workers continue
// from the job's record, which may be older.
type Live struct {
	// Age is how old the heartbeat is, by the clock of the storage service.
	Age time.Duration `json:"heartbeat_age_seconds"`

	// Fraction (0 to 1) and Text are the last report of the handler.
	Fraction float64 `json:"fraction"`
	Text     string  `json:"text,omitzero"`

	// RunTime is how long handlers have run for the job in all deliveries, and Ran how long
	// the handler has run in this delivery, which began at the fraction From.
	RunTime time.Duration `json:"run_seconds"`
	Ran     time.Duration
	From    float64
}

// Live returns what [Client.LogEnd] returns and, for a running job, how far the job is by its
// worker's last heartbeat: [Job.Live], and the last lines of its log. That takes one more
// call. Without a heartbeat that can be read, [Job.Live] is nil.
func (c *Client) Live(ctx context.Context, id string) (Log, error) {
	r, err := c.read(ctx, id)
	if err != nil {
		return Log{}, err
	}
	end := joblog.Parse([]byte(r.Log))
	if r.Status != checkpoint.Running {
		return logOf(r, end), nil
	}
	p, ok, err := c.stores.Workers.Read(ctx, r.Owner)
	if err != nil || !ok {
		return logOf(r, end), nil //nolint:nilerr // a heartbeat that cannot be read is left out
	}
	run, ok := runOf(r.ID, r.Generation, p)
	if !ok {
		return logOf(r, end), nil
	}
	log := logOf(r, joblog.Merge(end, joblog.Parse(run.Log)))
	log.Job.Live, log.Job.HandOver = liveOf(log.Job, run, p.Age), run.HandOver
	return log, nil
}

// ReadLive sets [Job.Live] of running jobs, in one call for each worker that runs any of them.
// Of many workers it reads the first so many, in the order of the jobs. Jobs of a heartbeat
// that cannot be read stay as they are.
func (c *Client) ReadLive(ctx context.Context, jobs []Job, workers int) {
	var owners []string
	of := map[string][]*Job{}
	for i := range jobs {
		j := &jobs[i]
		if j.Status != StatusRunning {
			continue
		}
		if of[j.Owner] == nil {
			owners = append(owners, j.Owner)
		}
		of[j.Owner] = append(of[j.Owner], j)
	}
	var group errgroup.Group
	group.SetLimit(heartbeatsAtOnce)
	for _, owner := range owners[:min(len(owners), max(workers, 0))] {
		group.Go(func() error {
			if p, ok, err := c.stores.Workers.Read(ctx, owner); ok && err == nil {
				for _, j := range of[owner] {
					if run, ok := runOf(j.ID, j.Deliveries, p); ok {
						j.Live, j.HandOver = liveOf(*j, run, p.Age), run.HandOver
					}
				}
			}
			return nil
		})
	}
	_ = group.Wait() // its functions return no error
}

// heartbeatsAtOnce is how many heartbeats are read at once.
const heartbeatsAtOnce = 8

// runOf returns the run of a job in a heartbeat, if it is of the claim with that number.
func runOf(id string, generation int, p presence.Listed) (presence.Running, bool) {
	i := slices.IndexFunc(p.Running, func(run presence.Running) bool { return run.ID == id && run.Generation == generation })
	if i < 0 {
		return presence.Running{}, false
	}
	return p.Running[i], true
}

// liveOf returns how far a job is by a heartbeat of that age; nil if the job's record is newer.
func liveOf(j Job, run presence.Running, age time.Duration) *Live {
	if age > j.Age() {
		return nil
	}
	return &Live{Age: age, Fraction: run.Fraction, Text: run.Text, RunTime: run.RunTime, Ran: run.Ran, From: run.From}
}

// timeLeft estimates how much longer the job takes from the speed of this delivery. It returns
// false if the handler has reported no progress in it.
func (l *Live) timeLeft() (time.Duration, bool) {
	if l.Fraction <= l.From || l.Fraction >= 1 || l.Ran <= 0 {
		return 0, false
	}
	return max(0, atSpeed(l.Ran, l.Fraction-l.From, 1-l.Fraction)-l.Age), true
}
