// Package overview reads the state of a deployment at one moment, and draws it: once
// for "spotctl status", and again and again with --watch.
//
// It makes list calls only: one for each 5,000 records of jobs and each 5,000 heartbeats,
// two for each queue with messages and one for each other, and one for the control
// document. Workers are not called.
package overview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/client"
)

// Recently is how far back a snapshot looks for ends of jobs, scheduled events and
// workers that fell silent.
const Recently = time.Hour

// Snapshot is a deployment at one moment.
type Snapshot struct {
	At     time.Time // by this machine's clock
	Took   time.Duration
	Queues client.Queues
	Jobs   Jobs

	// Waits is for how long the message at the front of a queue has been there, by the
	// queue's name, without queues that were not read.
	Waits map[string]time.Duration

	// Workers are sorted: running workers, silent workers, ended workers.
	Workers []client.Worker

	// Steering holds the operators' requests to the workers, as far as they were read.
	Steering client.Steering

	// Growing are the queues that grow, by name. Only a view that reads again and again knows.
	Growing map[string]Growth

	// Reading says that the jobs are still being read, see [ReadEach].
	Reading bool

	// Faults are why parts of the snapshot are missing.
	Faults []Fault
}

// Part is a part of a snapshot that is read on its own.
type Part string

// The parts.
const (
	PartJobs    Part = "jobs"
	PartWorkers Part = "workers"
	PartQueues  Part = "queues"

	// PartSteering is the operators' requests.
	PartSteering Part = "control document"
)

// Fault is why a part could not be read, or what else is missing.
type Fault struct {
	Part Part // empty for a queue that does not exist
	Err  error
}

// String returns a sentence for people.
func (f Fault) String() string {
	if f.Part == "" {
		return f.Err.Error()
	}
	return fmt.Sprintf("the %s cannot be read: %v", f.Part, f.Err)
}

// Has reports whether a part was read.
func (s *Snapshot) Has(p Part) bool {
	if s.Reading && (p == PartJobs || p == PartSteering) {
		return false
	}
	return !slices.ContainsFunc(s.Faults, func(f Fault) bool { return f.Part == p })
}

// Explain replaces the errors of the faults by what explain makes of them, for people.
func (s *Snapshot) Explain(explain func(error) string) {
	for i, fault := range s.Faults {
		s.Faults[i].Err = errors.New(explain(fault.Err))
	}
}

// Jobs are the records of a deployment.
type Jobs struct {
	ByStatus map[client.Status]int

	// DoneRecently counts the jobs that were done within the last hour.
	DoneRecently int

	// Punctuality counts the jobs that may miss their deadlines.
	Punctuality Punctuality

	// Running are the jobs with that status, the one longest without a report first.
	Running []client.Job
}

// Read reads a snapshot. A part that cannot be read is a fault in it; the error is the
// error of ctx, or the fault if no part could be read.
func Read(ctx context.Context, c *client.Client) (Snapshot, error) {
	return ReadEach(ctx, c, func(client.Job) {}, func(Snapshot) {})
}

// soon is how long the jobs may take after queues and workers without a snapshot of these alone.
const soon = 100 * time.Millisecond

// ReadEach is [Read], and calls each with every job that has a record, from one goroutine. If the jobs
// take longer than the rest, it calls early once before it returns, with a snapshot of queues and
// workers.
func ReadEach(ctx context.Context, c *client.Client, each func(client.Job), early func(Snapshot)) (Snapshot, error) {
	began := time.Now()
	s := Snapshot{At: began}
	faults := []Fault{{Part: PartJobs}, {Part: PartWorkers}, {Part: PartQueues}, {Part: PartSteering}}
	var parts sync.WaitGroup
	var jobs Jobs
	read := make(chan struct{})
	go func() {
		defer close(read)
		jobs, faults[0].Err = readJobs(ctx, c, each)
	}()
	parts.Go(func() { s.Workers, faults[1].Err = Workers(ctx, c) })
	parts.Go(func() { s.Queues, faults[2].Err = c.Queues(ctx) })
	parts.Wait()
	select {
	case <-read:
	case <-time.After(soon):
		if ctx.Err() == nil {
			early(s.withoutJobs(faults[1:3]))
		}
		<-read
	}
	s.Jobs = jobs
	parts.Go(func() {
		if s.mayBeSteered() {
			s.Steering, faults[3].Err = c.Steering(ctx)
		}
	})
	parts.Go(func() { s.readWaits(ctx, c) })
	parts.Go(func() { c.ReadLive(ctx, s.Jobs.Running, liveWorkers) })
	parts.Wait()
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	if faults[1].Err == nil && bloberror.HasCode(faults[0].Err, bloberror.ContainerNotFound) {
		faults[0].Err = fmt.Errorf("%w. %s", faults[0].Err, RecordsLost)
	}
	if faults[2].Err == nil {
		faults = append(faults, Fault{Err: s.missingQueues()})
	}
	s.Faults = slices.DeleteFunc(faults, func(f Fault) bool { return f.Err == nil })
	if !s.Has(PartJobs) && !s.Has(PartWorkers) && !s.Has(PartQueues) {
		return s, s.Faults[0].Err
	}
	s.Took = time.Since(began)
	return s, nil
}

// withoutJobs returns the snapshot of queues and workers.
func (s *Snapshot) withoutJobs(faults []Fault) Snapshot {
	early := *s
	early.Reading, early.Faults = true, slices.DeleteFunc(slices.Clone(faults), func(f Fault) bool { return f.Err == nil })
	return early
}

// RecordsLost says what follows from a deleted container of records.
const RecordsLost = "If it was deleted, the records of all jobs are lost, with checkpoints and results, unless the account's soft delete " +
	"keeps them (az storage container restore); jobs on the queues then start from the beginning"

// missingQueues returns an error if a queue that each deployment has does not exist.
func (s *Snapshot) missingQueues() error {
	var missing []string
	for _, q := range append(s.jobQueues(), s.Queues.Poison) {
		if !q.Exists {
			missing = append(missing, q.Name)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return fmt.Errorf("there is no queue %s: no job can be put or claimed there, and messages of a deleted queue are lost. Check --account, "+
		"--prefix and --queue; the deployment and the next put create it", strings.Join(missing, ", "))
}

// liveWorkers is of how many workers the heartbeats are read whole, for the progress of the
// jobs whose records are oldest.
const liveWorkers = 16

// listed is how many records or heartbeats one call lists.
const listed = 5000

// mayBeSteered reports whether to read the operators' requests to the workers. They are
// always read in a small deployment. If listing the jobs needs several calls, they are
// read only if a heartbeat shows a request, which takes 15 s, or if no worker is alive.
func (s *Snapshot) mayBeSteered() bool {
	return s.Records() <= listed || s.Count(client.Alive) == 0 || slices.ContainsFunc(s.Workers,
		func(w client.Worker) bool { return w.Life() == client.Alive && w.Asked != "" })
}

// AllQueues returns the queues in the order of the screen.
func (s *Snapshot) AllQueues() []client.Queue {
	return append(s.jobQueues(), s.Queues.First, s.Queues.OnDemand, s.Queues.Poison)
}

// jobQueues returns the queues that the jobs for any VM are on.
func (s *Snapshot) jobQueues() []client.Queue {
	if len(s.Queues.Shards) == 0 {
		return []client.Queue{s.Queues.Jobs}
	}
	return slices.Clone(s.Queues.Shards)
}

// readWaits reads for how long the oldest messages of the queues have waited: of two in
// a deployment whose jobs need several calls. A queue that cannot be read is left out:
// the count of its messages came from the same role. The queues are read side by side.
func (s *Snapshot) readWaits(ctx context.Context, c *client.Client) {
	s.Waits = map[string]time.Duration{}
	most := len(s.AllQueues())
	if s.Records() > listed {
		most -= 2
	}
	var mu sync.Mutex // guards s.Waits
	var group errgroup.Group
	group.SetLimit(waitsAtOnce)
	for _, q := range append(s.jobQueues(), s.Queues.Poison, s.Queues.OnDemand, s.Queues.First) {
		if q.Messages == 0 || most == 0 {
			continue
		}
		most--
		group.Go(func() error {
			if waited, err := c.Waited(ctx, q.Name); err == nil {
				mu.Lock()
				defer mu.Unlock()
				s.Waits[q.Name] = waited
			}
			return nil
		})
	}
	_ = group.Wait() // its functions return no error
}

// waitsAtOnce is how many queues are asked at once for how long their oldest messages have
// waited.
const waitsAtOnce = 16

// Records returns how many jobs have a record.
func (s *Snapshot) Records() (n int) {
	for _, jobs := range s.Jobs.ByStatus {
		n += jobs
	}
	return n
}

func readJobs(ctx context.Context, c *client.Client, each func(client.Job)) (Jobs, error) {
	jobs := Jobs{ByStatus: map[client.Status]int{}}
	for j, err := range c.List(ctx, client.Filter{}) {
		if err != nil {
			return jobs, err
		}
		each(j)
		jobs.ByStatus[j.Status]++
		jobs.Punctuality.Add(j)
		switch {
		case j.Status == client.StatusRunning:
			jobs.Running = append(jobs.Running, j)
		case j.Status == client.StatusDone && j.Age() <= Recently:
			jobs.DoneRecently++
		}
	}
	slices.SortFunc(jobs.Running, func(a, b client.Job) int {
		return cmp.Or(cmp.Compare(b.Age(), a.Age()), cmp.Compare(a.ID, b.ID))
	})
	return jobs, nil
}

// Workers reads the workers: running workers first, then silent workers, then ended
// workers.
func Workers(ctx context.Context, c *client.Client) ([]client.Worker, error) {
	workers, err := c.Workers(ctx)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(workers, func(a, b client.Worker) int {
		return cmp.Or(cmp.Compare(a.Life(), b.Life()), cmp.Compare(a.Name, b.Name))
	})
	return workers, nil
}

// Count returns the number of workers with that life.
func (s *Snapshot) Count(life client.Life) int {
	n := 0
	for _, w := range s.Workers {
		if w.Life() == life {
			n++
		}
	}
	return n
}

// Waiting returns about how many jobs wait for a worker: the messages that no worker has.
// Heartbeats and records lag behind in different ways: a record shows a job that a heartbeat
// does not have yet, and short jobs run without a record. The higher number counts.
func (s *Snapshot) Waiting() int {
	held := 0
	for _, w := range s.Workers {
		if w.Life() == client.Alive {
			held += w.Jobs
		}
	}
	return max(0, s.Queues.Jobs.Messages+s.Queues.First.Messages+s.Queues.OnDemand.Messages-max(held, s.Jobs.ByStatus[client.StatusRunning]))
}

// Evictions returns the workers whose VM got a scheduled event within the last hour,
// the latest first.
func (s *Snapshot) Evictions() []client.Worker {
	var found []client.Worker
	for _, w := range s.Workers {
		if w.LastEvent != nil && s.At.Sub(w.LastEvent.SeenAt) <= Recently {
			found = append(found, w)
		}
	}
	slices.SortFunc(found, func(a, b client.Worker) int { return b.LastEvent.SeenAt.Compare(a.LastEvent.SeenAt) })
	return found
}
