package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/labworker"
	"github.com/spotworker/spotworker/internal/lab/stage"
	"github.com/spotworker/spotworker/internal/lab/text"
	"github.com/spotworker/spotworker/internal/replay/lanes"
)

var (
	// ErrBroken reports that a promise was broken or the time limit exceeded.
	ErrBroken = errors.New("the demo failed")

	errTimeLimit   = errors.New("the time limit was exceeded")
	errInterrupted = errors.New("interrupted")
)

// demo is one run.
type demo struct {
	config   Config
	narrator *text.Narrator
	folder   string // of logs
	stage    *stage.Stage
	history  *history    // guarded by the stage's recorder
	vms      []*stage.VM // that are present, in the order of their start
	files    []lab.File
	pace     lab.Pace
	fail     func(error) // ends the run

	script script
}

// Run makes real files into digest jobs, has real worker processes do them, takes
// VMs away, and measures what happened to the jobs. It prints what happens and
// then the table of promises, also after a failure. The error wraps [ErrBroken]
// if a promise was broken or the time limit exceeded; the workers' logs are then
// kept in a folder whose name is printed.
//
// Run ends every process that it started before it returns.
func Run(ctx context.Context, c Config, out io.Writer) (err error) {
	cancelable, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	d := &demo{
		config: c, narrator: text.NewNarrator(out), fail: cancel, history: newHistory(),
		script: script{pending: slices.Clone(c.Incidents), lost: map[string]lostJob{}},
	}
	if d.folder, err = os.MkdirTemp("", "spotworker-lab-"); err != nil {
		return err
	}
	err = d.run(cancelable)
	if ctx.Err() != nil {
		err = errInterrupted
	}
	return errors.Join(err, d.removeFolder(err))
}

// removeFolder removes the temporary folder, but keeps the logs of a failed run.
func (d *demo) removeFolder(err error) error {
	failed := err != nil && !errors.Is(err, errInterrupted)
	if d.stage == nil || d.stage.Started() == 0 || !failed && !d.config.Keep {
		return os.RemoveAll(d.folder)
	}
	d.narrator.Say("The workers' logs are in %s.", d.folder)
	return nil
}

func (d *demo) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, d.config.TimeLimit, errTimeLimit)
	defer cancel()
	worker, err := os.Executable() // see [labworker.WorkerMain]
	if err != nil {
		return err
	}
	if d.stage, err = stage.Open(d.stageConfig(worker)); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.stage.Close()) }()
	d.narrator.Say("A local Azure is up on 127.0.0.1: storage and metadata service. Nothing leaves this machine.")
	if err := d.prepare(ctx); err != nil {
		if errors.Is(context.Cause(ctx), errTimeLimit) {
			return fmt.Errorf("%w: %w before all jobs were on the queue", ErrBroken, errTimeLimit)
		}
		return err
	}
	played := d.play(ctx)
	closed := d.closeFleet(ctx, played)
	if errors.Is(played, context.Canceled) {
		return played
	}
	return d.report(cmp.Or(played, closed))
}

// closeFleet ends the workers. They may drain if the script was played to its end.
func (d *demo) closeFleet(ctx context.Context, played error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lab.HandOver)
	defer cancel()
	if played != nil {
		cancel()
	}
	err := d.stage.Fleet.Close(ctx)
	if played == nil && err == nil {
		d.narrator.Say("The workers were asked to stop (SIGTERM), and did.")
	}
	return err
}

// visibility is how long a worker hides its messages.
const visibility = 30 * time.Second

func (d *demo) stageConfig(worker string) stage.Config {
	return stage.Config{
		Worker: worker, Logs: d.folder, Visibility: visibility,
		Args: []string{
			labworker.Command,
			"--data-container=" + lab.InputContainer,
			"--checkpoint-interval=" + d.config.CheckpointInterval.String(),
			fmt.Sprintf("--concurrency=%d", d.config.JobsAtOnce),
		},
		OnLine: d.onLine,
		OnEnd: func(vm *lab.VM, err error) {
			how := "exit status 0"
			if err != nil {
				how = err.Error()
			}
			d.fail(fmt.Errorf("%w: worker %s exited unexpectedly (%s), see %s", ErrBroken, vm.Name, how, vm.LogFile))
		},
	}
}

// prepare uploads the input and puts the jobs and the other messages.
func (d *demo) prepare(ctx context.Context) error {
	roots := d.config.Roots
	if len(roots) == 0 {
		roots = lab.Roots(ctx)
	}
	var err error
	if d.files, err = lab.Choose(roots, d.config.Files, d.config.FileSize); err != nil {
		return err
	}
	account, err := d.stage.Local.Account()
	if err != nil {
		return err
	}
	intoBatches(d.files)
	if err := lab.Upload(ctx, account.Container(lab.InputContainer), d.files); err != nil {
		return err
	}
	d.narrator.Say("%s of real files uploaded, %s in all (%s). Hashing one of them is one job.",
		text.Plural(len(d.files), "blob"), text.Size(lab.TotalSize(d.files)), lab.Folders(d.files, roots))
	d.pace = lab.PaceFor(d.files, d.config.JobTime)
	d.stage.Local.Storage.OnCall(d.pace.Fault)
	return d.enqueue(ctx, account)
}

// report prints the table, tells the story, and returns an error if the demo failed.
func (d *demo) report(played error) error {
	var report report
	var story lanes.Story
	d.look(func(h *history) {
		f := audit(h, endOf(d.stage.Local.Storage, d.stage.Names, h))
		report = newReport(f, d.config.CheckpointInterval, d.summary(f))
		story = tell(h, report)
	})
	fmt.Fprintln(d.narrator)
	report.Write(d.narrator)
	verdict := d.verdict(report, played)
	if d.config.Told == nil {
		return verdict
	}
	return errors.Join(verdict, d.config.Told(story))
}

// verdict prints that every promise was kept, or returns an error.
func (d *demo) verdict(report report, played error) error {
	switch n := report.Broken(); {
	case errors.Is(played, ErrBroken):
		return played
	case played != nil:
		return fmt.Errorf("%w: %w", ErrBroken, played)
	case n > 0:
		return fmt.Errorf("%w: %s broken", ErrBroken, text.Plural(n, "promise was", "promises were"))
	}
	fmt.Fprintf(d.narrator, "every promise was kept, in %.1f s\n", d.narrator.Elapsed().Seconds())
	return nil
}

// summary says what the demo consisted of.
func (d *demo) summary(f findings) string {
	c, files := d.config, 0
	for _, input := range d.files {
		files += len(input.Parts)
	}
	return fmt.Sprintf("%s, %s of %s, on %s; %s with notice, %s, %s; %s with %s at a time, a checkpoint every %s, events polled every "+
		"%s, downloads %s",
		text.Plural(f.Jobs, "job"), text.Size(f.Bytes), text.Plural(files, "real file"), text.Plural(d.stage.Started(), "VM"),
		text.Plural(f.Evictions, "eviction"), text.Plural(f.Kills, "kill"), text.Plural(f.Frozen.VMs, "freeze"),
		text.Plural(c.Workers, "worker"), text.Plural(c.JobsAtOnce, "job"), c.CheckpointInterval, pollInterval, d.pace)
}
