package program

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spotworker/spotworker/internal/host/sandbox"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
	"github.com/spotworker/spotworker/internal/program/command"
	"github.com/spotworker/spotworker/internal/program/outfolder"
	"github.com/spotworker/spotworker/internal/text/jsonpos"
	"github.com/spotworker/spotworker/job"
)

// Outputs configures the folder into which a program writes its outputs.
type Outputs struct {
	Limits job.OutputLimits

	// Stream sends files while the program runs, as soon as they no longer change.
	Stream bool

	// From are patterns for files in the working folder that become outputs when the program
	// is done.
	From []string

	// List gives the program a list of the files that were sent before, in place of the
	// files.
	List bool
}

// setOutputs reads true, or an object of settings.
func (k *parsedKind) setOutputs(v jsonpos.Value) (err error) {
	o := &Outputs{}
	if yes, ok := v.Data.(bool); ok {
		if yes {
			k.Outputs = o
		}
		return nil
	}
	members, ok := v.Data.(jsonpos.Object)
	if !ok {
		return v.Errorf(`give true, or an object: {"from": ["*.png"], "stream": true, "files": 1000, "bytes": "10GiB", "restore": "list"}`)
	}
	for _, m := range members {
		switch m.Name {
		case "from":
			o.From, err = asPatterns(m.Value)
		case "stream":
			o.Stream, err = asBool(m.Value)
		case "files":
			o.Limits.Files, err = asCount(m.Value)
		case "bytes":
			o.Limits.Bytes, err = asSize(m.Value)
		case "restore":
			o.List, err = asRestore(m.Value)
		default:
			return unknown(m, []string{"bytes", "files", "from", "restore", "stream"})
		}
		if err == nil {
			if bad := o.Limits.Validate(); bad != nil {
				err = m.Value.Errorf("%v", bad)
			}
		}
		if err != nil {
			return err
		}
	}
	k.Outputs = o
	return nil
}

// asRestore reports whether a program gets a list in place of the files.
func asRestore(v jsonpos.Value) (list bool, err error) {
	switch v.Data {
	case "files":
		return false, nil
	case "list":
		return true, nil
	}
	return false, v.Errorf(`give "files", so that a program that continues finds its output folder as it was, or "list", ` +
		`so that it finds the folder empty and a list of what was sent`)
}

// outputFolder sends the files in the output folder of a program. It is nil for a kind
// without outputs.
type outputFolder struct {
	settings Outputs
	folder   *outfolder.Folder

	looks  sync.WaitGroup     // the pass that runs beside the program
	ctx    context.Context    // of those passes
	cancel context.CancelFunc // ends them
	fault  chan error         // holds the fault that one found
	busy   chan struct{}      // holds one while one runs
	next   time.Time          // when the next one is due
}

// lookEvery is the time between two passes of a streaming kind. A file is finished when
// it does not change between two of them.
const lookEvery = 2 * time.Second

// openOutputs makes the output folder, with the files that the job has sent before. It is
// a failure of the job if its kind has no outputs here and the job has some: the worker
// that sent them has another kinds file, and to end the job here would be to end it with
// a part of its outputs.
func openOutputs(ctx context.Context, k *Kind, j *job.Job, f *folder) (*outputFolder, error) {
	settings, sent := k.Outputs, j.Outputs()
	if k.ResultStdout {
		sent = slices.DeleteFunc(slices.Clone(sent), func(o job.Output) bool { return o.Path == command.Stdout })
	}
	switch {
	case settings == nil && len(sent) > 0:
		return nil, &stateError{fmt.Errorf("the job has stored %d outputs, and the kind %q of this worker's kinds file has none: "+
			`give it "outputs", or start the job over with spotctl poison replay --from-scratch`, len(sent), j.Kind)}
	case settings == nil:
		return nil, nil
	}
	files := make([]outfolder.Sent, 0, len(sent))
	for _, o := range sent {
		files = append(files, outfolder.Sent{Path: o.Path, Executable: o.Executable})
	}
	if err := f.User.Do(func() error { return f.makeOutput(settings.List, files) }); err != nil {
		return nil, err
	}
	o := &outputFolder{
		settings: *settings, fault: make(chan error, 1), busy: make(chan struct{}, 1),
		folder: outfolder.New(f.output, f.User.Do, outputSink{j}, settings.Limits.WithDefaults().Files),
	}
	o.ctx, o.cancel = context.WithCancel(context.WithoutCancel(ctx))
	j.Cleanup(o.close)
	if !settings.List {
		if err := o.folder.Restore(ctx, files, func(ctx context.Context, path string) (io.ReadCloser,
			error) {
			return openRecorded(ctx, j, path)
		}); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// openRecorded returns the content of an output that was sent before, which is a part of the
// recorded state.
func openRecorded(ctx context.Context, j *job.Job, path string) (io.ReadCloser, error) {
	content, err := j.OpenOutput(ctx, path)
	if err != nil {
		return nil, &stateError{err}
	}
	return struct {
		io.Reader
		io.Closer
	}{&stoppable{ctx: ctx, state: content}, content}, nil
}

// beginSaves makes every save of the running program's checkpoints send the files in the output
// folder, and the standard output.
func (r *programRun) beginSaves() {
	if r.outputs == nil && r.stdout == nil {
		return
	}
	r.job.BeforeSave(func(ctx context.Context) error {
		if r.outputs != nil {
			if err := r.outputs.folder.Send(ctx, outfolder.Everything); err != nil {
				return err
			}
		}
		return r.stdout.send(ctx, false)
	})
}

// makeOutput makes the output folder, and the list of the files that were sent before if
// the program is to get one.
func (f *folder) makeOutput(list bool, sent []outfolder.Sent) error {
	if err := os.Mkdir(f.output, 0o700); err != nil {
		return err
	}
	if !list || len(sent) == 0 {
		return nil
	}
	f.hasSentList = true
	var names strings.Builder
	for _, file := range sent {
		names.WriteString(file.Path + "\n")
	}
	return copyTo(f.sentList, strings.NewReader(names.String()))
}

// outputSink sends files as outputs of a job.
type outputSink struct{ job *job.Job }

func (s outputSink) Send(ctx context.Context, path string, size int64, content io.Reader) error {
	_, err := s.job.SendOutputOfSize(ctx, path, size, content)
	return err
}

func (s outputSink) Remove(path string) { s.job.RemoveOutput(path) }

// look sends finished files beside the program, if the kind wants that and it is time. It
// returns the fault that an earlier look found.
func (o *outputFolder) look(now time.Time) error {
	if o == nil || !o.settings.Stream {
		return nil
	}
	select {
	case err := <-o.fault:
		return err
	default:
	}
	if now.Before(o.next) {
		return nil
	}
	select {
	case o.busy <- struct{}{}:
	default:
		return nil
	}
	o.next = now.Add(lookEvery)
	o.looks.Go(func() {
		defer func() { <-o.busy }()
		if err := o.folder.Send(o.ctx, outfolder.Finished); errors.Is(err, paths.ErrRefused) {
			o.fault <- job.Permanent(err)
		}
	})
	return nil
}

// skipPresent makes what the job has brought into the folder no outputs, until it changes.
func (o *outputFolder) skipPresent() error {
	if o == nil {
		return nil
	}
	err := o.folder.SkipPresent()
	if errors.Is(err, paths.ErrRefused) {
		return job.Permanent(err)
	}
	return err
}

// finish sends everything once the program has ended. After a stop it may take until the
// handler has to return.
func (o *outputFolder) finish(ctx context.Context) error {
	if o == nil {
		return nil
	}
	stop := job.StopOf(ctx)
	if stop != nil {
		left := time.Until(stop.Deadline)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), left-reserve(left))
		defer cancel()
	}
	err := sandbox.AwaitHeld(ctx, sandbox.HeldLong, func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return o.folder.Send(ctx, outfolder.Final) // which sends the files that it has not sent yet
	})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, paths.ErrRefused):
		return job.Permanent(err)
	case ctx.Err() != nil: // stopped before, or now
		return job.Interrupted(err)
	}
	return err
}

// close ends a look that is under way, and waits for its end.
func (o *outputFolder) close() {
	o.cancel()
	o.looks.Wait()
}
