package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/overview/detail"
	"github.com/spotworker/spotworker/internal/storage/azure"
	"github.com/spotworker/spotworker/internal/text/durations"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// cleanCommand removes the remains of jobs that have ended.
type cleanCommand struct {
	Older  cleanAge `name:"older-than" help:"${about_clean_days}" required:"" placeholder:"TIME" env:"-"`
	Status []string `help:"Only jobs with this status: ${enum}. Both without it." enum:"done,cancelled" placeholder:"STATUS" env:"-"`
	Kind   string   `help:"Only jobs of this kind." placeholder:"KIND" env:"-"`
	IDs    string   `name:"prefix-id" help:"Only jobs whose id starts with this." placeholder:"TEXT" env:"-"`
	Yes    bool     `help:"Remove them. Without it the command counts, and changes nothing." env:"-"`
}

const day = 24 * time.Hour

// leastDays is the least --older-than, and mostDays the largest, a hundred years.
const (
	leastDays = int(client.MinCleanAge / day)
	mostDays  = 36500
)

// cleanAge is a duration such as 14d, or a number of days.
type cleanAge time.Duration

// UnmarshalText implements [encoding.TextUnmarshaler].
func (a *cleanAge) UnmarshalText(text []byte) error {
	if days, err := strconv.Atoi(string(text)); err == nil {
		*a = cleanAge(time.Duration(max(min(days, mostDays+1), -1)) * day)
		return nil
	}
	d, err := durations.Parse(string(text))
	*a = cleanAge(d)
	return err
}

// Help is shown by clean --help.
func (*cleanCommand) Help() string {
	return `Removes the records of jobs that are done or cancelled, with the results, their logs and
their outputs, and outputs that no record names. Without --yes it says how many and how large, and
removes nothing. Jobs that wait, run or were dead-lettered are left alone ("spotctl poison purge" cancels
the latter), and so are those that somebody writes during the run, or of which the poison queue has
a message.

Removed is forgotten: a job that is put again with the same id runs again. A record younger than 8
days is not removed, since a message of its job may be hidden for 7 days and would start it again;
and none is while a queue has a message that was put longer ago than --older-than. Queues that this
deployment's names do not include are not looked at.

A deployment from infra/bicep also removes records, logs and outputs, by age (its parameter
retention). The command is for less, or without it.

After an interruption the command can be repeated. Exit codes: 0 done, 1 some could not be removed,
or nothing was, 78 wrong flags.`
}

func (c *cleanCommand) run(ctx context.Context, s *session) error {
	if age := time.Duration(c.Older); age < client.MinCleanAge || age > mostDays*day {
		return &cli.ConfigError{Err: fmt.Errorf("--older-than is %g days; it must be %d to %d: a message of a job that has ended can be "+
			"hidden for 7 days, and only the job's record keeps it from starting the job again", age.Hours()/24, leastDays, mostDays)}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	o := client.CleanOptions{
		OlderThan: time.Duration(c.Older), Kind: c.Kind, Prefix: c.IDs, DryRun: !c.Yes,
		Failed: func(id string, err error) {
			s.printer.note("%s: %s", plaintext.Line(id), plaintext.Line(azure.Explain(err)))
		},
	}
	for _, status := range c.Status {
		o.Status = append(o.Status, client.Status(status))
	}
	if s.printer.bars {
		o.Progress = func(r client.CleanReport) {
			s.printer.note("%d records read, %d to remove or removed", r.Read, r.Done+r.Cancelled)
		}
	}
	report, err := deployment.Clean(ctx, o)
	switch {
	case ctx.Err() != nil:
		err = errors.New("interrupted; what was begun is finished, and the command can be repeated")
	case err == nil && report.Failed > 0:
		err = fmt.Errorf("%d jobs could not be removed; the lines above say why, and the command can be repeated", report.Failed)
	case err != nil && report.Read == 0:
		return err
	}
	return s.printer.cleaned(report, c.Yes, err)
}

// cleanLine counts the remains that were removed, or would be, in the JSON output.
type cleanLine struct {
	Removed   bool   `json:"removed"` // false without --yes
	Records   int    `json:"records"` // read
	Done      int    `json:"done"`
	Cancelled int    `json:"cancelled"`
	Bytes     int64  `json:"result_bytes"`
	Logs      int    `json:"logs"`
	LogBytes  int64  `json:"log_bytes"`
	Outputs   int    `json:"outputs"`
	OutBytes  int64  `json:"output_bytes"`
	Changed   int    `json:"changed"`
	Poison    int    `json:"poison"`
	Failed    int    `json:"failed"`
	Skipped   int    `json:"skipped"`         // blobs that are no records
	Error     string `json:"error,omitempty"` // why the exit code is not 0
}

// cleaned prints the counts of a removal, or of a dry run. It returns err, or the error of
// printing.
func (p *printer) cleaned(r client.CleanReport, removed bool, err error) error {
	if p.json {
		l := cleanLine{
			Removed: removed, Records: r.Read, Done: r.Done, Cancelled: r.Cancelled, Bytes: r.Bytes, Logs: r.Logs, LogBytes: r.LogBytes,
			Outputs: r.Outputs, OutBytes: r.OutputBytes,
			Changed: r.Changed, Poison: r.Poison, Failed: r.Failed, Skipped: r.Skipped,
		}
		if err != nil {
			l.Error = azure.Explain(err)
		}
		return errors.Join(err, p.line(l))
	}
	what := "would be removed"
	if removed {
		what = "removed"
	}
	lines := []string{
		fmt.Sprintf("%s: %d jobs of %d records: %d done, %d cancelled, with %s of results", what, r.Done+r.Cancelled, r.Read, r.Done,
			r.Cancelled, detail.Size(r.Bytes)),
		fmt.Sprintf("%s: %d logs, %s", what, r.Logs, detail.Size(r.LogBytes)),
	}
	if r.Outputs > 0 {
		lines = append(lines, fmt.Sprintf("%s: %d outputs and lists of them, %s", what, r.Outputs, detail.Size(r.OutputBytes)))
	}
	for _, left := range []struct {
		n   int
		why string
	}{
		{r.Changed, "somebody wrote or removed them during the run"},
		{r.Poison, "the poison queue has a message of them: spotctl poison replay or purge"},
	} {
		if left.n > 0 {
			lines = append(lines, fmt.Sprintf("left alone: %d jobs, because %s", left.n, left.why))
		}
	}
	if r.Skipped > 0 {
		lines = append(lines, fmt.Sprintf("skipped: %d blobs in the container of records, because their names are not those of records",
			r.Skipped))
	}
	if r.PoisonUnseen {
		lines = append(lines, "the poison queue has more messages than were looked at: jobs of which it has one will be left alone")
	}
	if printErr := p.lines(lines); err == nil {
		err = printErr
	}
	if err == nil && !removed && r.Done+r.Cancelled+r.Logs+r.Outputs > 0 {
		p.note("nothing was removed: give --yes to remove them, which cannot be undone")
	}
	return err
}
