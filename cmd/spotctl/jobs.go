package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/overview/detail"
	"github.com/spotworker/spotworker/internal/overview/table"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// selection are the flags that select jobs by their records.
type selection struct {
	Status []string      `help:"${about_selection_status}" enum:"${job_statuses}" aliases:"state" placeholder:"STATUS" env:"-"`
	Kind   string        `help:"Only jobs of this kind." placeholder:"KIND" env:"-"`
	Group  string        `help:"Only jobs of this group." placeholder:"NAME" env:"-"`
	IDs    string        `name:"prefix-id" help:"Only jobs whose id starts with this." placeholder:"TEXT" env:"-"`
	Newer  time.Duration `help:"Only jobs whose record was written within this time, as in 1h30m." placeholder:"TIME" env:"-"`
	Older  time.Duration `help:"Only jobs whose record was not written for this time." aliases:"older-than" placeholder:"TIME" env:"-"`
}

// filter returns the selection for the client, and a function for the conditions that the
// client cannot select by.
func (f *selection) filter() (client.Filter, func(client.Job) bool, error) {
	if f.Newer < 0 || f.Older < 0 {
		return client.Filter{}, nil, &cli.ConfigError{Err: errors.New("--newer and --older must not be negative")}
	}
	filter := client.Filter{Kind: f.Kind, Group: f.Group, Prefix: f.IDs}
	for _, status := range f.Status {
		filter.Status = append(filter.Status, client.Status(status))
	}
	// Ages are by the service's clock, which is in each job.
	return filter, func(j client.Job) bool {
		return (f.Newer == 0 || j.Age() <= f.Newer) && (f.Older == 0 || j.Age() >= f.Older)
	}, nil
}

// selectsAll reports whether no flag narrows the selection.
func (f *selection) selectsAll() bool {
	return len(f.Status) == 0 && f.Kind == "" && f.Group == "" && f.IDs == "" && f.Newer == 0 && f.Older == 0
}

// jobsCommand lists jobs.
type jobsCommand struct {
	selection
	Sort    string        `help:"${about_jobs_sort}" enum:"${job_orders}" default:"written" env:"-"`
	Reverse bool          `help:"Reverse the order." env:"-"`
	Limit   int           `help:"Most jobs to print; 0 is no limit." default:"0" env:"-"`
	Count   bool          `help:"Print how many jobs there are of each status, and no job." env:"-"`
	AtRisk  bool          `help:"Only jobs that may miss their deadline, or cannot meet it any more." env:"-"`
	Waiting bool          `help:"${about_jobs_waiting}" env:"-"`
	Timeout time.Duration `help:"Longest time to read them; 0s is no limit." default:"10m" env:"-"`
}

// Help is shown by jobs --help.
func (*jobsCommand) Help() string {
	return `Lists the jobs that have a record: all that a worker has claimed once, and all jobs of groups,
as long as records are kept. Another job that waits for its first worker is on the queue alone, which
cannot be searched: --waiting lists the jobs at the front of each queue, 32 at most, with their places.

It costs one call for each 5,000 records of the deployment, whatever is selected.`
}

func (c *jobsCommand) run(ctx context.Context, s *session) error {
	if c.Limit < 0 {
		return &cli.ConfigError{Err: fmt.Errorf("--limit is %d; it must not be negative", c.Limit)}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	if c.Waiting {
		return c.waiting(ctx, s, deployment)
	}
	jobs, err := s.find(ctx, deployment, &c.selection)
	if err != nil {
		return err
	}
	if c.Group != "" && len(jobs) == 0 {
		if _, err := deployment.Group(ctx, c.Group); err != nil {
			return err
		}
	}
	if len(jobs) == 0 && !c.Count && !s.printer.json {
		s.none(ctx, "no job with a record is selected", c.Kind)
		return nil
	}
	return c.print(s.printer, jobs)
}

// selects reports whether the filters of --waiting select a message.
func (c *jobsCommand) selects(w client.Waiting) bool {
	return (c.Kind == "" || w.Kind == c.Kind) && (c.Group == "" || w.Group == c.Group) && strings.HasPrefix(w.ID, c.IDs)
}

// waiting prints the jobs at the front of the queues.
func (c *jobsCommand) waiting(ctx context.Context, s *session, deployment *client.Client) error {
	if len(c.Status) > 0 || c.Newer > 0 || c.Older > 0 || c.Count || c.AtRisk {
		return &cli.ConfigError{Err: errors.New("--waiting shows messages: only --kind, --group and --prefix-id narrow it")}
	}
	jobs, err := deployment.Waiting(ctx)
	if err != nil {
		return err
	}
	seen := len(jobs)
	jobs = slices.DeleteFunc(jobs, func(w client.Waiting) bool { return !c.selects(w) })
	if s.printer.json {
		for _, w := range jobs {
			if err := s.printer.line(w); err != nil {
				return err
			}
		}
		return nil
	}
	t := table.New(
		table.Column{Name: "PLACE", Right: true}, table.Column{Name: "JOB", Least: 12}, table.Column{Name: "KIND", Drop: 1, Least: 6},
		table.Column{Name: "WAITED", Right: true}, table.Column{Name: "CLAIMED", Right: true, Drop: 3},
		table.Column{Name: "QUEUE", Drop: 2, Least: 8},
	)
	for _, w := range jobs {
		t.Add(strconv.Itoa(w.Place), w.ID, w.Kind, overview.Span(w.Waited), strconv.Itoa(w.Deliveries), w.Queue)
	}
	if t.Len() > 0 {
		if err := s.printer.lines(t.Lines(s.printer.width)); err != nil {
			return err
		}
	}
	queues, err := deployment.Queues(ctx)
	if err != nil {
		return err
	}
	s.printer.note("%d of the %d at the front of the queues; these have about %s messages with those that workers have", len(jobs), seen,
		overview.Number(queues.Jobs.Messages+queues.First.Messages+queues.OnDemand.Messages))
	return nil
}

// print prints the selected jobs, or how many there are.
func (c *jobsCommand) print(p *printer, jobs []client.Job) error {
	var punctuality overview.Punctuality
	for _, j := range jobs {
		punctuality.Add(j)
	}
	if c.AtRisk {
		jobs = slices.DeleteFunc(jobs, func(j client.Job) bool {
			risk, _ := j.Risk()
			return !risk.AtRisk() && risk != client.RiskLate
		})
	}
	if c.Count {
		return p.jobCounts(jobs)
	}
	overview.Sort(jobs, c.Sort)
	if c.Reverse {
		slices.Reverse(jobs)
	}
	shown := jobs
	if c.Limit > 0 {
		shown = jobs[:min(len(jobs), c.Limit)]
	}
	if err := p.jobs(shown); err != nil || p.json {
		return err
	}
	if len(shown) < len(jobs) {
		p.note("these are %d of %d jobs; a higher --limit prints more", len(shown), len(jobs))
	}
	if c.Group != "" {
		p.note("group %s: %d jobs: %s", c.Group, len(jobs), countsInWords(countJobs(jobs)))
	}
	if text := punctuality.String(); text != "" {
		p.note("%s; spotctl job ID says why", text)
	}
	return nil
}

// countJobs counts jobs by status.
func countJobs(jobs []client.Job) map[client.Status]int {
	counts := map[client.Status]int{}
	for _, j := range jobs {
		counts[j.Status]++
	}
	return counts
}

// countsInWords are the counts that are not 0, in the order of a job's life.
func countsInWords(counts map[client.Status]int) string {
	var parts []string
	for _, status := range overview.Statuses {
		if n := counts[status]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, status))
		}
	}
	return strings.Join(parts, ", ")
}

// jobCounts prints how many jobs there are of each status, and of all.
func (p *printer) jobCounts(jobs []client.Job) error {
	counts := countJobs(jobs)
	if p.json {
		return p.line(map[string]any{"jobs": len(jobs), "by_status": counts})
	}
	t := p.table()
	for _, status := range overview.Statuses {
		if n := counts[status]; n > 0 {
			fmt.Fprintf(t, "%s\t%d\n", status, n)
		}
	}
	fmt.Fprintf(t, "all\t%d\n", len(jobs))
	return t.Flush()
}

// jobStatuses are the values of --status.
const jobStatuses = "open,running,done,poison,cancelled,unknown"

// find returns the selected jobs.
func (s *session) find(ctx context.Context, deployment *client.Client, f *selection) (jobs []client.Job, err error) {
	filter, has, err := f.filter()
	if err != nil {
		return nil, err
	}
	skipped := 0
	filter.Skipped = func(string) { skipped++ }
	defer func() { s.printer.skipped(skipped) }()
	for j, err := range deployment.List(ctx, filter) {
		if err != nil {
			return nil, err
		}
		if has(j) {
			jobs = append(jobs, j)
		}
	}
	return jobs, nil
}

// skipped notes how many blobs in the container of records are no records.
func (p *printer) skipped(blobs int) {
	if blobs > 0 {
		p.note("skipped: %d blobs in the container of records, because their names are not those of records", blobs)
	}
}

// jobs prints a list of jobs.
func (p *printer) jobs(jobs []client.Job) error {
	if p.json {
		for _, j := range jobs {
			if err := p.line(j); err != nil {
				return err
			}
		}
		return nil
	}
	if len(jobs) == 0 {
		p.note("no job with a record is selected")
		return nil
	}
	return p.lines(overview.JobTable(jobs).Lines(p.width))
}

// jobCommand shows one job.
type jobCommand struct {
	ID      string        `arg:"" name:"id" help:"The job's id."`
	Timeout time.Duration `help:"Longest time to read it." default:"1m" env:"-"`
}

// Help is shown by job --help.
func (*jobCommand) Help() string {
	return `Shows what the job's record says: how often and by whom it was claimed, how often it was
interrupted or failed and why, how far it is, what it has stored, and the last lines of its log. For
a running job it also shows the progress in its worker's last heartbeat, which is written every 15 s
and may be newer. For a job that waits it shows what it waits for, by the heartbeats of all workers.
The start of its payload is shown while that is in a blob, or in a message at the front of a queue.
It costs one call, and up to five more for a job that has not ended well.`
}

func (c *jobCommand) run(ctx context.Context, s *session) error {
	deployment, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	log, err := deployment.Live(ctx, c.ID)
	if errors.Is(err, client.ErrNotFound) {
		return mayLackWorker(ctx, deployment, err)
	}
	if err != nil {
		return err
	}
	waits := ""
	if log.Job.Status == client.StatusOpen || log.Job.Status == client.StatusRunning && log.Job.Live == nil {
		if workers, err := overview.Workers(ctx, deployment); err == nil {
			waits = overview.WaitsFor(log.Job, workers)
		}
	}
	payload, ok, err := deployment.PayloadStart(ctx, log.Job)
	if err != nil {
		s.printer.note("the payload cannot be read: %v", err)
	}
	if !ok {
		payload.Size = -1
	}
	return s.printer.job(log, waits, payload)
}

// mayLackWorker returns the error that a job has no record, with the kinds of jobs that no
// live worker has, or has too few GPUs for: the job may be one of these.
func mayLackWorker(ctx context.Context, deployment *client.Client, notFound error) error {
	workers, err := overview.Workers(ctx, deployment)
	if err != nil {
		return notFound
	}
	for _, lack := range overview.WithoutWorker(workers) {
		notFound = fmt.Errorf("%w; it may be one of these: %s", notFound, plaintext.Line(lack.String()))
	}
	for _, text := range overview.TooLarge(workers) {
		notFound = fmt.Errorf("%w; it may be one of these: %s", notFound, plaintext.Line(text))
	}
	return notFound
}

// job prints a job with the start of its payload, of the size -1 if that is not known, and the end of its log.
func (p *printer) job(log client.Log, waitsFor string, payload client.PayloadStart) error {
	if p.json {
		var more struct {
			WaitsFor string           `json:"waits_for,omitempty"`
			Payload  *string          `json:"payload_start,omitempty"`
			Size     *int64           `json:"payload_bytes,omitempty"`
			LogEnd   []client.LogLine `json:"log_end,omitempty"`
		}
		if payload.Size >= 0 {
			more.Size = &payload.Size
		}
		if text, ok := detail.Text(payload); ok {
			more.Payload = &text
		}
		more.WaitsFor, more.LogEnd = waitsFor, log.Lines
		return p.line(log.Job, more)
	}
	rows := append(detail.JobRows(log.Job, time.Now()), rowsOfLog(log)...)
	return p.pairs(slices.Insert(rows, 3, [2]string{"waits for", plaintext.Line(waitsFor)}, [2]string{"payload", detail.Payload(payload)}))
}
