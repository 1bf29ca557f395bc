package archive

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// walkBatch is how many entries of a folder are read at once.
const walkBatch = 1024

// Walk calls visit for everything below a folder, each folder before its content,
// and stops at the first error that visit returns. It calls visit with an error,
// and without an entry, for a folder that cannot be read. It reads folders in parts, and has one open at a
// time: [filepath.WalkDir] holds all names of a folder in memory and sorts them
// before it visits the first, which for millions of files takes seconds.
// The order is that of the file system.
func Walk(dir string, visit func(name string, d fs.DirEntry, err error) error) error {
	for pending := []string{dir}; len(pending) > 0; {
		at := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		err := eachEntry(at, func(d fs.DirEntry) error {
			name := filepath.Join(at, d.Name())
			if d.IsDir() {
				pending = append(pending, name)
			}
			return visit(name, d, nil)
		})
		if unreadable, ok := errors.AsType[*readError](err); ok {
			err = visit(at, nil, unreadable.error)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachEntry calls visit for each entry of one folder.
func eachEntry(dir string, visit func(fs.DirEntry) error) error {
	folder, err := os.Open(dir)
	if err != nil {
		return &readError{err}
	}
	defer func() { _ = folder.Close() }()
	for {
		entries, err := folder.ReadDir(walkBatch)
		for _, entry := range entries {
			if err := visit(entry); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return &readError{err}
		}
	}
}

// readError is the error of a folder that cannot be read.
type readError struct{ error }
