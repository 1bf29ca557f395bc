package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azqueue/v2/queueerror"
	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/fleet/activity"
	"github.com/spotworker/spotworker/internal/fleet/presence"
	"github.com/spotworker/spotworker/internal/queue"
)

// Worker is the last heartbeat of a worker. A worker that runs writes one every 15
// seconds, and a worker that ended cleanly has left a heartbeat with its last state.
type Worker struct {
	Name string `json:"name"`

	// VM is the name of its VM; empty if it is not known.
	VM string `json:"vm,omitzero"`

	// VMSize is the size of its VM, as in "Standard_D4as_v5", and Zone the number of its
	// availability zone; empty if they are not known, or the VM is in none.
	VMSize string `json:"vm_size,omitzero"`
	Zone   string `json:"zone,omitzero"`

	// State is the worker's state: "process" while it claims and runs jobs.
	State string `json:"state"`

	// Asked is an operator's request that keeps the worker from claiming: "quarantine",
	// "drain", "pause", "kinds" for jobs of some kinds, or nothing.
	Asked string `json:"asked,omitzero"`

	// Steered says that the worker reads the requests of operators.
	Steered bool

	// Version is the version of the worker's program.
	Version string `json:"version,omitzero"`

	// StartedAt is when its process started, by the worker's clock.
	StartedAt time.Time `json:"started_at,omitzero"`

	// Age is how old the heartbeat is, by the clock of the storage service, and Ran how long
	// the process had run when it wrote the heartbeat.
	Age time.Duration `json:"heartbeat_age_seconds"`
	Ran time.Duration

	// Queues are the names of the queues from which the worker claims jobs, and Kinds the
	// kinds that it has handlers for. They are empty if they are not known.
	Queues []string `json:"queues,omitempty"`
	Kinds  []string `json:"kinds,omitempty"`

	// Offers are the first words of the needs of states ([Job] has them as StateNeeds) that the
	// worker meets. They are empty if it has no such kinds.
	Offers []string

	// GPUs is how many GPUs of its machine jobs can have.
	GPUs int `json:"gpus,omitzero"`

	// Jobs is the number of jobs that the worker runs.
	Jobs int `json:"jobs"`

	// JobIDs are their ids, at most 1,024. Only [Client.Worker] returns them.
	JobIDs []string `json:"job_ids,omitempty"`

	// LogEnd is the end of the worker's own log, up to 64 KiB, if it has drained. Only
	// [Client.Worker] returns it.
	LogEnd string `json:"log_end,omitzero"`

	// LastEvent is the scheduled event that the worker handled last, such as the
	// eviction of its VM, and LastDrain how its last drain ended; nil if there was none.
	LastEvent *Event `json:"last_event,omitzero"`
	LastDrain *Drain `json:"last_drain,omitzero"`

	// Activity is the worker's activity in the last ten minutes; nil if it is not known.
	Activity *Activity

	// Findings are facts that the worker found and an operator should know; nil if it found
	// none.
	Findings *Findings
}

// Findings are facts that a worker found and an operator should know.
type Findings struct {
	// WithoutWorker are the jobs that wait because no live worker has a handler for their
	// kind, by kind, as far as this worker hides their messages at the moment. A last kind
	// "*" stands for more kinds.
	WithoutWorker []KindCount

	// WithoutMachine is the same for jobs whose state needs another machine than any live
	// worker has, as the snapshot of a program does.
	WithoutMachine []KindCount

	// TooLarge are the jobs that wait because they take more GPUs than the worker has. Another one
	// may have as many.
	TooLarge []GPUCount

	// SilentJobs is how many of its running jobs are silent for unusually long, and
	// SilentJob the id of the longest silent one.
	SilentJobs int
	SilentJob  string

	// Calls is how many small calls to storage the worker made in the last minute, SlowCalls
	// how many of them took more than a second, and FailedCalls how many were not served. Of
	// these DeniedCalls were refused for missing rights, ThrottledCalls because they came too
	// fast, and MissingCalls because there is no such queue or container.
	Calls, SlowCalls, FailedCalls             int
	DeniedCalls, ThrottledCalls, MissingCalls int

	// Trouble is what is wrong with the worker itself or its machine.
	Trouble Trouble

	// Earlier are earlier lengths of queues that the worker read.
	Earlier []QueueReading
}

// Trouble is what is wrong with a worker or its machine: for how long the metadata service has not
// answered (Blind), by how much the clock is ahead (Clock), the bytes for programs (ScratchFree of
// ScratchSize), another worker of the same name (Rival), runs in a row that ended soon after their
// start (Crashes), kinds whose circuit breakers are open (Broken, with commas between them), where
// programs' users reach the metadata service, so that none is started (Exposed), and which GPUs are
// broken and why (GPUs).
type Trouble = presence.Trouble

// KindCount is a number of jobs of a kind.
type KindCount = presence.KindCount

// GPUCount is a number of jobs of a kind that take so many GPUs each.
type GPUCount struct {
	Kind       string
	GPUs, Jobs int
}

// QueueReading is about how many messages a queue had at an earlier time. Its age is that when the
// heartbeat was written.
type QueueReading = presence.Reading

// Life is whether a worker runs.
type Life int

// The lives.
const (
	Alive  Life = iota // its heartbeat is fresh
	Silent             // its heartbeats stopped less than an hour ago, without a clean end
	Ended              // it ended, or its heartbeats stopped more than an hour ago
)

// String returns a word for people.
func (l Life) String() string { return [...]string{"alive", "silent", "ended"}[l] }

// forgotten is the age of a heartbeat after which its worker counts as ended.
const forgotten = time.Hour

// Life returns whether the worker runs, as its heartbeat shows. A worker whose VM is evicted
// stays in the state shutdown until the VM is gone, so that is an end too.
func (w Worker) Life() Life {
	switch {
	case w.State == "stopped" || w.Age > forgotten || w.State == "shutdown" && w.Age > presence.SilentAfter:
		return Ended
	case w.Age > presence.SilentAfter:
		return Silent
	}
	return Alive
}

// Activity is a worker's activity in the last ten minutes before its heartbeat, or since
// it started if that is less.
type Activity struct {
	// Slots is how many jobs it runs at once.
	Slots int

	// Handler, Around, Idle and Closed are the time of all slots together: in which a
	// handler ran; a job was claimed and no handler ran; the slot was free; and the
	// worker took no jobs.
	Handler, Around, Idle, Closed time.Duration

	// Kinds are the kinds whose jobs ran, by name. The last one may be "*", for kinds
	// that a heartbeat has no room for.
	Kinds []KindActivity
}

// KindActivity is the activity for the jobs of a kind.
type KindActivity struct {
	Kind string

	// Done counts jobs that were committed, and Failed runs of handlers that failed.
	Done, Failed int

	// Committed, HandedOver, FailedTime and Redone are the time of handlers that ended, by
	// its outcome. The time of Committed and HandedOver is kept: its result or its state
	// is recorded.
	Committed, HandedOver, FailedTime, Redone time.Duration

	// Durations are the run times of the jobs done, over all their deliveries, the
	// shortest first.
	Durations []DurationCount
}

// DurationCount is how many jobs ran for at most so long, and longer than the shorter ones
// beside it.
type DurationCount struct {
	UpTo  time.Duration
	Count int
}

// Event is a scheduled event of a VM.
type Event struct {
	ID          string    `json:"id"`
	Type        string    `json:"type"`            // as in Preempt, the eviction of a Spot VM
	Status      string    `json:"status,omitzero"` // Scheduled or Started
	NotBefore   time.Time // when the platform may begin; zero if it did not say
	Description string
	Action      string    `json:"action,omitzero"`  // how the worker responded
	SeenAt      time.Time `json:"seen_at,omitzero"` // by the worker's clock
}

// Drain is how the end of a worker's work went.
type Drain struct {
	Reason   string        `json:"reason"`
	EndedAt  time.Time     `json:"ended_at,omitzero"` // by the worker's clock
	Took     time.Duration `json:"seconds"`           // from the notice
	Budget   time.Duration // within which it had to end
	Jobs     int           `json:"jobs"`     // when it began
	Done     int           `json:"done"`     // finished in it
	Released int           `json:"released"` // handed over
	LeftOut  int           `json:"left_out"` // handed over without their last progress
	Left     int           `json:"left"`     // not handed over in time

	// Lost is the work of the jobs handed over that no record has: they repeat it.
	Lost time.Duration
}

// Workers returns the heartbeats of all workers, also of workers that have ended, in
// one call for each 5,000 of them.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	listed, err := c.stores.Workers.List(ctx)
	if err != nil {
		return nil, c.readable(err, toRead)
	}
	workers := make([]Worker, 0, len(listed))
	for _, l := range listed {
		workers = append(workers, workerOf(l))
	}
	return workers, nil
}

// Worker returns the heartbeat of one worker, with the ids of its jobs. The error is
// [ErrNoWorker] if there is none.
func (c *Client) Worker(ctx context.Context, name string) (Worker, error) {
	p, ok, err := c.stores.Workers.Read(ctx, name)
	switch {
	case err != nil:
		return Worker{}, c.readable(err, toRead)
	case !ok:
		return Worker{}, fmt.Errorf("worker %q: %w", name, ErrNoWorker)
	}
	return workerOf(p), nil
}

func workerOf(p presence.Listed) Worker {
	w := Worker{
		Name: p.Worker, VM: p.VM, VMSize: p.Size, Zone: p.Zone, State: p.State,
		Version: p.Program, StartedAt: p.StartedAt, Age: p.Age, Ran: p.At.Sub(p.StartedAt), Steered: p.Steered,
		Asked: p.Asked, Queues: p.TakesFrom, Kinds: p.Kinds, Offers: p.Offers, GPUs: p.GPUs, Jobs: p.Count, JobIDs: p.Jobs, LogEnd: p.LogEnd,
	}
	if e := p.LastEvent; e.ID != "" || e.Type != "" {
		w.LastEvent = &Event{ID: e.ID, Type: e.Type, Status: e.Status, NotBefore: e.NotBefore, Description: e.Description, Action: e.Action,
			SeenAt: e.SeenAt}
	}
	if d := p.LastDrain; !d.EndedAt.IsZero() {
		w.LastDrain = new(Drain(d))
	}
	if a := p.Activity; a.Slots > 0 {
		w.Activity = activityOf(a)
	}
	w.Findings = findingsOf(p.Findings)
	return w
}

// findingsOf returns nil for no findings.
func findingsOf(p presence.Findings) *Findings {
	f := Findings{
		WithoutWorker: p.Lacks, WithoutMachine: p.Unlike, Earlier: p.Readings, SilentJobs: p.Silent, SilentJob: p.SilentJob,
		Calls: p.Calls.Count, SlowCalls: p.Calls.Slow, FailedCalls: p.Calls.Failed, DeniedCalls: p.Calls.Denied,
		ThrottledCalls: p.Calls.Throttled, MissingCalls: p.Calls.Missing, Trouble: p.Trouble,
	}
	for _, k := range p.TooLarge {
		if kind, gpus := presence.CutGPUs(k.Kind); gpus > 0 {
			f.TooLarge = append(f.TooLarge, GPUCount{kind, gpus, k.Jobs})
		}
	}
	if len(f.WithoutWorker) == 0 && len(f.WithoutMachine) == 0 && len(f.TooLarge) == 0 && len(f.Earlier) == 0 &&
		f.SilentJobs == 0 && f.Calls == 0 && f.Trouble == (Trouble{}) {
		return nil
	}
	return &f
}

func activityOf(r activity.Report) *Activity {
	a := &Activity{Slots: r.Slots, Handler: r.Times.Handler, Around: r.Times.Around, Idle: r.Times.Idle, Closed: r.Times.Closed}
	for _, k := range r.Kinds {
		e := k.Efforts
		kind := KindActivity{
			Kind: k.Name, Done: k.Done, Failed: k.Failed, Committed: e.Committed, HandedOver: e.HandedOver, FailedTime: e.Failed, Redone: e.Redone,
		}
		for _, b := range k.Durations {
			kind.Durations = append(kind.Durations, DurationCount{UpTo: activity.Upper(b.Index), Count: b.Count})
		}
		a.Kinds = append(a.Kinds, kind)
	}
	return a
}

// Waited returns for how long the message at the front of one of the deployment's queues
// has been there, in one call; 0 if none is visible. name is the name of a [Queue].
func (c *Client) Waited(ctx context.Context, name string) (time.Duration, error) {
	queues := c.stores.AllQueues()
	i := slices.IndexFunc(queues, func(q *queue.Queue) bool { return q.Name() == name })
	if i < 0 {
		return 0, fmt.Errorf("queue %q is none of this deployment", name)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, frontWait, fmt.Errorf("it did not answer within %s", frontWait))
	defer cancel()
	waited, err := queues[i].FrontWaited(ctx)
	return waited, c.readable(err, toRead)
}

// Queues are the queues of a deployment.
type Queues struct {
	Jobs     Queue // jobs for any VM, all of Shards together
	First    Queue // jobs for any VM that are done before those of Jobs
	OnDemand Queue // jobs for VMs of regular priority
	Poison   Queue // jobs that were dead-lettered

	// Shards are the queues that the jobs for any VM are on: Jobs alone, unless the
	// deployment has several. Jobs are put over the first PutOver of them.
	Shards  []Queue
	PutOver int
}

// Queue is one storage queue.
type Queue struct {
	Name string

	// Exists says that there is such a queue.
	Exists bool

	// Messages is the number of its messages as the service counts them: approximately,
	// and including hidden messages, because a worker has the job or because it was put
	// with a delay.
	Messages int
}

// readShards reads how many queues of jobs there are.
func (c *Client) readShards(ctx context.Context) error {
	_, err := c.stores.Jobs.Read(ctx)
	if queueerror.HasCode(err, queueerror.QueueNotFound) {
		return nil
	}
	return err
}

// Queues counts the messages on the deployment's queues, in one call for each.
func (c *Client) Queues(ctx context.Context) (Queues, error) {
	s := c.stores
	var all Queues
	var main Queue
	err := count(ctx, []counted{
		{s.Queue.Name(), s.Jobs.Depth, &main}, // with it the number of the others
		{s.First.Name(), s.First.Depth, &all.First},
		{s.OnDemand.Name(), s.OnDemand.Depth, &all.OnDemand},
		{s.Poison.Name(), s.Poison.Depth, &all.Poison},
	})
	jobs := s.Jobs.All()
	all.Shards, all.PutOver = make([]Queue, len(jobs)), s.Jobs.Counts().Put
	all.Shards[0] = main
	if err == nil && len(jobs) > 1 {
		var others []counted
		for i, q := range jobs[1:] {
			others = append(others, counted{q.Name(), q.Depth, &all.Shards[i+1]})
		}
		err = count(ctx, others)
	}
	if err != nil {
		return Queues{}, c.failure(ctx, err, toRead)
	}
	all.Jobs = main
	for _, q := range all.Shards[1:] {
		all.Jobs.Messages += q.Messages
	}
	return all, nil
}

// counted is a queue whose messages are counted.
type counted struct {
	name  string
	depth func(context.Context) (int, error)
	to    *Queue
}

// countsAtOnce is how many queues are counted at once.
const countsAtOnce = 8

// count counts the messages of queues, some at once.
func count(ctx context.Context, queues []counted) error {
	errs := make([]error, len(queues))
	var group errgroup.Group
	group.SetLimit(countsAtOnce)
	for i, q := range queues {
		group.Go(func() error {
			n, err := q.depth(ctx)
			missing := queueerror.HasCode(err, queueerror.QueueNotFound)
			*q.to = Queue{Name: q.name, Exists: !missing, Messages: n}
			if !missing {
				errs[i] = err
			}
			return nil
		})
	}
	_ = group.Wait()
	return cmp.Or(errs...)
}
