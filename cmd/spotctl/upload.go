package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/spotworker/spotworker/client"
	"github.com/spotworker/spotworker/internal/cli"
	"github.com/spotworker/spotworker/internal/producer"
	"github.com/spotworker/spotworker/job"
)

// uploadCommand stores files as blobs that jobs can have as inputs.
type uploadCommand struct {
	Files   []string      `arg:"" name:"file" help:"The files, and folders with all files below them; - is standard input."`
	Name    string        `help:"${about_upload_name}" env:"-"`
	To      string        `required:"" help:"Container of the deployment's storage account." placeholder:"CONTAINER" env:"-"`
	Create  bool          `help:"Create the container if it does not exist." env:"-"`
	Replace bool          `help:"Replace a blob that exists with another content." env:"-"`
	Timeout time.Duration `help:"Longest time to take; 0s is no limit." default:"0s" env:"-"`
}

// Help is shown by upload --help.
func (*uploadCommand) Help() string {
	return `Prints the blobs as the inputs of a job name them, with the versions that were stored. So this puts
a job with a file of this machine:

  producer put --kind render --inputs "$(spotctl upload house.blend --to scenes)"

A blob that exists with the same content counts as stored. The blobs of a folder are named FOLDER/PATH.

With --output json it prints the same without the brackets: a line of a manifest for each file. A file of up to
195 GiB takes 16 MiB of memory. The identity needs the role Storage Blob Data Contributor on the
container, and the workers' identity needs Storage Blob Data Reader (dataContainers of the
deployment).

Exit codes: 0 stored, 1 the blob exists with another content (without --replace), there is no such container (without
--create), or it could not be stored, 78 wrong flags or no such file.`
}

func (c *uploadCommand) run(ctx context.Context, s *session) error {
	files, err := c.sources()
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
	for _, file := range files {
		in, err := c.upload(ctx, s, deployment, file.path, file.name)
		if err != nil && len(all) > 0 {
			err = fmt.Errorf("%w; %d of %d files were stored before it", err, len(all), len(files))
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

// source is a file and the name of its blob.
type source struct{ path, name string }

// sources returns the files to upload: those given, and those below given folders.
func (c *uploadCommand) sources() (files []source, err error) {
	if c.Name != "" && len(c.Files) > 1 {
		return nil, fmt.Errorf("--name is for one file or folder, and %d are given", len(c.Files))
	}
	for _, file := range c.Files {
		if file == "-" && c.Name == "" {
			return nil, errors.New("standard input has no name: give --name too")
		}
		absolute, err := filepath.Abs(file) // "." has a name too
		if err != nil {
			return nil, err
		}
		name := cmp.Or(c.Name, filepath.Base(absolute))
		if info, err := os.Stat(file); file == "-" || file == "" || err != nil || !info.IsDir() {
			files = append(files, source{file, name})
			continue
		}
		below, err := filesBelow(file, name)
		if err != nil {
			return nil, err
		}
		files = append(files, below...)
	}
	of := map[string]string{}
	for _, file := range files {
		if other, known := of[file.name]; known {
			return nil, fmt.Errorf("%s and %s would both be stored as %s: upload them one by one, with --name", other, file.path, file.name)
		}
		of[file.name] = file.path
	}
	return files, nil
}

// filesBelow returns the files of a folder. A link to a file counts as one; what is neither file nor
// folder is an error, and so is a link to a folder, which could lead anywhere.
func filesBelow(folder, name string) (files []source, err error) {
	err = filepath.WalkDir(folder+string(filepath.Separator), func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		if info, err := os.Stat(at); err != nil || !info.Mode().IsRegular() {
			return cmp.Or(err, fmt.Errorf("%s is no file: leave it out, or give the files", at))
		}
		below, err := filepath.Rel(folder, at)
		files = append(files, source{at, path.Join(name, filepath.ToSlash(below))})
		return err
	})
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("folder %s has no files", folder)
	}
	return files, err
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
	if err != nil {
		_ = file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}
