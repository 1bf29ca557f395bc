package trial

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/lab/text"
)

var (
	// ErrNotInterruptible reports that the program is not interruptible, or does not work
	// at all.
	ErrNotInterruptible = errors.New("the program is not interruptible")

	// ErrNotTried reports that the trial could not tell whether the program is
	// interruptible. The report says why.
	ErrNotTried = errors.New("whether the program is interruptible is not known")

	errTimeLimit   = errors.New("--timeout is over")
	errInterrupted = errors.New("interrupted; nothing was decided")
)

// ConfigError marks an error of the configuration, or of the program's file.
type ConfigError struct{ Err error }

func (e *ConfigError) Error() string { return e.Err.Error() }
func (e *ConfigError) Unwrap() error { return e.Err }

// trial is one run of `lab try`.
type trial struct {
	config   Config
	narrator *text.Narrator
	program  candidate
	payload  []byte
	folder   string
	recorder *recorder
	rig      *rig
	jobs     int
	report   Report

	firstCompared string // the folder of the first job's results, for --compare-with
}

// Run tries a program as c describes, and prints the events, the findings and their
// remedies. The error wraps [ErrNotInterruptible] if the program is not interruptible, and
// [ErrNotTried] if that is not known.
// The report is complete in both cases.
func Run(ctx context.Context, c Config, out io.Writer) (report Report, err error) {
	if err := c.Validate(); err != nil {
		return Report{}, &ConfigError{err}
	}
	t := &trial{config: c, narrator: text.NewNarrator(out), recorder: newRecorder(), payload: []byte(c.Payload)}
	if t.program, err = c.findProgram(); err != nil {
		return Report{}, &ConfigError{err}
	}
	if c.PayloadFile != "" {
		if t.payload, err = os.ReadFile(c.PayloadFile); err != nil {
			return Report{}, &ConfigError{fmt.Errorf("--payload-file: %w", err)}
		}
	}
	if t.folder, err = os.MkdirTemp("", "spotworker-lab-"); err != nil {
		return Report{}, err
	}
	if t.folder, err = filepath.EvalSymlinks(t.folder); err != nil { // as programs see it
		return Report{}, err
	}
	err = t.run(ctx)
	if ctx.Err() != nil {
		err = errInterrupted
	}
	return t.report, errors.Join(err, t.removeFolder(err))
}

// removeFolder removes the temporary folder, but keeps the logs if that was asked for.
func (t *trial) removeFolder(err error) error {
	if !t.config.Keep || errors.Is(err, errInterrupted) {
		return sandbox.RemoveTree(t.folder)
	}
	t.narrator.Say("The workers' logs and the kinds file are in %s.", t.folder)
	return sandbox.RemoveTree(filepath.Join(t.folder, "scratch"))
}

func (t *trial) run(ctx context.Context) (err error) {
	worker, err := os.Executable() // see [labworker.WorkerMain]
	if err != nil {
		return err
	}
	kindsFile, err := t.program.write(t.folder)
	if err != nil {
		return &ConfigError{err}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, t.config.Timeout, errTimeLimit)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if err := t.checkSnapshots(ctx); err != nil {
		return err
	}
	apart, unknown := t.outside(ctx)
	t.rig, err = openRig(ctx, t.folder, worker, kindsFile, t.recorder, apart, fail)
	if err != nil && errors.Is(context.Cause(ctx), errTimeLimit) {
		return t.conclude(observed{overdue: t.overdue()})
	}
	if err != nil {
		return err
	}
	t.narrator.Say("Trying %s as a job on a local Azure. Nothing leaves this machine.", &t.program)
	for _, argument := range t.program.absolute {
		t.narrator.Say("%s becomes an absolute path: a job's working directory is a folder of its own.", argument)
	}
	seen, played := t.play(ctx)
	closed := t.rig.close(played == nil && ctx.Err() == nil)
	seen.outsideUnknown, seen.snapshot = unknown, t.program.snapshot
	switch {
	case errors.Is(played, context.Canceled):
		return played
	case errors.Is(context.Cause(ctx), errTimeLimit):
		seen.overdue = t.overdue()
	case played != nil:
		return errors.Join(played, closed)
	}
	return errors.Join(t.conclude(seen), closed)
}

// overdue says that --timeout is over.
func (t *trial) overdue() string {
	return fmt.Sprintf("the trial did not end within %s", t.config.Timeout)
}

// conclude prints the report, and returns the error that goes with it.
func (t *trial) conclude(seen observed) error {
	t.report = judge(t.config, t.program.String(), seen)
	t.report.Seconds = seconds(t.narrator.Elapsed())
	fmt.Fprintln(t.narrator)
	t.report.write(t.narrator)
	switch {
	case t.report.isUntried():
		return fmt.Errorf("%w: %s", ErrNotTried, t.report.reason())
	case !t.report.Interruptible:
		return fmt.Errorf("%w: %s", ErrNotInterruptible, t.report.reason())
	}
	return nil
}

// observed holds the observations of a trial.
type observed struct {
	plain          []*course // undisturbed
	evicted        *course   // nil if it was not needed
	every          time.Duration
	outsideUnknown string // why files outside of the job's folder were not observed; empty if they were
	haste          int    // how often the evicted job was done before an eviction took effect, and put again
	gaveUp         string // why the evicted job was not brought to its end; empty if it was
	overdue        string // why there was not enough time; empty if there was
	snapshot       bool   // the program is frozen
}

const (
	// tooShort is the time of a program that is not worth saving.
	tooShort = time.Second

	// unhurried is how much longer than undisturbed an evicted job may take, once it is
	// left alone.
	unhurried = 3
	patience  = 20 * time.Second

	// mostHaste is how often a job that was done before its first eviction took effect is put
	// again: a machine may have been slower when the program ran undisturbed. Each time halves
	// the time to the eviction.
	mostHaste = 2
)

// play runs the jobs.
func (t *trial) play(ctx context.Context) (seen observed, err error) {
	if err := t.rig.newVM(); err != nil {
		return seen, err
	}
	for n := range 2 {
		c, err := t.undisturbed(ctx, n)
		seen.plain = append(seen.plain, c)
		if err != nil {
			return seen, err
		}
		if !c.Done {
			return seen, nil // it does not work at all
		}
		if n == 0 && c.took()*4 > t.config.Timeout {
			seen.overdue = fmt.Sprintf("one run takes %s, and a trial some five times that", text.Duration(c.took()))
			return seen, nil
		}
	}
	if differ(t.config, seen.plain[0], seen.plain[1]) != "" {
		return seen, nil // nothing could be compared
	}
	return seen, t.evictedInTime(ctx, &seen)
}

// evictedInTime runs the program with evictions. If it is done before the first one takes effect, it
// runs again and is evicted earlier.
func (t *trial) evictedInTime(ctx context.Context, seen *observed) error {
	for ; ; seen.haste++ {
		err := t.evicted(ctx, seen)
		if err != nil || ctx.Err() != nil || t.config.Every != 0 || seen.usual() < tooShort || seen.haste == mostHaste {
			return err
		}
		again := false
		t.recorder.look(func(c *course) { again = c.Done && seen.wasTooLate() })
		if !again {
			return nil
		}
		t.narrator.Say("It was done before its first eviction took effect, and is put again, to be evicted earlier.")
	}
}

// undisturbed runs the program to its end. A program that is frozen takes snapshots in the first run,
// for their figures, and none in the second one, so that these can be compared.
func (t *trial) undisturbed(ctx context.Context, n int) (*course, error) {
	c, err := t.put(ctx, [...]string{t.program.kind, t.program.reference()}[n])
	if err != nil {
		return c, err
	}
	t.await(ctx, func(c *course) bool { return !c.Ended.IsZero() })
	err = t.settle(ctx, c)
	if ctx.Err() != nil {
		return c, context.Cause(ctx)
	}
	if err != nil {
		return c, err
	}
	which := [...]string{"Undisturbed", "Undisturbed again"}[n]
	if n > 0 && t.program.snapshot {
		which += ", without snapshots"
	}
	if !c.Done {
		t.narrator.Say("%s: it failed.", which)
		return c, nil
	}
	saves := c.saves()
	t.narrator.Say("%s: done in %s, with %s.", which, text.Duration(c.took()), text.Plural(len(saves), "checkpoint"))
	return c, nil
}

// settle waits for the remains of an ended program, and gets its result.
func (t *trial) settle(ctx context.Context, c *course) error {
	if c.Done {
		c.Result, _ = t.rig.client.Result(ctx, t.jobID())
		c.Outputs = t.outputs(ctx)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // its program may run
	}
	for _, r := range c.Runs {
		m := t.rig.vms[r.VM]
		if m != nil && r.Strike == nil {
			files := t.rig.outside.files(m.PID())
			t.recorder.see(func() { r.Outside = files })
		}
		if m == nil || len(processesOf(m.scratch)) == 0 { // of a program that ended at once no stray was seen
			continue
		}
		sleep(ctx, survivorsAfter)
		left := m.sweep()
		t.recorder.see(func() { r.Outlive = left })
	}
	return t.compareWith(ctx, c)
}

// outputs returns the stored outputs of the last job.
func (t *trial) outputs(ctx context.Context) map[string]string {
	files, err := t.rig.client.Outputs(ctx, t.jobID())
	if err != nil {
		return nil
	}
	stored := map[string]string{}
	for _, f := range files {
		stored[f.Path] = f.SHA256
	}
	return stored
}

func (t *trial) jobID() string { return fmt.Sprintf("try-%d", t.jobs) }

// put puts another job.
func (t *trial) put(ctx context.Context, kind string) (*course, error) {
	t.jobs++
	c := t.recorder.begin()
	_, err := t.rig.client.Put(ctx, client.Spec{ID: t.jobID(), Kind: kind, Payload: t.payload})
	return c, err
}

// evicted runs the program again, and takes one VM after another from it.
func (t *trial) evicted(ctx context.Context, seen *observed) error {
	usual := seen.usual()
	seen.every = cmp.Or(t.config.Every, everyFor(usual>>seen.haste, t.config.Evictions))
	evictions := t.config.Evictions
	if usual < tooShort {
		evictions = 1
	}
	c, err := t.put(ctx, t.program.kind)
	seen.evicted = c
	if err != nil {
		return err
	}
	for n := 0; n < evictions; n++ {
		var s strike
		t.recorder.look(func(*course) { s = seen.strikeFor(n) })
		m, err := t.next(ctx, seen, n, s)
		if err != nil || m == nil {
			return t.last(ctx, seen, err)
		}
		if err := t.rig.newVM(); err != nil { // where the job continues
			return err
		}
		if err := t.strike(ctx, m, s); err != nil {
			return context.Cause(ctx)
		}
		var struck *programRun
		repeats := false // it starts from the beginning each time
		t.recorder.look(func(c *course) {
			struck = t.recorder.last(m.name)
			repeats = seen.onlyRepeats() && c.Ended.IsZero() && (n > 0 || evictions == 1 || !strings.Contains(struck.Exit, "signal"))
		})
		t.narrator.Say("%s", t.tell(n+1, m.name, struck))
		if repeats {
			return nil
		}
	}
	return t.last(ctx, seen, nil)
}

// usual is how long the program takes undisturbed.
func (o *observed) usual() time.Duration {
	return min(o.plain[0].took(), o.plain[len(o.plain)-1].took())
}

// savedNothing reports whether the program has saved nothing so far, neither undisturbed
// nor when it was stopped.
func (o *observed) savedNothing() bool {
	return len(o.plain[0].saves()) == 0 && len(o.evicted.saves()) == 0
}

// onlyRepeats reports whether a program that saves nothing starts from the beginning each
// time: it has no outputs either that it could skip.
func (o *observed) onlyRepeats() bool { return o.savedNothing() && len(o.plain[0].Outputs) == 0 }

// everyFor returns the time between two evictions for a program that takes so long.
func everyFor(usual time.Duration, evictions int) time.Duration {
	every := usual / time.Duration(evictions+1)
	return min(max(every, shortestEvery), longestEvery)
}

// longestEvery is the longest time between two evictions, unless another is configured.
const longestEvery = 10 * time.Second

// next waits until the program has run for long enough on some VM, and returns that VM;
// nil if the job is over before.
func (t *trial) next(ctx context.Context, seen *observed, n int, s strike) (*machine, error) {
	m, began := t.awaitStart(ctx)
	if m == nil || ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	wait := seen.every
	switch s {
	case notice, cutOff:
		wait -= min(noticeLag, wait/2)
	case stop:
		nothing := false
		t.recorder.look(func(*course) { nothing = seen.savedNothing() })
		if nothing {
			wait = max(wait, seen.usual()>>seen.haste*time.Duration(5+2*n)/10)
		}
	default:
	}
	t.awaitRun(ctx, time.Until(began.Add(wait)), func(*programRun) bool { return false })
	if first := firstSign(seen.plain[0]); first > 0 && (n == 0 || t.config.Every == 0) {
		// A slow machine must not make a program that saves look like a program that does not.
		var sign time.Time
		t.awaitRun(ctx, time.Until(began.Add(2*wait+3*first)), func(now *programRun) bool { sign = now.FirstSign; return !sign.IsZero() })
		if s.isSudden() || s == midSave { // only the records are left of it
			t.awaitRun(ctx, time.Until(sign.Add(2*checkpointInterval)), func(*programRun) bool { return false })
		}
	}
	over := false
	t.recorder.look(func(c *course) { over = !c.Ended.IsZero() || !c.Runs[len(c.Runs)-1].Ended.IsZero() })
	if over || ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return m, nil
}

// awaitStart waits for the next start of the program, and returns where and when it was;
// nil if the job is over.
func (t *trial) awaitStart(ctx context.Context) (m *machine, began time.Time) {
	t.await(ctx, func(c *course) bool {
		if !c.Ended.IsZero() || len(c.Runs) == 0 {
			return !c.Ended.IsZero()
		}
		now := c.Runs[len(c.Runs)-1]
		if now.Started.IsZero() || !now.Ended.IsZero() {
			return false
		}
		m, began = t.rig.vms[now.VM], now.Started
		return m != nil
	})
	return m, began
}

// firstSign is how long a job took to its first checkpoint or progress; 0 if it had none.
func firstSign(c *course) time.Duration {
	if first := c.Runs[0]; !first.FirstSign.IsZero() {
		return first.FirstSign.Sub(first.Started)
	}
	return 0
}

// awaitRun waits for at most that long until the last run has ended or is as wanted.
func (t *trial) awaitRun(ctx context.Context, limit time.Duration, wanted func(now *programRun) bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t.await(ctx, func(c *course) bool {
		now := c.Runs[len(c.Runs)-1]
		return !c.Ended.IsZero() || !now.Ended.IsZero() || wanted(now)
	})
}

// last leaves the evicted job alone until it is over.
func (t *trial) last(ctx context.Context, seen *observed, err error) error {
	if err != nil {
		return err
	}
	c := seen.evicted
	limit := unhurried*max(seen.plain[0].took(), seen.plain[1].took()) + patience
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	t.await(waiting, func(c *course) bool { return !c.Ended.IsZero() })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	ended := false
	t.recorder.look(func(c *course) { ended = !c.Ended.IsZero() })
	if !ended {
		seen.gaveUp = fmt.Sprintf("it did not end within %s, although it was left alone", text.Duration(limit))
		t.narrator.Say("It is left alone, and does not end within %s.", text.Duration(limit))
		return nil
	}
	if err := t.settle(ctx, c); err != nil {
		return err
	}
	if !c.Done {
		t.narrator.Say("It failed when it was started again.")
		return nil
	}
	t.narrator.Say("Done, after %s of work on %s.", text.Duration(c.took()), text.Plural(len(c.Runs), "VM"))
	return nil
}

// await waits until the job's record is as wanted, a worker has failed, or ctx has ended.
func (t *trial) await(ctx context.Context, wanted func(c *course) bool) {
	for {
		ok := false
		changed := t.recorder.look(func(c *course) { ok = wanted(c) })
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
