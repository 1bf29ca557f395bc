package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/overview/detail"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// statusCommand shows the deployment at one moment.
type statusCommand struct {
	Check   bool          `help:"Examine the deployment instead, and say what to do." env:"-"`
	All     bool          `help:"With --check: also print what is in order." env:"-"`
	Watch   bool          `help:"Show it live, in the terminal, until q is pressed; r reads at once." env:"-"`
	Every   time.Duration `help:"With --watch: time between two reads, at least 1s." default:"5s" env:"-"`
	Timeout time.Duration `help:"Longest time to read it." default:"1m" env:"-"`
}

// Help is shown by status --help.
func (*statusCommand) Help() string {
	return `Lines that begin with ! are what to look at first; they also say what operators ask of the
workers, such as a pause. Waiting jobs are counted from the queues, about, since queues cannot be
searched; all other jobs by their records. The time left is an estimate from the job's own fraction
and its run time.

What slots, kinds and VMs did is that of the last 10 minutes before each worker's last heartbeat; a
? stands for a worker that does not say. P50, P95 and P99 are run times of
jobs in handlers, at most 19% too high. TO CLEAR is how long the messages that no worker runs yet
take if no more are put, at the rate at which the workers that take from the queue ended jobs; a
worker that takes from several queues counts for each. If a queue grew in the last minute, that is
said instead. KEPT and goodput are the part of the time of handlers of which the
result or the state is recorded.

A screen costs one call for each 5,000 jobs that have a record and for each 5,000 workers, one for
the heartbeat of each worker with running jobs (at most 16: of the jobs that have not saved for the
longest), one for each queue and one more for each with messages, and one for what operators ask;
with more than 5,000 jobs that is read only if a heartbeat reports something or no worker is alive,
and of two queues how long their oldest messages wait. What cannot be read is left out and named,
and the exit code is 1.

--check examines queues, containers and your roles on them, the clocks, and by their heartbeats the
workers: whether any is alive, their versions, whether they know their VM and follow the control
document, and what they report. It measures its own calls. Each finding that is not in order comes
with what to do. It changes nothing: whether you may change a queue or container is found out by
deleting what does not exist. Exit codes of --check: 0 no failure, perhaps warnings; 1 a failure:
jobs cannot be done or not be seen; 78 wrong flags.`
}

func (c *statusCommand) run(ctx context.Context, s *session) error {
	switch {
	case c.Check && c.Watch:
		return &cli.ConfigError{Err: errors.New("--check examines once: leave --watch out")}
	case c.All && !c.Check:
		return &cli.ConfigError{Err: errors.New("--all is for --check")}
	case c.Check:
		return c.check(ctx, s)
	case c.Watch:
		return c.watch(ctx, s)
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	early, erase := s.printer.draft()
	found, err := snapshot(ctx, deployment, c.Timeout, early)
	if err != nil {
		return err
	}
	erase()
	if s.printer.json {
		err = s.printer.line(statusLineOf(&found))
	} else {
		err = s.printer.lines(overview.Draw(found, s.printer.width, 0))
	}
	if err == nil && len(found.Faults) > 0 {
		err = errors.New("a part of the deployment could not be read; see above")
	}
	return err
}

// topCommand is status --watch.
type topCommand struct {
	Every time.Duration `help:"Time between two reads, at least 1s." default:"5s" env:"-"`
}

func (c *topCommand) run(ctx context.Context, s *session) error {
	return (&statusCommand{Every: c.Every}).watch(ctx, s)
}

// watch shows the deployment live.
func (c *statusCommand) watch(ctx context.Context, s *session) error {
	switch {
	case c.Every < time.Second:
		return &cli.ConfigError{Err: fmt.Errorf("--every is %s; it must be at least 1s", c.Every)}
	case s.printer.json:
		return &cli.ConfigError{Err: errors.New("--watch is for people: use status -o json")}
	case !s.printer.live():
		return &cli.ConfigError{Err: errors.New("--watch needs a terminal as input and output: use status")}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	read := func(ctx context.Context, early func(overview.Snapshot)) (overview.Snapshot, error) {
		return snapshot(ctx, deployment, time.Minute, early)
	}
	return overview.Watch(ctx, os.Stdin, os.Stdout, s.title(), c.Every, read)
}

// draft returns what shows queues and workers on a terminal while the jobs are read, and what removes
// them again.
func (p *printer) draft() (early func(overview.Snapshot), erase func()) {
	file, ok := p.out.(*os.File)
	if !ok || p.json || !cli.CanDraw(p.out) {
		return func(overview.Snapshot) {}, func() {}
	}
	drawn := 0
	early = func(part overview.Snapshot) {
		width, height, err := term.GetSize(int(file.Fd()))
		if err != nil || height < 3 {
			return
		}
		// What has scrolled away cannot be removed, and some terminals keep a whole screen that is cleared.
		lines := overview.Draw(part, width, height-2)
		if p.lines(lines) == nil {
			drawn = len(lines)
		}
	}
	return early, func() {
		if drawn > 0 {
			fmt.Fprintf(p.out, "\x1b[%dA\x1b[J", drawn)
		}
	}
}

// snapshot reads the deployment, with errors in words, see [overview.ReadEach].
func snapshot(ctx context.Context, deployment *client.Client, timeout time.Duration, early func(overview.Snapshot)) (
	overview.Snapshot, error,
) {
	ctx, cancel := withTimeout(ctx, timeout)
	defer cancel()
	found, err := overview.ReadEach(ctx, deployment, func(client.Job) {}, func(part overview.Snapshot) {
		part.Explain(azure.Explain)
		early(part)
	})
	found.Explain(azure.Explain)
	if err != nil {
		err = errors.New(azure.Explain(err))
	}
	return found, err
}

// title names the deployment.
func (s *session) title() string { return s.flags.Where() }

// errTimeout ends a command after its --timeout.
var errTimeout = errors.New("it took longer than --timeout allows")

func withTimeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, d, errTimeout)
}

// statusLine is the deployment, in the JSON output.
type statusLine struct {
	At       time.Time `json:"at"`
	Problems []string  `json:"problems"`

	// A part that could not be read is left out.
	Waiting *int                 `json:"waiting,omitempty"` // about
	Jobs    map[string]int       `json:"jobs,omitempty"`    // by status
	Done    *int                 `json:"done_last_hour,omitempty"`
	Queues  map[string]queueLine `json:"queues,omitempty"`
	Slots   *slotsLine           `json:"slots,omitempty"`
	Kinds   []kindLine           `json:"kinds,omitzero"`
	VMs     []vmLine             `json:"vms,omitzero"`
	Shards  []queueLine          `json:"shards,omitempty"` // where jobs are spread over several queues
	Workers []client.Worker      `json:"workers,omitzero"`
	Running []client.Job         `json:"running,omitzero"`
}

// queueLine is a queue, in the JSON output.
type queueLine struct {
	Name     string `json:"name"`
	Messages int    `json:"messages"` // about

	// Left out where they are not known, or no message is visible.
	Oldest  *float64 `json:"oldest_seconds,omitempty"`
	ToClear *float64 `json:"to_clear_seconds,omitempty"`
}

func statusLineOf(s *overview.Snapshot) statusLine {
	l := statusLine{At: s.At.UTC(), Problems: []string{}}
	for _, problem := range s.Problems() {
		l.Problems = append(l.Problems, plaintext.Line(problem))
	}
	if s.Has(overview.PartJobs) {
		l.Jobs, l.Done, l.Running = map[string]int{}, new(s.Jobs.DoneRecently), []client.Job{}
		for _, status := range overview.Statuses {
			l.Jobs[string(status)] = s.Jobs.ByStatus[status]
		}
		l.Running = append(l.Running, s.Jobs.Running...)
	}
	if s.Has(overview.PartQueues) {
		l.Queues = map[string]queueLine{}
		for name, q := range map[string]client.Queue{"jobs": s.Queues.Jobs, "first": s.Queues.First, "ondemand": s.Queues.OnDemand,
			"poison": s.Queues.Poison} {
			line := queueLine{Name: q.Name, Messages: q.Messages}
			if waited := s.Waits[q.Name]; waited > 0 {
				line.Oldest = new(waited.Seconds())
			}
			if left, ok := s.ToClear(q); ok {
				line.ToClear = new(left.Seconds())
			}
			l.Queues[name] = line
		}
		for _, q := range s.Queues.Shards {
			if len(s.Queues.Shards) > 1 {
				l.Shards = append(l.Shards, queueLine{Name: q.Name, Messages: q.Messages})
			}
		}
	}
	if s.Has(overview.PartWorkers) {
		did := s.Activity()
		l.Slots, l.Kinds, l.VMs = slotsLineOf(&did), kindLinesOf(&did), vmLinesOf(&did)
		l.Workers = []client.Worker{}
		l.Workers = append(l.Workers, s.Workers...)
		if l.Queues != nil {
			l.Waiting = new(s.Waiting())
		}
	}
	return l
}

// workersCommand lists workers.
type workersCommand struct {
	All     bool          `help:"Also those that have ended." env:"-"`
	Timeout time.Duration `help:"Longest time to read them." default:"1m" env:"-"`
}

// Help is shown by workers --help.
func (*workersCommand) Help() string {
	return `A worker writes a heartbeat every 15 seconds. One that is silent wrote none for 45 seconds
and did not end in good order: it died, or cannot reach the storage account. After an hour it counts
as ended.

It costs one call for each 5,000 heartbeats.`
}

func (c *workersCommand) run(ctx context.Context, s *session) error {
	deployment, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	workers, err := overview.Workers(ctx, deployment)
	if err != nil {
		return err
	}
	all := len(workers)
	if !c.All {
		workers = slices.DeleteFunc(workers, func(w client.Worker) bool { return w.Life() == client.Ended })
	}
	if s.printer.json {
		for _, w := range workers {
			if err := s.printer.line(w); err != nil {
				return err
			}
		}
		return nil
	}
	if len(workers) > 0 {
		if err := s.printer.lines(overview.WorkerTable(workers, time.Now()).Lines(s.printer.width)); err != nil {
			return err
		}
	}
	switch ended := all - len(workers); {
	case all == 0:
		s.printer.note("no worker has written a heartbeat")
	case ended > 0:
		s.printer.note("not shown: %d that ended; --all lists them too", ended)
	}
	return nil
}

// workerCommand shows one worker.
type workerCommand struct {
	Name    string        `arg:"" help:"The worker's name, as shown by workers, or its VM's name."`
	Log     bool          `help:"Print the end of the worker's own log, which it sends after a drain." env:"-"`
	Timeout time.Duration `help:"Longest time to read it." default:"1m" env:"-"`
}

// Help is shown by worker --help.
func (*workerCommand) Help() string {
	return `Shows the worker's last heartbeat with the ids of its jobs. It costs one call, or three with
the name of a VM. With --log it prints the last 64 KiB of the worker's log, if the worker has handed
over its jobs: an eviction deletes the log with its VM. A VM that dies without a notice sends none.`
}

func (c *workerCommand) run(ctx context.Context, s *session) error {
	deployment, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	found, err := deployment.Worker(ctx, c.Name)
	if errors.Is(err, client.ErrNoWorker) {
		found, err = c.ofVM(ctx, deployment, err)
	}
	if err != nil {
		return err
	}
	w := found
	switch {
	case s.printer.json:
		return s.printer.line(w)
	case c.Log && w.LogEnd == "":
		return fmt.Errorf("worker %s has sent no log: it has not drained, or died without a notice", w.Name)
	case c.Log:
		return s.printer.text(w.LogEnd)
	}
	return s.printer.pairs(detail.WorkerRows(w, time.Now()))
}

// ofVM returns the worker of the VM with the name that was given, or unknown if there is none.
// A VM can have several workers, and workers that ended.
func (c *workerCommand) ofVM(ctx context.Context, deployment *client.Client, unknown error) (client.Worker, error) {
	all, err := overview.Workers(ctx, deployment) // workers that are alive first
	if err != nil {
		return client.Worker{}, err
	}
	all = slices.DeleteFunc(all, func(w client.Worker) bool { return !strings.EqualFold(w.VM, c.Name) })
	if len(all) == 0 {
		return client.Worker{}, unknown
	}
	same := slices.DeleteFunc(slices.Clone(all), func(w client.Worker) bool { return w.Life() != all[0].Life() })
	if len(same) > 1 {
		var names []string
		for _, w := range same {
			names = append(names, w.Name)
		}
		return client.Worker{}, fmt.Errorf("VM %s has %d workers: %s", c.Name, len(same), strings.Join(names, ", "))
	}
	return deployment.Worker(ctx, all[0].Name)
}
