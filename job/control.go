package job

import (
	"context"
	"time"
)

// Control is a [Job] with the methods for the caller of its handler: the worker, package
// jobtest, and tests of a handler without jobtest. A handler does not need them.
type Control struct{ *Job }

// ControlOf returns the control of a job, which is the same for each call.
func ControlOf(j *Job) Control { return Control{j} }

// Latest returns the last report of this run, or nil.
func (c Control) Latest() *Progress { return c.latest.Load() }

// OnReport makes every later [Job.Report] call f with the report, in the same goroutine.
func (c Control) OnReport(f func(*Progress)) { c.onReport = f }

// OnDropPayload makes [Job.DropPayload] call f.
func (c Control) OnDropPayload(f func()) { c.onDrop = f }

// OnPut makes [Job.Put] call f, with the payload as []byte or [json.RawMessage].
func (c Control) OnPut(f func(ctx context.Context, id string, f FollowUp) error) { c.onPut = f }

// OnOutputs sets what stores the outputs of the job.
func (c Control) OnOutputs(o Outputs) { c.outputs = o }

// SetInputs sets what [Job.Inputs] and [Job.InputFolder] return.
func (c Control) SetInputs(folder string, files []InputFile) { c.inputFolder, c.inputs = folder, files }

// HasBeforeSave reports whether [Job.BeforeSave] was called.
func (c Control) HasBeforeSave() bool { return c.beforeSave.Load() != nil }

// PrepareSave calls what [Job.BeforeSave] set.
func (c Control) PrepareSave(ctx context.Context) error {
	if f := c.beforeSave.Load(); f != nil {
		return (*f)(ctx)
	}
	return nil
}

// OnSaveInterval sets what [Control.SaveInterval] returns.
func (c Control) OnSaveInterval(f func(cost time.Duration) time.Duration) { c.saveInterval = f }

// SaveInterval returns how long after a save the worker saves the next state, if taking a
// state costs the handler this time. Without a worker it is 5 s.
func (c Control) SaveInterval(cost time.Duration) time.Duration {
	if c.saveInterval == nil {
		return 5 * time.Second
	}
	return c.saveInterval(cost)
}

// Close calls the functions that were registered with [Job.Cleanup], even if one of them
// panics.
func (c Control) Close() {
	cleanups := c.cleanups
	c.cleanups = nil
	for _, f := range cleanups {
		defer f() //nolint:gocritic // deferred calls run in reverse order and continue after a panic, as wanted
	}
}
