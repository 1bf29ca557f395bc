package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/job"
)

// uploadCommand stores a file as a blob that jobs can have as an input.
type uploadCommand struct {
	File    string        `arg:"" help:"The file; - is standard input."`
	Name    string        `arg:"" optional:"" help:"Name of the blob. Default: the file's, without its folders."`
	To      string        `required:"" help:"Container of the deployment's storage account." placeholder:"CONTAINER" env:"-"`
	Create  bool          `help:"Create the container if it does not exist." env:"-"`
	Replace bool          `help:"Replace a blob that exists." env:"-"`
	Timeout time.Duration `help:"Longest time to take; 0s is no limit." default:"0s" env:"-"`
}

// Help is shown by upload --help.
func (*uploadCommand) Help() string {
	return `Prints the blob as the inputs of a job name it, with the version that was stored. So this puts
a job with a file of this machine:

  producer put --kind render --inputs "$(spotctl upload house.blend --to scenes)"

With --output json it prints the same without the brackets: a line of a manifest. A file of up to
195 GiB takes 16 MiB of memory. The identity needs the role Storage Blob Data Contributor on the
container, and the workers' identity needs Storage Blob Data Reader (dataContainers of the
deployment).

Exit codes: 0 stored, 1 the blob exists (without --replace), there is no such container (without
--create), or it could not be stored, 78 wrong flags or no such file.`
}

func (c *uploadCommand) run(ctx context.Context, s *session) error {
	deployment, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	file, size, err := c.open(ctx, s.printer.in)
	if err != nil {
		return &cli.ConfigError{Err: err}
	}
	defer func() { _ = file.Close() }() // it was only read
	bar := &byteBar{bar: s.printer.bar(), what: c.Name, size: size}
	in, err := deployment.Upload(ctx, job.Input{Container: c.To, Blob: c.Name}, io.TeeReader(file, bar), client.UploadOptions{
		Size: size, Replace: c.Replace, Create: c.Create,
	})
	bar.clear()
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w; the command can be repeated", context.Cause(ctx))
	case errors.Is(err, client.ErrExists):
		return fmt.Errorf("%w: give another NAME, or --replace", err)
	case errors.Is(err, client.ErrNoContainer):
		return fmt.Errorf("%w: --create creates it", err)
	case err != nil:
		return err
	}
	if s.printer.json {
		return s.printer.line(in)
	}
	return s.printer.line([]job.Input{in})
}

// open opens the file, and sets the default of the name. The size is 0 if it is not known.
func (c *uploadCommand) open(ctx context.Context, stdin io.Reader) (io.ReadCloser, int64, error) {
	if c.File == "-" {
		if c.Name == "" {
			return nil, 0, errors.New("standard input has no name: give NAME too")
		}
		return io.NopCloser(producer.Interruptible(ctx, stdin)), 0, nil
	}
	if c.Name == "" {
		c.Name = filepath.Base(c.File)
	}
	file, err := os.Open(c.File)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a folder: upload its files one by one", c.File)
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}
