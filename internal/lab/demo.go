package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/spotworker/spotworker/internal/azure"
	"github.com/spotworker/spotworker/internal/emulator/storage"
)

// inputContainer holds the files that are hashed.
const inputContainer = "lab-files"

// buildLimit bounds the building of the programs, which on a machine that has
// never built them means the whole SDK.
const buildLimit = 5 * time.Minute

var (
	// ErrBroken says that the demo ran and a promise did not hold.
	ErrBroken = errors.New("the demo failed")

	errTimeLimit   = errors.New("the time limit is over")
	errInterrupted = errors.New("interrupted")
)

// demo is one run of the script.
type demo struct {
	Config
	*teller
	out    io.Writer
	folder string // of binaries and logs
	local  *Local
	ledger *Ledger
	fleet  *Fleet
	files  []File
	pace   pace
	number int         // of the last VM
	fail   func(error) // ends the run
	director
}

// Demo runs the script of `lab demo`: real files become digest jobs, real worker
// processes do them, VMs are taken away, and in the end it is counted what came
// of the jobs. What happens goes to out, and last the table, also when something
// failed. The error wraps [ErrBroken] if a promise did not hold or the time limit
// passed; the workers' logs are kept then, in a folder that out names.
//
// Demo ends every process that it started, in any case and before it returns.
func Demo(ctx context.Context, c Config, out io.Writer) (err error) {
	if err := c.Validate(); err != nil {
		return err
	}
	watched, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	d := &demo{
		Config: c, teller: newTeller(out), out: out, fail: cancel,
		director: director{pending: slices.Clone(c.Incidents), owed: map[string]debt{}},
	}
	if d.folder, err = os.MkdirTemp("", "spotworker-lab-"); err != nil {
		return err
	}
	err = d.run(watched)
	if ctx.Err() != nil {
		err = errInterrupted
	}
	return errors.Join(err, d.tidy(err))
}

// tidy removes what the run left in the temporary folder, but for the logs if
// somebody may want to read them.
func (d *demo) tidy(err error) error {
	failed := err != nil && !errors.Is(err, errInterrupted)
	if d.number == 0 || !failed && !d.Keep {
		return os.RemoveAll(d.folder)
	}
	d.say("The workers' logs are in %s.", d.folder)
	return os.RemoveAll(d.programFolder())
}

func (d *demo) programFolder() string { return filepath.Join(d.folder, "bin") }

// run prepares everything, plays the script and reports.
func (d *demo) run(ctx context.Context) (err error) {
	worker, producer, err := d.programs(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.TimeLimit, errTimeLimit)
	defer cancel()
	if d.local, err = StartLocal(LocalConfig{}); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.local.Close()) }()
	d.say("A local Azure is up on 127.0.0.1: storage and metadata service. Nothing leaves this machine.")
	names, err := azure.NamesFor(azure.DefaultPrefix, "")
	if err != nil {
		return err
	}
	d.ledger = NewLedger(d.local.Storage, names)
	d.fleet = NewFleet(d.fleetConfig(worker))
	if err := d.fill(ctx, &Producer{Path: producer, ConnectionString: d.local.ConnectionString}); err != nil {
		return err
	}
	unwatch := d.watch(ctx)
	played := d.play(ctx)
	closed := d.close(ctx, played)
	unwatch()
	if errors.Is(played, context.Canceled) {
		return played
	}
	return d.report(names, cmp.Or(played, closed))
}

// close ends the workers: politely when the script was played to its end.
func (d *demo) close(ctx context.Context, played error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), HandOver)
	defer cancel()
	if played != nil {
		cancel()
	}
	err := d.fleet.Close(ctx)
	if played == nil && err == nil {
		d.say("The workers were asked to end (SIGTERM), and did.")
	}
	return err
}

// programs returns worker and producer, built from this source unless told where
// they are.
func (d *demo) programs(ctx context.Context) (worker, producer string, err error) {
	if d.Binaries != "" {
		b, err := BinariesIn(d.Binaries)
		return b.Worker, b.Producer, err
	}
	d.say("Building worker and producer.")
	ctx, cancel := context.WithTimeoutCause(ctx, buildLimit, errTimeLimit)
	defer cancel()
	if err := os.Mkdir(d.programFolder(), 0o700); err != nil {
		return "", "", err
	}
	b, err := Build(ctx, d.programFolder())
	return b.Worker, b.Producer, err
}

func (d *demo) fleetConfig(worker string) FleetConfig {
	return FleetConfig{
		Worker: worker, ConnectionString: d.local.ConnectionString, Endpoint: d.local.Endpoint, Logs: d.folder,
		Args: []string{
			"--data-container=" + inputContainer,
			"--checkpoint-interval=" + d.CheckpointInterval.String(),
			fmt.Sprintf("--concurrency=%d", d.JobsAtOnce),
		},
		OnLine: d.ledger.OnLine,
		OnEnd: func(vm *VM, err error) {
			how := "exit status 0"
			if err != nil {
				how = err.Error()
			}
			d.fail(fmt.Errorf("%w: worker %s ended by itself (%s), see %s", ErrBroken, vm.Name, how, vm.LogFile))
		},
	}
}

// fill uploads the input and puts a job for each on the queue, and what else is
// to be there.
func (d *demo) fill(ctx context.Context, p *Producer) error {
	roots := d.Roots
	if len(roots) == 0 {
		roots = Roots(GoRoot(ctx))
	}
	var err error
	if d.files, err = Choose(roots, d.Files, d.FileSize); err != nil {
		return err
	}
	account, err := d.local.Account()
	if err != nil {
		return err
	}
	intoBatches(d.files)
	if err := Upload(ctx, account.Container(inputContainer), d.files); err != nil {
		return err
	}
	d.say("%s of real files uploaded, %s in all (%s). Hashing one of them is one job.",
		plural(len(d.files), "blob"), size(totalSize(d.files)), listFolders(d.files, roots))
	d.listen()
	return d.enqueue(ctx, p, account)
}

// listen lets the ledger see all that happens from here on, and limits the
// downloads.
func (d *demo) listen() {
	d.ledger.Expect(d.files)
	d.pace = paceFor(inputContainer, d.files, d.JobTime)
	d.local.Storage.OnResult(d.ledger.OnResult)
	d.local.Storage.OnCall(func(c storage.Call) storage.Fault {
		d.ledger.OnCall(c)
		return d.pace.fault(c)
	})
}

// report counts, prints the table and says whether the demo failed.
func (d *demo) report(names azure.Names, played error) error {
	facts := d.ledger.snapshot()
	findings := audit(&facts, endOf(d.local.Storage, names, &facts))
	findings.Workers = d.number
	report := NewReport(findings, d.settings())
	fmt.Fprintln(d.out)
	report.Write(d.out)
	switch n := report.Broken(); {
	case errors.Is(played, ErrBroken):
		return played
	case played != nil:
		return fmt.Errorf("%w: %w", ErrBroken, played)
	case n > 0:
		return fmt.Errorf("%w: %s broken", ErrBroken, plural(n, "promise was", "promises were"))
	}
	fmt.Fprintf(d.out, "every promise was kept, in %.1f s\n", time.Since(d.start).Seconds())
	return nil
}

func (d *demo) settings() Settings {
	s := Settings{Workers: d.Workers, JobsAtOnce: d.JobsAtOnce, Interval: d.CheckpointInterval, Bandwidth: d.pace.String()}
	for _, f := range d.files {
		s.Files += len(f.Parts)
	}
	return s
}
