package program

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/spotworker/spotworker/internal/host/resource"
	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/program/command"
	"github.com/spotworker/spotworker/internal/program/printed"
	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/internal/program/snapshot/machine"
	"github.com/spotworker/spotworker/internal/program/tree"
	"github.com/spotworker/spotworker/internal/retry"
	"github.com/spotworker/spotworker/job"
)

// noticeGrace is how long to wait for a notice after a signal of unknown origin
// has ended a program: an eviction may explain it.
const noticeGrace = 2 * time.Second

// Handler runs a command for each job of a kind.
type Handler struct {
	kind    Kind
	scratch *scratch.Root
	groups  *tree.Groups // nil for none
	tokens  Granter
	kills   *resource.MemoryKills // nil for none
	log     *slog.Logger

	// backOffDelay is how long a job that this machine cannot run keeps its slot.
	backOffDelay time.Duration

	// noticeGrace is how long to wait for a notice after a signal.
	noticeGrace time.Duration

	notices notices // of jobs that this machine cannot run

	hashes machine.Hashes // of programs and libraries
	unfit  unfit
}

// Granter grants a program access tokens.
type Granter interface {
	// Grant returns an endpoint that serves tokens for these resources to a client
	// with the secret, until revoke is called.
	Grant(resources []string) (endpoint, secret string, revoke func())
}

// NewHandler returns the handler of a kind, with its limits. Its jobs have their
// folders in the scratch folder, each program has a control group if there are groups, the
// output of their programs goes to log, and kills counts programs that are killed because memory
// ran out. Only a kind with [Kind.Tokens] needs tokens.
func NewHandler(k Kind, folders *scratch.Root, groups *tree.Groups, tokens Granter, kills *resource.MemoryKills,
	log *slog.Logger) job.Handler {
	h := job.WithLimits(&Handler{kind: k, scratch: folders, groups: groups, tokens: tokens, kills: kills, log: log,
		backOffDelay: backOffDelay, noticeGrace: noticeGrace}, k.Limits)
	switch {
	case k.Outputs != nil:
		h = job.WithOutputs(h, k.Outputs.Limits)
	case k.ResultStdout:
		h = job.WithOutputs(h, job.OutputLimits{})
	}
	return h
}

// Run implements [job.Handler]. The job's folder exists until its last checkpoint
// has been recorded.
func (h *Handler) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	if err := j.CheckVersion(h.kind.stateVersions()...); err != nil {
		return nil, err
	}
	log := h.log.With("job_id", j.ID, "kind", j.Kind)
	k, files, err := h.kind.ofJob(j)
	if err != nil {
		return nil, err
	}
	devices, leave := k.Pool.Join(j.ID)
	defer leave() // the program has ended
	if len(devices) < k.GPUs {
		return nil, unavailable(fmt.Errorf("the job has %d of %d GPUs", len(devices), k.GPUs))
	}
	f, err := newFolder(h.scratch, k)
	if err != nil {
		return nil, h.notStarted(ctx, log, nil, fmt.Errorf("make the job's folder: %w", err))
	}
	j.Cleanup(func() { h.scratch.Discard(f.Folder, log) })
	f.gpus = devices
	output, err := h.prepare(ctx, j, k, f, files)
	if err != nil {
		return nil, h.notStarted(ctx, log, f, err)
	}
	if len(h.kind.Tokens) > 0 {
		var revoke func()
		f.tokenEndpoint, f.tokenSecret, revoke = h.tokens.Grant(h.kind.Tokens)
		defer revoke()
	}
	r := newRun(j, k, f, output, log)
	if r.stdout, err = openStdout(ctx, k, j, f); err != nil {
		return nil, h.notStarted(ctx, log, f, &fromStorage{fmt.Errorf("continue the standard output: %w", err)})
	}
	end, err := h.runProgram(ctx, r)
	if err != nil {
		return nil, err
	}
	result, err := r.conclude(ctx, end, h.noticeGrace)
	if err != nil && !job.IsInterrupted(err) && !job.IsPermanent(err) {
		if missing := h.kind.missing(); missing != nil {
			return nil, h.backOff(ctx, log, fmt.Errorf("%w; %w", missing, err))
		}
	}
	return result, err
}

// prepare fills a job's folder, and opens the folder of its outputs.
func (h *Handler) prepare(ctx context.Context, j *job.Job, k *Kind, f *folder, files []command.File) (*outputFolder, error) {
	if err := f.User.Do(func() error { return f.fill(ctx, j) }); err != nil {
		return nil, explainFill(err)
	}
	if err := f.giveInputs(ctx, j, h.scratch, placed(files)); err != nil {
		return nil, fmt.Errorf("give the program its inputs: %w", err)
	}
	output, err := openOutputs(ctx, k, j, f)
	if err != nil {
		return nil, &fromStorage{err}
	}
	if k.FromMessage {
		err = f.placeFiles(ctx, j, files)
	}
	if err == nil && len(files) > 0 {
		err = output.skipPresent()
	}
	return output, err
}

// runProgram runs a program to its end.
func (h *Handler) runProgram(ctx context.Context, r *programRun) (end ended, err error) {
	r.job.Cleanup(r.collector.close)
	if r.own, err = openOwnFiles(r.kind, r); err != nil {
		return end, h.notStarted(ctx, r.log, r.folder, fmt.Errorf("look for the program's checkpoint files: %w", err))
	}
	cmd, err := h.command(r)
	if err != nil {
		return end, err
	}
	out := printed.New(ctx, r.log)
	if r.stdout != nil {
		out.Copy = r.stdout
	}
	if r.snapshots, err = openSnapshots(r.kind, r, cmd); err != nil {
		return end, h.backOff(ctx, r.log, err)
	}
	defer r.snapshots.close()
	limits := h.limits(r.folder.User)
	limits.GPUs = h.kind.visible(r.folder.gpus)
	if r.program, err = tree.Start(cmd, limits, h.groups, r.folder.User, out); err != nil {
		return end, h.notStarted(ctx, r.log, r.folder, fmt.Errorf("the command cannot be started: %w", err))
	}
	if err := r.snapshots.begin(ctx); err != nil {
		r.program.Kill()
		<-r.program.Exited()
		out.Finish()
		return end, h.notBegun(ctx, r, err)
	}
	r.beginSaves()
	kills := h.kills.Recent()
	end = r.supervise(ctx)
	if end.exit.IsKill() {
		end.oomKills = oomKillsSince(kills)
	}
	if end.isMemoryKill() {
		h.kills.Add()
	}
	end.stderrTail = out.Finish()
	if !h.scratch.Contains(r.folder.Dir) {
		return end, unavailable(errors.New("the job's folder was removed from outside while its program ran"))
	}
	return end, nil
}

// command returns the command for a job.
func (h *Handler) command(r *programRun) (*exec.Cmd, error) {
	k, f := r.kind, r.folder
	argv, environment := k.Command, environ(k, r.job, f, os.LookupEnv)
	switch {
	case k.FromMessage:
		program, err := findMessageProgram(f, argv[0], environment)
		if err != nil {
			return nil, err
		}
		argv = append([]string{program}, argv[1:]...)
	case f.resumes && len(k.ResumeCommand) > 0:
		argv = k.ResumeCommand
	}
	cmd := tree.NewCommand(argv, h.limits(f.User))
	cmd.Env = environment
	if cmd.Dir = k.Directory; cmd.Dir == "" {
		cmd.Dir = f.work
	}
	return cmd, nil
}

// limits returns the limits that the operating system enforces for a program of a user.
// Without a control group for its tasks the user bounds them.
func (h *Handler) limits(user *sandbox.User) tree.Limits {
	l := h.kind.system()
	switch {
	case l.Tasks == 0 || h.groups.LimitsTasks():
	case user != nil:
		l.UserTasks = l.Tasks
	default:
		l.UserTasks = tree.SharedTasks()
	}
	return l
}

// explainFill returns the error of a job whose folder cannot be filled. It is
// permanent if the recorded checkpoint is damaged or too large.
func explainFill(err error) error {
	if isDamaged(err) {
		return job.Permanent(fmt.Errorf("the recorded checkpoint cannot be restored: %w", err))
	}
	return fmt.Errorf("fill the job's folder: %w", err)
}

// conclude returns the job's result, or the error that the end of the program means. Where
// a notice may explain that, it waits for one as long as grace.
func (r *programRun) conclude(ctx context.Context, end ended, grace time.Duration) ([]byte, error) {
	f := facts{exit: end.exit, killed: end.killed, stopped: ctx.Err() != nil, result: r.hasResult()}
	verdict := decide(f)
	if verdict == unclear {
		f.stopped, f.waited = retry.Sleep(ctx, grace) != nil, true
		verdict = decide(f)
	}
	if end.fault != nil && (end.killed || verdict != done) { // a finished job needs no checkpoint
		return nil, r.folder.asInterruption(end.fault)
	}
	r.log.DebugContext(ctx, "program ended", "exit", end.exit.String(), "stopped", f.stopped, "killed", f.killed,
		"left_processes", end.exit.Left, "verdict", verdict.String())
	switch err := endError(end, r.kind.FromMessage); verdict {
	case done:
		if err := r.moveOutputs(); err != nil {
			return nil, heldElsewhere(r.folder.asInterruption(err))
		}
		if err := r.outputs.finish(ctx); err != nil {
			return nil, heldElsewhere(r.folder.asInterruption(err))
		}
		result, err := r.result(ctx)
		if err != nil {
			return nil, err
		}
		return r.stdout.result(ctx, result)
	case interrupted:
		return nil, job.Interrupted(err)
	default:
		return nil, r.failure(ctx, err)
	}
}

// oomKillsSince returns how many processes the kernel has killed because memory ran out
// since it had killed that many; 0 if that is unknown.
func oomKillsSince(before int64) int64 {
	now, _ := resource.OOMKills()
	return max(now-before, 0)
}

// isMemoryKill reports whether the kernel killed the program because memory ran out, as far as
// the counts of its control group or of the machine tell.
func (e ended) isMemoryKill() bool {
	return e.exit.OOMKills > 0 || e.exit.IsKill() && !e.killed && e.oomKills > 0
}

// oomText says how many processes the kernel killed while a program ran.
func oomText(kills int64) string {
	if kills == 0 {
		return ""
	}
	return fmt.Sprintf(" (the kernel ended %d processes for that while it ran)", kills)
}

// failure returns the error of a program that has failed, after sending what it has printed. A
// command of the message is the job's own: its failures say nothing about the machine.
func (r *programRun) failure(ctx context.Context, err error) error {
	if unsent := r.stdout.send(ctx, true); unsent != nil {
		r.log.WarnContext(ctx, "standard output of a failed command is not stored; its log has the end", "error", unsent)
	}
	if r.kind.FromMessage {
		return job.OwnFault(err)
	}
	return err
}

// endError describes how the program ended, with the end of its standard error. withCode adds
// the exit code to words that do not have it.
func endError(end ended, withCode bool) error {
	text := "the command " + end.exit.String()
	switch {
	case end.killed:
		text = "the command did not stop in time and was killed"
	case end.exit.OOMKills > 0:
		text = fmt.Sprintf("the command was killed: its processes together exceeded the memory of its kind (the kernel ended %d of them)",
			end.exit.OOMKills)
	case end.exit.Full:
		text += "; " + end.full.Error()
	case end.exit.IsKill():
		text = "the command was killed (SIGKILL), not by the worker; most often out of memory" + oomText(end.oomKills)
	}
	if withCode && !end.killed {
		text = command.WithCode(text, end.exit.Status())
	}
	if end.stderrTail == "" {
		return errors.New(text)
	}
	return fmt.Errorf("%s; the end of its standard error: %s", text, end.stderrTail)
}

// result reads the program's result file. Without one the result is nil.
func (r *programRun) result(ctx context.Context) (data []byte, err error) {
	err = r.folder.User.Do(func() error {
		return sandbox.AwaitHeld(ctx, sandbox.HeldLong, func() error {
			data, err = readSmall(r.folder.result, job.MaxResult)
			return err
		})
	})
	var large *oversize
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.As(err, &large):
		return nil, job.Permanent(fmt.Errorf("%w; put it in a blob and make its name the result", err))
	case resource.IsExhaustion(err):
		return nil, r.folder.asInterruption(fmt.Errorf("read the result: %w", err))
	case sandbox.IsShared(err):
		return nil, heldElsewhere(fmt.Errorf("read the result: %w", err))
	case err != nil:
		return nil, job.Permanent(fmt.Errorf("read the result: %w", err))
	}
	return data, nil
}
