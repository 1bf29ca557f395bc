package main

import (
	"cmp"
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

// uploadCommand stores files as blobs that jobs can have as inputs.
type uploadCommand struct {
	Files   []string      `arg:"" name:"file" help:"The files; - is standard input."`
	Name    string        `help:"Name of the blob, of one file. Default: the file's, without its folders." env:"-"`
	To      string        `required:"" help:"Container of the deployment's storage account." placeholder:"CONTAINER" env:"-"`
	Create  bool          `help:"Create the container if it does not exist." env:"-"`
	Replace bool          `help:"Replace a blob that exists." env:"-"`
	Timeout time.Duration `help:"Longest time to take; 0s is no limit." default:"0s" env:"-"`
}

// Help is shown by upload --help.
func (*uploadCommand) Help() string {
	return `Prints the blobs as the inputs of a job name them, with the versions that were stored. So this puts
a job with a file of this machine:

  producer put --kind render --inputs "$(spotctl upload house.blend --to scenes)"

With --output json it prints the same without the brackets: a line of a manifest for each file. A file of up to
195 GiB takes 16 MiB of memory. The identity needs the role Storage Blob Data Contributor on the
container, and the workers' identity needs Storage Blob Data Reader (dataContainers of the
deployment).

Exit codes: 0 stored, 1 the blob exists (without --replace), there is no such container (without
--create), or it could not be stored, 78 wrong flags or no such file.`
}

func (c *uploadCommand) run(ctx context.Context, s *session) error {
	names, err := c.names()
	if err != nil {
		return &cli.ConfigError{Err: err}
	}
	deployment, err := s.client()
	if err != nil {
		return err
	}
	ctx, cancel := withTimeout(ctx, c.Timeout)
	defer cancel()
	var all []job.Input
	for i, file := range c.Files {
		in, err := c.upload(ctx, s, deployment, file, names[i])
		if err != nil && len(all) > 0 {
			err = fmt.Errorf("%w; %d of %d files were stored before it", err, len(all), len(c.Files))
		}
		if err != nil {
			return err
		}
		all = append(all, in)
	}
	if !s.printer.json {
		return s.printer.line(all)
	}
	for _, in := range all {
		if err := s.printer.line(in); err != nil {
			return err
		}
	}
	return nil
}

// names returns the name of each file's blob.
func (c *uploadCommand) names() (names []string, err error) {
	if c.Name != "" && len(c.Files) > 1 {
		return nil, fmt.Errorf("--name is for one file, and %d are given", len(c.Files))
	}
	of := map[string]string{}
	for _, file := range c.Files {
		name := cmp.Or(c.Name, filepath.Base(file))
		if file == "-" && c.Name == "" {
			return nil, errors.New("standard input has no name: give --name too")
		}
		if other, known := of[name]; known {
			return nil, fmt.Errorf("%s and %s would both be stored as %s: upload them one by one, with --name", other, file, name)
		}
		of[name] = file
		names = append(names, name)
	}
	return names, nil
}

// upload stores one file.
func (c *uploadCommand) upload(ctx context.Context, s *session, deployment *client.Client, from, name string) (job.Input, error) {
	file, size, err := open(ctx, from, s.printer.in)
	if err != nil {
		return job.Input{}, &cli.ConfigError{Err: err}
	}
	defer func() { _ = file.Close() }() // it was only read
	bar := &byteBar{bar: s.printer.bar(), what: name, size: size}
	in, err := deployment.Upload(ctx, job.Input{Container: c.To, Blob: name}, io.TeeReader(file, bar), client.UploadOptions{
		Size: size, Replace: c.Replace, Create: c.Create,
	})
	bar.clear()
	switch {
	case err == nil:
		return in, nil
	case ctx.Err() != nil:
		return in, fmt.Errorf("%w; the command can be repeated", context.Cause(ctx))
	case errors.Is(err, client.ErrExists):
		return in, fmt.Errorf("%w: give another --name, or --replace", err)
	case errors.Is(err, client.ErrNoContainer):
		return in, fmt.Errorf("%w: --create creates it", err)
	}
	return in, err
}

// open opens a file. The size is 0 if it is not known.
func open(ctx context.Context, name string, stdin io.Reader) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(producer.Interruptible(ctx, stdin)), 0, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s is a folder: give its files", name)
	}
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}
