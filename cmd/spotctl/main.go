// Command spotctl operates a deployment: it shows its queues, jobs and workers, fetches
// results, cancels jobs, drains and pauses workers, replays and purges jobs that were
// dead-lettered, and requeues jobs whose messages were lost. Run it with --help for its
// commands.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/cmd/spotctl/internal/costs"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/cli/clientflags"
	"github.com/spotworker/spotworker/internal/cli/manual"
	"github.com/spotworker/spotworker/internal/overview"
	"github.com/spotworker/spotworker/internal/queue"
	"github.com/spotworker/spotworker/internal/text/plaintext"
	"github.com/spotworker/spotworker/internal/text/spelling"
)

// version is set by the linker, otherwise by main.
var version = cli.Devel

const description = `Operates a deployment of spotworker.

Flags for storage can also be set in the environment, as SPOTWORKER_ and the
flag's name (--prefix is SPOTWORKER_PREFIX). The storage account is
AZURE_STORAGE_CONNECTION_STRING, or --account with AZURE_CLIENT_ID.

Exit codes: 0 done, 2 plan --watch found something to change, 78 wrong flags or
configuration, 1 anything else.`

// flags are the command line.
type flags struct {
	Version kong.VersionFlag `help:"Print the version and exit." env:"-"`

	cli.Format
	cli.Storage

	Status  statusCommand  `cmd:"" help:"Show the deployment at one moment: queues, jobs, workers, evictions; or examine it (--check)."`
	Top     topCommand     `cmd:"" help:"The same as status --watch."`
	Web     webCommand     `cmd:"" help:"Show the same and more live, as a page in the browser."`
	Jobs    jobsCommand    `cmd:"" help:"List jobs."`
	Job     jobCommand     `cmd:"" help:"Show one job."`
	Logs    logsCommand    `cmd:"" help:"Print what a job printed and logged itself."`
	Result  resultCommand  `cmd:"" help:"Print the results of jobs."`
	Results resultsCommand `cmd:"" help:"Fetch the results of all jobs that are done, as lines of JSON or as files."`
	Outputs outputsCommand `cmd:"" help:"List or download the files that a job has stored for others."`
	Upload  uploadCommand  `cmd:"" help:"Store a file as a blob, for the inputs of jobs."`
	Wait    waitCommand    `cmd:"" help:"Wait until jobs have ended, and print their results."`
	Workers workersCommand `cmd:"" help:"List workers."`
	Worker  workerCommand  `cmd:"" help:"Show one worker."`

	Poison poisonCommands `cmd:"" help:"Jobs that were dead-lettered: list, show, replay or purge them."`

	Cancel cancelCommand `cmd:"" help:"Cancel jobs that wait or run."`

	Drain  drainCommand  `cmd:"" help:"Make workers hand over their jobs and idle."`
	Resume resumeCommand `cmd:"" help:"End drains, pauses and quarantines."`
	Pause  pauseCommand  `cmd:"" help:"Stop claiming on all workers, or all jobs of a kind."`

	Quarantine quarantineCommand `cmd:"" help:"Keep all work from VMs, also from workers that start there later."`

	Orphans orphansCommands `cmd:"" help:"Jobs whose messages were lost: list them, or put them on the queue again."`

	Shards shardsCommand `cmd:"" help:"Show the queues that jobs are spread over, or set how many there are."`

	Scale scaleCommand `cmd:"" help:"Make the number of VMs follow the queue, once: for a timer or a pipeline."`

	Prices pricesCommand `cmd:"" help:"Show what VMs cost in some regions, now and in the last 90 days, and how often they are evicted."`
	Cost   costCommand   `cmd:"" help:"Sum what jobs have cost, by kind and by day."`
	Plan   planCommand   `cmd:"" help:"Rank VM sizes and regions by what a useful hour costs, or compare what is deployed with now."`

	Clean cleanCommand `cmd:"" help:"Remove old jobs that are done or cancelled, with results, logs and outputs."`

	Man manCommand `cmd:"" help:"Print the manual page of spotctl."`

	command command
}

// manCommand prints the manual page.
type manCommand struct{ manual.Command }

func (c *manCommand) run(context.Context, *session) error { return c.Print() }

// pricesCommand shows what VMs cost.
type pricesCommand struct{ costs.Prices }

func (c *pricesCommand) run(ctx context.Context, s *session) error { return c.Run(ctx, s.costs()) }

// costCommand sums what jobs have cost.
type costCommand struct{ costs.Cost }

func (c *costCommand) run(ctx context.Context, s *session) error {
	session := s.costs()
	session.None = func(what string) { s.none(ctx, what, c.Kind) }
	return c.Run(ctx, session, func() (costs.Deployment, error) { return s.client() })
}

// planCommand ranks the VM sizes and regions that can be deployed.
type planCommand struct{ costs.Plan }

func (c *planCommand) run(ctx context.Context, s *session) error { return c.Run(ctx, s.costs()) }

// costs is the session of a command about costs.
func (s *session) costs() costs.Session {
	p := s.printer
	return costs.Session{
		Output: costs.Output{
			JSON: p.json, Width: p.width, Lines: p.lines, Note: p.note,
			Line: func(object any) error { return p.line(object) },
		},
		ClientID: s.flags.ClientID, Version: version,
	}
}

// command is one of the program's commands.
type command interface {
	run(ctx context.Context, s *session) error
}

// AfterApply records the chosen command. It is called by kong when all flags are set.
func (f *flags) AfterApply(ctx *kong.Context) (err error) {
	f.command, err = cli.Chosen[command](ctx)
	return err
}

// session is the context of a command: its flags and its output.
type session struct {
	printer *printer
	flags   *flags
	opened  *client.Client // nil opens the deployment of the flags
}

// none notes that nothing is selected, and that a kind which no worker has is probably misspelt.
func (s *session) none(ctx context.Context, what, kind string) {
	if kind != "" {
		if deployment, err := s.client(); err == nil {
			what += unknownKind(ctx, deployment, kind)
		}
	}
	s.printer.note("%s", what)
}

// unknownKind says that no worker has a kind, with the most similar one that a worker has.
func unknownKind(ctx context.Context, deployment *client.Client, kind string) string {
	workers, err := deployment.Workers(ctx)
	if err != nil {
		return ""
	}
	var known []string
	for _, w := range workers {
		known = append(known, w.Kinds...)
	}
	if slices.Contains(known, kind) || len(known) == 0 {
		return ""
	}
	if nearest := spelling.Nearest(kind, known); nearest != "" {
		return fmt.Sprintf("; no worker has kind %q: did you mean %q?", kind, nearest)
	}
	return fmt.Sprintf("; no worker has kind %q either", kind)
}

func main() {
	version = cli.Version(version)
	cli.Exit("spotctl", run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

func run(args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	var f flags
	vars := costs.Vars()
	vars["most_shards"] = strconv.Itoa(queue.MaxShards)
	vars["unasked"], vars["least_days"] = strconv.Itoa(cancelUnasked), strconv.Itoa(leastDays)
	vars["job_orders"], vars["job_statuses"] = overview.OrderNames, jobStatuses
	program := cli.Program{Name: "spotctl", Description: description, Version: version, Vars: vars}
	if done, err := program.Parse(&f, args, stdout); done || err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	s := &session{printer: newPrinter(&f, stdin, stdout, stderr), flags: &f}
	if where := f.Where(); where != "" && changes(f.command) {
		s.printer.note("deployment: %s", where)
	}
	return f.command.run(ctx, s)
}

// changes reports whether a command changes something in the account. Such a command names the
// account: it may be another one than its user thinks of.
func changes(c command) bool {
	switch c := c.(type) {
	case *cancelCommand, *drainCommand, *pauseCommand, *purgeCommand, *quarantineCommand, *replayCommand, *resumeCommand, *uploadCommand:
		return true
	case *cleanCommand:
		return c.Yes
	case *orphansRequeueCommand:
		return c.Yes
	case *scaleCommand:
		return !c.DryRun
	case *shardsCommand:
		return c.Number > 0
	case *webCommand:
		return c.Changes
	}
	return false
}

// client opens the deployment. It makes no call.
func (s *session) client() (*client.Client, error) {
	if s.opened != nil {
		return s.opened, nil
	}
	return clientflags.Open(&s.flags.Storage, parallelCalls, version, name())
}

// name is recorded as the last writer of records that are changed.
func name() string {
	host, err := os.Hostname()
	if err != nil {
		return "spotctl"
	}
	return "spotctl@" + host
}

// printer is the output of a command: results on out, messages for people on err. All text
// passes through its methods, which print printable characters only. Only raw does not.
type printer struct {
	in          *bufio.Reader
	out, err    io.Writer
	json        bool
	terminal    bool // whether out is a terminal
	width       int  // of the terminal in columns; 0 if out is not one, or its width is unknown
	interactive bool // whether questions can be asked
	bars        bool // whether a bar can be drawn on err
}

func newPrinter(f *flags, in io.Reader, out, err io.Writer) *printer {
	p := &printer{in: bufio.NewReader(in), out: out, err: err, json: f.WantsJSON()}
	p.terminal = cli.IsTerminal(out)
	if file, ok := out.(*os.File); ok && p.terminal {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil {
			p.width = width
		}
	}
	p.interactive = cli.IsTerminal(in) && cli.IsTerminal(err)
	p.bars = !p.json && cli.CanDraw(err)
	return p
}

// live reports whether a picture that changes can be shown.
func (p *printer) live() bool { return cli.CanDraw(os.Stdin) && cli.CanDraw(p.out) }

// lines prints lines.
func (p *printer) lines(lines []string) error { return p.text(strings.Join(lines, "\n") + "\n") }

// text prints text for people.
func (p *printer) text(text string) error {
	_, err := io.WriteString(p.out, plaintext.Block(text))
	return err
}

// Write prints text for people, for a [tabwriter.Writer].
func (p *printer) Write(text []byte) (int, error) { return len(text), p.text(string(text)) }

// raw prints bytes as they are: for out that is no terminal.
func (p *printer) raw(content []byte) error {
	_, err := p.out.Write(content)
	return err
}

// pairs prints names and values in two columns, without names that have no value.
func (p *printer) pairs(rows [][2]string) error {
	t := p.table()
	for _, row := range rows {
		if row[1] != "" {
			fmt.Fprintf(t, "%s\t%s\n", row[0], row[1])
		}
	}
	return t.Flush()
}

// ask asks a question and reports whether the answer is yes. An end of the input is
// a no.
func (p *printer) ask(question string, args ...any) bool {
	fmt.Fprint(p.err, plaintext.Message(fmt.Sprintf(question, args...)))
	answer, _ := p.in.ReadString('\n') // text that was typed before the end counts
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// note prints a remark for people.
func (p *printer) note(format string, args ...any) {
	fmt.Fprintln(p.err, plaintext.Message(fmt.Sprintf(format, args...)))
}

// line prints an object as a line of JSON, without HTML escaping. The fields of more, other
// objects, follow its own.
func (p *printer) line(v any, more ...any) error {
	text, err := cli.JSONLine(v, more...)
	if err != nil {
		return err
	}
	return p.raw(text)
}

// table returns a writer of tab-separated columns. The caller flushes it.
func (p *printer) table() *tabwriter.Writer { return tabwriter.NewWriter(p, 0, 0, 2, ' ', 0) }
