package program

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spotworker/spotworker/internal/program/scratch"
	"github.com/spotworker/spotworker/job"
)

// giveInputs makes the job's input files available to its program, in a folder that it can
// read and not change.
//
// A program with a user of its own gets hard links: the files are the worker's, so it can
// neither write them nor make them writable. A program that runs as the worker's user
// could do both, so it gets copies, which share their blocks with the originals where the
// file
// system can do that (XFS, Btrfs, ReFS).
//
// Inputs that have another place are left out.
func (f *folder) giveInputs(ctx context.Context, j *job.Job, s *scratch.Root, elsewhere map[string]bool) error {
	given := slices.DeleteFunc(slices.Clone(j.Inputs()), func(in job.InputFile) bool { return elsewhere[in.Name] })
	if j.InputFolder() == "" || len(given) == 0 && len(elsewhere) > 0 {
		return nil
	}
	dir, err := s.NewInputs(f.Folder)
	if err != nil {
		return err
	}
	folders := map[string]bool{dir: true}
	for _, file := range given {
		to := filepath.Join(dir, filepath.FromSlash(file.Name))
		if err := makeReadable(folders, filepath.Dir(to)); err != nil {
			return err
		}
		if f.User != nil && os.Link(file.File, to) == nil {
			continue // it may fail between file systems, and where a file has very many names
		}
		if err := copyInput(ctx, file, to); err != nil {
			return err
		}
	}
	f.inputs = dir
	return closeFolders(folders, f.User == nil)
}

// makeReadable makes a folder that every user may read who can enter those above, if it
// was not made yet.
func makeReadable(made map[string]bool, dir string) error {
	if made[dir] {
		return nil
	}
	if err := makeReadable(made, filepath.Dir(dir)); err != nil {
		return err
	}
	made[dir] = true
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the folder above them all is closed
		return err
	}
	return os.Chmod(dir, 0o755) //nolint:gosec // for any umask
}

// closeFolders takes away the right to write to folders of the program's own user.
func closeFolders(folders map[string]bool, own bool) (err error) {
	if !own || onWindows { // where folders have no such right
		return nil
	}
	for dir := range folders {
		err = errors.Join(err, os.Chmod(dir, 0o555)) //nolint:gosec // as above
	}
	return err
}

// copyPart is how much is copied between two looks at whether the job was stopped, in
// bytes.
const copyPart = 64 << 20

// copyInput copies an input.
func copyInput(ctx context.Context, file job.InputFile, to string) error {
	from, err := os.Open(file.File)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	for err == nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			break
		}
		_, err = io.CopyN(out, from, copyPart)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(err, out.Close(), os.Chmod(to, 0o444)) //nolint:gosec // the folder above is closed
}
