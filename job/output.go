package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
)

// Bounds of a job's outputs.
const (
	DefaultOutputFiles = 10_000
	DefaultOutputBytes = 100 << 30
	MostOutputFiles    = 100_000
)

// OutputLimits bound the outputs of a kind's jobs. 0 means the default.
type OutputLimits struct {
	Files int   // default [DefaultOutputFiles], at most [MostOutputFiles]
	Bytes int64 // of all files, default [DefaultOutputBytes]
}

// WithDefaults returns l with the defaults for fields that are 0.
func (l OutputLimits) WithDefaults() OutputLimits {
	l.Files = cmp.Or(l.Files, DefaultOutputFiles)
	l.Bytes = cmp.Or(l.Bytes, DefaultOutputBytes)
	return l
}

// Validate returns an error that says what to change, or nil.
func (l OutputLimits) Validate() error {
	switch {
	case l.Files < 0 || l.Files > MostOutputFiles:
		return fmt.Errorf("%d output files: give a number from 1 to %d, or 0 for %d", l.Files, MostOutputFiles, DefaultOutputFiles)
	case l.Bytes < 0:
		return fmt.Errorf("%d bytes of output files: give a number above 0, or 0 for %d", l.Bytes, int64(DefaultOutputBytes))
	}
	return nil
}

// WithOutputs returns h with limits on the outputs of its jobs ([Job.SendOutput]). It also
// tells the worker that the kind has outputs, so that it checks their container before it
// takes a job.
func WithOutputs(h Handler, l OutputLimits) Handler { return withOutputs{h, l} }

type withOutputs struct {
	Handler
	outputs OutputLimits
}

func (h withOutputs) OutputLimits() OutputLimits { return h.outputs }

// Limits returns the limits of the handler within.
func (h withOutputs) Limits() Limits { return LimitsOf(h.Handler) }

// OutputLimitsOf returns the limits of a handler's outputs, defaults included. ok is
// whether they were given: to [WithOutputs], or by the handler's own method OutputLimits.
func OutputLimitsOf(h Handler) (l OutputLimits, ok bool) {
	for h != nil {
		if has, given := h.(interface{ OutputLimits() OutputLimits }); given {
			return has.OutputLimits().WithDefaults(), true
		}
		h = within(h)
	}
	return l.WithDefaults(), false
}

// Output is a file that a job has stored for others.
type Output struct {
	Path   string // relative, with slashes
	Size   int64  // bytes
	SHA256 string // of the content, in lower-case hex

	// Executable says that the content was an executable file. It is false on Windows.
	Executable bool
}

// Outputs stores the outputs of one job. The worker implements it, and so do tests of a
// handler.
type Outputs interface {
	// Send stores a file, and replaces a file with the same path. size is its length in
	// bytes, -1 if it is not known.
	Send(ctx context.Context, path string, size int64, content io.Reader) (Output, error)

	// Open returns the content of a file that was sent.
	Open(ctx context.Context, path string) (io.ReadCloser, error)

	// Remove removes a file from the outputs.
	Remove(path string)

	// List returns the files in the order of their paths.
	List() []Output
}

// errNoOutputs is the error of a job without [Control.OnOutputs].
var errNoOutputs = errors.New("nothing takes the outputs of this job: a test calls Control.OnOutputs, and a worker needs the " +
	"container of outputs")

// SendOutput stores a file as an output of this job, under a relative path with slashes
// such as "frames/0001.png". A file that was sent under that path is replaced. It returns
// when the file is stored, in blocks of bounded memory, so content may be of any size. A
// content that is an [io.Seeker] is read again where a call has to be repeated.
//
// Outputs belong to the job's outcome: they become visible when the job is committed, all
// at once. The outputs of a worker that lost the job never become visible. Files that were
// sent before a report are part of its checkpoint, so a handler that continues from there
// need not send them again, and finds them in [Job.Outputs]. It costs a call for each
// file, and one for each save of the job's state, and the commit, that has new outputs.
//
// The handler may return the error unchanged: a path or a size that can never be stored is
// permanent, and without an answer of the storage service the job is retried. Calls from
// several goroutines may run at once.
func (j *Job) SendOutput(ctx context.Context, path string, content io.Reader) error {
	_, err := j.sendOutput(ctx, path, sizeOf(content), content)
	return err
}

func (j *Job) sendOutput(ctx context.Context, path string, size int64, content io.Reader) (Output, error) {
	if j.outputs == nil {
		return Output{}, errNoOutputs
	}
	return j.outputs.Send(ctx, path, size, content)
}

// SendOutputOfSize is [Job.SendOutput] for a content whose length is known, and returns
// the stored output.
func (j *Job) SendOutputOfSize(ctx context.Context, path string, size int64, content io.Reader) (Output, error) {
	return j.sendOutput(ctx, path, size, content)
}

// sizeOf returns how much is left of a content that is in memory or in a file, else -1.
func sizeOf(content io.Reader) int64 {
	switch c := content.(type) {
	case interface{ Len() int }: // bytes.Reader, bytes.Buffer, strings.Reader
		return int64(c.Len())
	case io.Seeker:
		at, err := c.Seek(0, io.SeekCurrent)
		if err != nil {
			return -1
		}
		end, err := c.Seek(0, io.SeekEnd)
		if _, back := c.Seek(at, io.SeekStart); err != nil || back != nil {
			return -1
		}
		return end - at
	}
	return -1
}

// CreateOutput returns a writer of an output. The file is stored when Close returns nil;
// a file that is not closed is not stored. When the job is interrupted before, the
// handler writes it again.
func (j *Job) CreateOutput(ctx context.Context, path string) io.WriteCloser {
	reader, writer := io.Pipe()
	w := &outputWriter{pipe: writer, sent: make(chan error, 1)}
	go func() {
		err := j.SendOutput(ctx, path, reader)
		_ = reader.CloseWithError(cmp.Or[error](err, io.ErrClosedPipe))
		w.sent <- err
	}()
	j.Cleanup(func() { _ = writer.CloseWithError(errors.New("the output was not closed")) })
	return w
}

// outputWriter is an output that is being written.
type outputWriter struct {
	pipe *io.PipeWriter
	sent chan error
}

func (w *outputWriter) Write(p []byte) (int, error) { return w.pipe.Write(p) }

func (w *outputWriter) Close() error {
	_ = w.pipe.Close() // never fails
	err := <-w.sent
	w.sent <- err // for a second call
	return err
}

// Outputs returns the outputs that the job has stored so far, including the outputs of
// earlier deliveries, in the order of their paths.
func (j *Job) Outputs() []Output {
	if j.outputs == nil {
		return nil
	}
	return j.outputs.List()
}

// OpenOutput returns the content of an output of the job. The handler must close it.
func (j *Job) OpenOutput(ctx context.Context, path string) (io.ReadCloser, error) {
	if j.outputs == nil {
		return nil, errNoOutputs
	}
	return j.outputs.Open(ctx, path)
}

// RemoveOutput removes the job's output of that path, if there is one.
func (j *Job) RemoveOutput(path string) {
	if j.outputs != nil {
		j.outputs.Remove(path)
	}
}

// BeforeSave makes the worker call f, from another goroutine, before it saves a state of
// the job and before it hands the job over: to send the outputs that the state relies on.
// The state is saved only if f returns nil.
func (j *Job) BeforeSave(f func(context.Context) error) { j.beforeSave.Store(&f) }
