package client

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs"
)

// Output is a file that a job has stored for others.
type Output struct {
	Path        string `json:"path"`   // relative, with slashes
	Size        int64  `json:"size"`   // bytes
	SHA256      string `json:"sha256"` // of the content, in lower-case hex
	ContentType string `json:"content_type"`
	Executable  bool   `json:"executable,omitempty"` // it was, where the job ran

	// Container and Blob are where it is, and ETag is the version of the blob that is the
	// output, for programs that read it themselves.
	Container string `json:"container"`
	Blob      string `json:"blob"`
	ETag      string `json:"etag"`

	job  string
	file outputs.File
}

// Errors of outputs.
var (
	// ErrOutputGone means that an output, or the list of a job's outputs, was removed or
	// replaced after the job had stored it.
	ErrOutputGone = errors.New("the output was removed or replaced since the job stored it")

	// ErrUnsafeOutput means that an output has a path that cannot be written on this
	// system, or that it takes for another one's.
	ErrUnsafeOutput = outputs.ErrUnsafe
)

// Outputs returns the outputs of a job in the order of their paths: all of them if the job
// is done, and otherwise the outputs of its last checkpoint. A command of a message that has failed for the last
// time also has what it sent after that. It costs two calls, and one
// for a job without outputs. The error is [ErrNotFound] if the job has no record.
func (c *Client) Outputs(ctx context.Context, id string) ([]Output, error) {
	r, err := c.read(ctx, id)
	if err != nil {
		return nil, err
	}
	files, err := c.stores.Outputs.Files(ctx, id, r.Outputs.Hash)
	if err != nil {
		return nil, c.outputError(err)
	}
	all := make([]Output, 0, len(files))
	for _, f := range files {
		all = append(all, Output{
			Path: f.Path, Size: f.Size, SHA256: f.SHA256, ContentType: f.Type, Executable: f.Executable,
			Container: c.stores.Names.Outputs, Blob: f.Blob(id), ETag: string(f.ETag), job: id, file: f,
		})
	}
	return all, nil
}

// OpenOutput returns the content of an output. Its last Read fails if the content differs
// from the stored output. The caller must close it.
func (c *Client) OpenOutput(ctx context.Context, o Output) (io.ReadCloser, error) {
	body, err := c.stores.Outputs.OpenChecked(ctx, o.job, o.file)
	return body, c.outputError(err)
}

// DownloadOptions say how [Client.Download] works.
type DownloadOptions struct {
	// Select selects outputs; all if it is nil.
	Select func(Output) bool

	// Done is called after each output, from many goroutines, with how many bytes of it
	// were fetched: none if it was there already.
	Done func(o Output, fetched int64)
}

// Download writes the outputs of a job into a folder, under their paths, and makes the
// folder. It checks each by its hash, and replaces files that differ. After an
// interruption it may be repeated, and continues inside of files. Nothing is written
// outside the folder, even if a path or a link in the folder leads there; a path that
// this system does not allow, or two that it takes for one, are [ErrUnsafeOutput] before
// anything is written. It returns how many outputs were selected.
func (c *Client) Download(ctx context.Context, id, folder string, o DownloadOptions) (selected int, err error) {
	all, err := c.Outputs(ctx, id)
	if err != nil {
		return 0, err
	}
	var files []outputs.File
	byPath := map[string]Output{}
	for _, output := range all {
		if o.Select == nil || o.Select(output) {
			files, byPath[output.Path] = append(files, output.file), output
		}
	}
	if len(files) == 0 {
		return 0, nil
	}
	err = c.stores.Outputs.Download(ctx, id, files, folder, func(f outputs.File, fetched int64) {
		if o.Done != nil {
			o.Done(byPath[f.Path], fetched)
		}
	})
	return len(files), c.outputError(err)
}

// outputError makes an error of the store readable.
func (c *Client) outputError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, outputs.ErrGone), errors.Is(err, outputs.ErrManifest):
		return fmt.Errorf("%w: %w", ErrOutputGone, err)
	}
	return c.readable(err, toRead)
}
