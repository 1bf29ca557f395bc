package scratch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spotworker/spotworker/internal/host/sandbox"
)

// Folder is the folder of a job.
type Folder struct {
	Dir string

	// inputs is the folder of the job's input files, beside Dir; empty for none.
	inputs string

	// User runs the program and owns the files; nil for the worker's own user.
	User *sandbox.User
}

// NewFolder makes a job's folder, with mode 0700. Its name is random: names from
// messages never become paths.
func (s *Root) NewFolder() (*Folder, error) {
	place, err := s.folder()
	if err != nil {
		return nil, err
	}
	s.endLeft()
	user, err := s.users.Take()
	if err != nil {
		return nil, err
	}
	dir, err := user.MkdirTemp(place, "job-*") // mode 0700
	if err != nil {
		s.users.Put(user)
		return nil, err
	}
	return &Folder{Dir: dir, User: user}, nil
}

// NewInputs makes a folder for the job's input files, which belongs to the worker and
// which the job's user may read. It is removed with the job's folder.
func (s *Root) NewInputs(f *Folder) (dir string, err error) {
	f.inputs, err = f.User.MkdirReadable(filepath.Dir(f.Dir), "inputs-*")
	return f.inputs, err
}

// Clear empties the folder, as far as possible. The rest is removed at the job's end.
func (f *Folder) Clear() { _ = f.User.Do(func() error { return sandbox.RemoveContent(f.Dir) }) }

// OpenRegular opens a file for reading, which must be a regular one.
func OpenRegular(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|noFollow, 0)
	if err != nil {
		if info, failed := os.Lstat(name); failed == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file", filepath.Base(name)) // a link or a socket
		}
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file", filepath.Base(name))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
