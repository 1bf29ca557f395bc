package archive

import (
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/spotworker/spotworker/internal/host/filetype"
)

// walkBatch is how many entries of a folder are read at once.
const walkBatch = 1024

// Walk calls visit for everything below a folder, each folder before its content,
// in the order of the file system. It stops at the first error that visit returns.
// It calls visit with an error, and without an entry, for a folder that it cannot
// read.
//
// It reads folders in batches, has one open at a time, and remembers of each
// folder to come its own name alone. [filepath.WalkDir] holds all names of a
// folder in memory and sorts them before it visits the first, which for millions
// of files takes seconds.
func Walk(dir string, visit func(name string, d fs.DirEntry, err error) error) error {
	for pending := []*node{{name: dir}}; len(pending) > 0; {
		at := pending[len(pending)-1]
		pending = pending[:len(pending)-1]
		path := at.path()
		err := eachEntry(path, func(d fs.DirEntry) error {
			if d.IsDir() {
				pending = append(pending, &node{parent: at, name: d.Name()})
			}
			return visit(filepath.Join(path, d.Name()), d, nil)
		})
		if unreadable, ok := errors.AsType[*readError](err); ok {
			err = visit(path, nil, unreadable.error)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// node is a folder that is to be visited. A path may have 4 KiB, and a tree
// millions of folders.
type node struct {
	parent *node
	name   string
}

func (n *node) path() string {
	var names []string
	for ; n != nil; n = n.parent {
		names = append(names, n.name)
	}
	slices.Reverse(names)
	return filepath.Join(names...)
}

// eachEntry calls visit for each entry of one folder.
func eachEntry(dir string, visit func(fs.DirEntry) error) error {
	folder, err := filetype.OpenFolder(dir)
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
