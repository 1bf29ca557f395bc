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
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// followPoll is how often logs --follow reads the job's record, and followHeartbeats at which
// of these times it also reads the worker's heartbeat: at every second.
const (
	followPoll       = 2 * time.Second
	followHeartbeats = 2
)

// logsCommand prints a job's log.
type logsCommand struct {
	ID      string        `arg:"" name:"id" help:"The job's id."`
	Tail    int           `short:"n" help:"Only the last so many lines; 0 is all that are kept." default:"0" env:"-"`
	Follow  bool          `short:"f" help:"Print what comes, until the job has ended." env:"-"`
	Timeout time.Duration `help:"Longest time to read it; 0s is 1m, and with --follow no limit." default:"0s" env:"-"`
}

// Help is shown by logs --help.
func (*logsCommand) Help() string {
	return `Prints what the job printed and logged itself: its program's output, and the lines of its
handler's logger. Of a long log the last 64 KiB are kept, and what is missing is said. It has the
lines up to the last checkpoint, also of a VM that is gone, and says which worker and delivery they
are from. The last lines of a running job, up to a KiB, come with its
worker's heartbeat and are at most 20 s old; lines before them that wait for the next checkpoint are
shown as left out. -o json has no lines of heartbeats.

Times are those of the worker's clock, in UTC. What a terminal could take for a command is replaced;
-o json has each line as it was, as text or else in base64.

It costs a call, or two for a log of more than a KiB, and two more for a running job. --follow costs
three calls every 4 s. A job without a record is waited for.

Exit codes: 0 printed, also if there is nothing; 1 no such job or no access; 78 wrong flags.`
}

func (c *logsCommand) run(ctx context.Context, s *session) error {
	if c.Tail < 0 {
		return &cli.ConfigError{Err: fmt.Errorf("--tail is %d; it must not be negative", c.Tail)}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	limit := c.Timeout
	if limit == 0 && !c.Follow {
		limit = time.Minute
	}
	ctx, cancel := withTimeout(ctx, limit)
	defer cancel()
	p := &logPrinter{printer: s.printer}
	if c.Follow {
		return c.follow(ctx, deployment, p)
	}
	log, err := deployment.Log(ctx, c.ID)
	if err != nil {
		return err
	}
	if log.Job.Status == client.StatusRunning && !s.printer.json {
		live, err := deployment.Live(ctx, c.ID)
		if err != nil {
			return err
		}
		log.Lines = append(log.Lines, detail.NewLines(log.Lines, live.Lines)...)
	}
	if len(log.Lines) == 0 {
		s.printer.note("%s", noLog(log.Job))
	}
	return p.print(c.last(log.Lines))
}

// noLog says why a job has no lines.
func noLog(j client.Job) string {
	text := "nothing is kept of this job's log: it has printed and logged nothing"
	if j.Status == client.StatusRunning {
		text += "; it is running, and the next heartbeat of its worker may have some"
	}
	return text
}

// last returns the last lines, as --tail says.
func (c *logsCommand) last(lines []client.LogLine) []client.LogLine {
	if c.Tail == 0 {
		return lines
	}
	from, left := len(lines), c.Tail
	for ; from > 0 && left > 0; from-- {
		if lines[from-1].LeftOut == 0 {
			left--
		}
	}
	return lines[from:]
}

// follow prints the lines that come until the job has ended.
func (c *logsCommand) follow(ctx context.Context, deployment *client.Client, p *logPrinter) error {
	f := &follower{logsCommand: c, deployment: deployment, to: p}
	for n := 0; ; n++ {
		read := deployment.LogEnd
		if n%followHeartbeats == followHeartbeats-1 && !p.printer.json {
			read = deployment.Live
		}
		end, err := read(ctx, c.ID)
		if ended, err := f.show(ctx, end, err); ended || err != nil {
			return err
		}
		select {
		case <-time.After(followPoll):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// follower prints the log of a job that runs.
type follower struct {
	*logsCommand
	deployment *client.Client
	to         *logPrinter
	written    time.Time // the record that was printed; zero for none
	waits      bool      // it has said that it waits for a record
}

// show prints the lines that came with an end of the log, or with the record that it has.
func (f *follower) show(ctx context.Context, end client.Log, err error) (ended bool, _ error) {
	p := f.to
	switch {
	case errors.Is(err, client.ErrNotFound) && f.written.IsZero():
		if !f.waits {
			p.printer.note("the job has no record yet: waiting for its first worker")
		}
		f.waits = true
		return false, nil
	case err != nil:
		return false, err
	case !end.Job.UpdatedAt.Equal(f.written) || end.Job.Status.Ended():
		return f.showStored(ctx)
	case end.Job.Live != nil:
		return false, p.print(end.Lines)
	}
	return false, nil
}

// showStored prints the lines that came with the job's record.
func (f *follower) showStored(ctx context.Context) (ended bool, _ error) {
	p := f.to
	log, err := f.deployment.Log(ctx, f.ID)
	if err != nil {
		return false, err
	}
	lines := log.Lines
	if f.written.IsZero() {
		lines = f.last(lines)
	}
	if err := p.print(lines); err != nil {
		return false, err
	}
	f.written = log.Job.UpdatedAt
	if ended = log.Job.Status.Ended(); ended {
		p.printer.note("the job is %s", log.Job.Status)
	}
	return ended, nil
}

// logPrinter prints the lines of one log, each once.
type logPrinter struct {
	printer *printer
	printed detail.LogEnd
}

// print prints the lines that come after the printed lines.
func (p *logPrinter) print(lines []client.LogLine) error {
	for _, l := range lines {
		l, begins, isNew := p.printed.Pass(l)
		if !isNew {
			continue
		}
		if err := p.one(l, begins); err != nil {
			return err
		}
	}
	return nil
}

// one prints a line. begins says that it is the first one of its delivery.
func (p *logPrinter) one(l client.LogLine, begins bool) error {
	if p.printer.json {
		return p.printer.line(l)
	}
	if begins && l.Delivery > 0 {
		heading := fmt.Sprintf("delivery %d on %s", l.Delivery, plaintext.Line(l.Worker))
		if err := p.printer.lines([]string{heading}); err != nil {
			return err
		}
	}
	return p.printer.lines([]string{textOf(l)})
}

// textOf is a line for people.
func textOf(l client.LogLine) string {
	switch {
	case l.LeftOut == 1:
		return "… 1 line left out"
	case l.LeftOut > 0:
		return fmt.Sprintf("… %s lines left out", grouped(l.LeftOut))
	}
	return fmt.Sprintf("%s %-6s  %s", l.At.UTC().Format("2006-01-02 15:04:05.000"), plaintext.Line(l.Source), plaintext.Line(l.Text))
}

// grouped is a number with commas between groups of three digits.
func grouped(n int) string {
	digits := strconv.Itoa(n)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// endLines is how many lines of its log job shows.
const endLines = 5

// rowsOfLog are the rows of the end of a log.
func rowsOfLog(log client.Log) (rows [][2]string) {
	lines := (&logsCommand{Tail: endLines}).last(log.Lines)
	for i, l := range lines {
		name := ""
		if i == 0 {
			name = "log"
		}
		rows = append(rows, [2]string{name, textOf(l)})
	}
	if len(lines) < len(log.Lines) || len(lines) > 0 && lines[0].LeftOut > 0 {
		rows = append(rows, [2]string{"", "all of it: spotctl logs " + log.Job.ID})
	}
	return rows
}
