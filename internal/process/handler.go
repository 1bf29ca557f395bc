package process

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"time"

	"github.com/spotworker/spotworker/internal/archive"
	"github.com/spotworker/spotworker/job"
)

// noticeGrace is how long the end of a program by a signal of unknown origin
// waits for a notice that explains it.
const noticeGrace = 2 * time.Second

// Handler runs a command for each job of a kind.
type Handler struct {
	kind    Kind
	scratch *Scratch
	tokens  Granter
	log     *slog.Logger
	rest    time.Duration // shortageRest, but for tests
}

// Granter lets a program get access tokens for these resources from an endpoint,
// with a secret, until revoke is called.
type Granter interface {
	Grant(resources []string) (endpoint, secret string, revoke func())
}

// NewHandler returns the handler of a kind, with its limits. Its jobs have their
// folders in scratch; log gets what the programs print. tokens is needed by a kind
// with [Kind.Tokens] only.
func NewHandler(k Kind, scratch *Scratch, tokens Granter, log *slog.Logger) job.Handler {
	return job.WithLimits(&Handler{kind: k, scratch: scratch, tokens: tokens, log: log, rest: shortageRest}, k.Limits)
}

// Run implements [job.Handler]. The job's folder stays until its last state was
// recorded.
func (h *Handler) Run(ctx context.Context, j *job.Job) ([]byte, error) {
	if err := j.CheckVersion(stateFile, stateFolder, stateLinks); err != nil {
		return nil, err
	}
	log := h.log.With("job_id", j.ID, "kind", j.Kind)
	f, err := h.scratch.newFolder()
	if err != nil {
		return nil, h.notBegun(ctx, log, nil, fmt.Errorf("make the job's folder: %w", err))
	}
	j.Cleanup(func() { h.scratch.discard(f, log) })
	if err := f.user.Do(func() error { return f.fill(ctx, j) }); err != nil {
		return nil, h.notBegun(ctx, log, f, explainFill(err))
	}
	if len(h.kind.Tokens) > 0 {
		var revoke func()
		f.tokenEndpoint, f.tokenSecret, revoke = h.tokens.Grant(h.kind.Tokens)
		defer revoke()
	}
	r, out := newRun(j, &h.kind, f, log), newOutput(log)
	if r.program, err = start(h.command(j, f), f.user, out); err != nil {
		return nil, h.notBegun(ctx, log, f, fmt.Errorf("the command cannot be started: %w", err))
	}
	end := r.supervise(ctx)
	complaint := out.finish()
	if !h.scratch.holds(f.dir) {
		return nil, notCounted(errors.New("the job's folder was removed from outside while its program ran"))
	}
	result, err := r.conclude(ctx, end, complaint)
	if err != nil && !job.IsInterrupted(err) && !job.IsPermanent(err) {
		if missing := h.kind.missing(); missing != nil {
			return nil, h.yield(ctx, log, fmt.Errorf("%w; %w", missing, err))
		}
	}
	return result, err
}

// command is the command for a job, which was not started yet.
func (h *Handler) command(j *job.Job, f *folder) *exec.Cmd {
	cmd := newCommand(h.kind.argv())
	cmd.Env = environ(&h.kind, j, f, os.LookupEnv)
	if cmd.Dir = h.kind.Directory; cmd.Dir == "" {
		cmd.Dir = f.work
	}
	return cmd
}

// explainFill says what keeps a job from being begun.
func explainFill(err error) error {
	if errors.Is(err, archive.ErrDamaged) || errors.Is(err, archive.ErrTooLarge) {
		return job.Permanent(fmt.Errorf("the recorded checkpoint cannot be restored: %w", err))
	}
	return fmt.Errorf("fill the job's folder: %w", err)
}

// conclude says what the end of the program means, and gives its result.
func (r *run) conclude(ctx context.Context, end ended, complaint string) ([]byte, error) {
	f := facts{exit: end.exit, killed: end.killed, stopped: ctx.Err() != nil, result: r.hasResult()}
	verdict := judge(f)
	if verdict == unclear {
		f.stopped, f.waited = waitForNotice(ctx), true
		verdict = judge(f)
	}
	if end.fault != nil && (end.killed || verdict != done) { // what is done needs no checkpoint
		return nil, excuse(end.fault)
	}
	r.log.DebugContext(ctx, "program ended", "exit", end.exit.String(), "stopped", f.stopped, "killed", f.killed, "verdict", verdict.String())
	switch err := endError(end, complaint); verdict {
	case done:
		return r.result()
	case interrupted:
		return nil, job.Interrupted(err)
	default:
		return nil, err
	}
}

// waitForNotice reports whether the job is stopped within the grace.
func waitForNotice(ctx context.Context) bool {
	timer := time.NewTimer(noticeGrace)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return true
	case <-timer.C:
		return false
	}
}

// endError says how the program ended, with its own last words.
func endError(end ended, complaint string) error {
	text := "the command " + end.exit.String()
	if end.killed {
		text = "the command did not stop in time and was killed"
	}
	if complaint == "" {
		return errors.New(text)
	}
	return fmt.Errorf("%s; the end of its standard error: %s", text, complaint)
}

// result reads what the program put in place as its result, if anything.
func (r *run) result() (data []byte, err error) {
	err = r.folder.user.Do(func() error {
		data, err = readSmall(r.folder.result, job.MaxResult)
		return err
	})
	var large *oversize
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.As(err, &large):
		return nil, job.Permanent(fmt.Errorf("%w; put it in a blob and make its name the result", err))
	case isShortage(err):
		return nil, excuse(fmt.Errorf("read the result: %w", err))
	case err != nil:
		return nil, job.Permanent(fmt.Errorf("read the result: %w", err))
	}
	return data, nil
}
