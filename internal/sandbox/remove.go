package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// removeBatch is how many entries of a folder are read at once.
const removeBatch = 256

// RemoveTree removes a folder and all that is in it, also where the program that
// made it took its own rights away. It does not exist afterwards, or the error
// says why.
//
// Depth and number of entries are a program's choice, so neither may cost
// descriptors or memory: [os.RemoveAll] keeps a descriptor open for each level.
func RemoveTree(dir string) error {
	if err := RemoveContent(dir); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove folder: %w", err)
	}
	return nil
}

// RemoveContent removes all that is in a folder, with one descriptor. It moves
// each folder that it finds to the top under a short name before it looks into
// it, so that no path grows with the depth.
func RemoveContent(dir string) error {
	r := remover{top: dir}
	for pending := []string{dir}; len(pending) > 0; {
		at := pending[len(pending)-1]
		found, err := r.empty(at)
		switch {
		case err != nil:
			return fmt.Errorf("empty folder: %w", err)
		case len(found) > 0:
			pending = append(pending, found...)
		default:
			pending = pending[:len(pending)-1]
			if at == dir {
				return nil
			}
			if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("remove folder: %w", err)
			}
		}
	}
	return nil
}

// remover empties one folder.
type remover struct {
	top  string
	next int // number of the next name at the top
}

// empty removes the files in a folder, one batch after another. It returns after
// the first batch that has folders, which it has moved to the top; when it
// returns none the folder is empty.
func (r *remover) empty(dir string) (moved []string, err error) {
	for {
		entries, err := readBatch(dir)
		if errors.Is(err, fs.ErrPermission) && os.Chmod(dir, 0o700) == nil { //nolint:gosec // to be removed
			entries, err = readBatch(dir)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil || len(entries) == 0 {
			return nil, err
		}
		if err := r.removeAll(dir, entries, &moved); err != nil {
			if os.Chmod(dir, 0o700) != nil { //nolint:gosec // to be removed
				return nil, err
			}
			if err := r.removeAll(dir, entries, &moved); err != nil {
				return nil, err
			}
		}
		if len(moved) > 0 {
			return moved, nil
		}
	}
}

// readBatch returns some entries of a folder, none if it is empty.
func readBatch(dir string) ([]fs.DirEntry, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	entries, err := folder.ReadDir(removeBatch)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return entries, err
}

// removeAll removes files, and folders that are empty. It moves the others.
func (r *remover) removeAll(dir string, entries []fs.DirEntry, moved *[]string) error {
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		err := os.Remove(name)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
			continue
		case !entry.IsDir():
			return err
		}
		if dir == r.top {
			*moved = append(*moved, name)
			continue
		}
		to, err := r.hoist(name)
		if err != nil {
			return err
		}
		*moved = append(*moved, to)
	}
	return nil
}

// hoist moves a folder to the top, under a name that is free.
func (r *remover) hoist(dir string) (string, error) {
	_ = os.Chmod(dir, 0o700) //nolint:gosec // to be removed; moving a folder changes its parent entry
	for {
		r.next++
		to := filepath.Join(r.top, ".remove-"+strconv.Itoa(r.next))
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return to, os.Rename(dir, to)
	}
}
