package sandbox

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// HeldShort is how long to wait for a virus scanner that has a file of the job open,
// which takes about a second; see [WhileHeld]. HeldLong is how long to wait where nothing
// but a failure of the job is left.
const (
	HeldShort = 2 * time.Second
	HeldLong  = 30 * time.Second
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
	if err := WhileHeld(removeHeld, func() error { return remove(dir) }); err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	return nil
}

// removeHeld is how long a removal waits for other processes that have a file open.
const removeHeld = 5 * time.Second

// RemoveContent removes all that is in a folder. It waits for a virus scanner that
// has a file open, see [WhileHeld], and then continues where it was.
func RemoveContent(dir string) error {
	return WhileHeld(removeHeld, func() error { return removeContent(dir) })
}

// removeContent removes all that is in a folder, with two descriptors, and with
// memory for one batch of names. It works level by level: it empties each folder of
// a level, and moves the folders in it to a new folder at the top, which is the
// next level. So no path grows with the depth, and each level is read once.
func removeContent(dir string) error {
	r := remover{top: dir}
	for level := dir; level != ""; {
		if err := r.empty(level, r.removeLevel); err != nil {
			return fmt.Errorf("empty folder: %w", err)
		}
		if level != dir {
			if err := remove(level); err != nil {
				return fmt.Errorf("remove folder: %w", err)
			}
		}
		level, r.next = r.next, ""
	}
	return nil
}

// remover empties one folder.
type remover struct {
	top    string
	next   string // folder that the next level is moved to; empty while there is none
	number int    // of the last name that was made up
}

// empty calls do for each entry of a folder until there is none. A pass reads the
// folder in batches through one descriptor: opening it for each batch would make
// the file system skip the removed entries every time.
func (r *remover) empty(dir string, do func(name string, entry fs.DirEntry) error) error {
	for {
		entries, err := r.pass(dir, do)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entries == 0 {
			return err
		}
	}
}

func (r *remover) pass(dir string, do func(name string, entry fs.DirEntry) error) (entries int, err error) {
	folder, err := openFolder(dir)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(dir, 0o700) == nil { //nolint:gosec // to be removed
		folder, err = openFolder(dir)
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = folder.Close() }()
	for {
		batch, err := folder.ReadDir(removeBatch)
		for _, entry := range batch {
			name := filepath.Join(dir, entry.Name())
			if name == r.next {
				continue
			}
			entries++
			err := do(name, entry)
			if err != nil && os.Chmod(dir, 0o700) == nil { //nolint:gosec // to be removed
				err = do(name, entry)
			}
			if err != nil {
				return entries, err
			}
		}
		if errors.Is(err, io.EOF) {
			return entries, nil
		}
		if err != nil {
			return entries, err
		}
	}
}

// removeLevel removes one entry of a level, after it has moved the folders in it
// to the next level.
func (r *remover) removeLevel(name string, entry fs.DirEntry) error {
	err := remove(name)
	if err == nil || !entry.IsDir() {
		return err
	}
	if err := r.empty(name, r.removeOrMove); err != nil {
		return err
	}
	return remove(name)
}

// removeOrMove removes a file or an empty folder. It moves another folder to the
// next level.
func (r *remover) removeOrMove(name string, entry fs.DirEntry) error {
	err := remove(name)
	if err == nil || !entry.IsDir() {
		return err
	}
	if r.next == "" {
		r.next = r.newLevel()
	}
	_ = os.Chmod(name, 0o700) //nolint:gosec // to be removed; moving a folder changes its parent entry
	to, err := r.free(r.next)
	if err == nil {
		err = os.Rename(name, to)
	}
	return err
}

// newLevel makes a folder at the top. It returns the top itself where none can be
// made, as on a full disk: the next level is then found there.
func (r *remover) newLevel() string {
	name, err := r.free(r.top)
	if err != nil || os.Mkdir(name, 0o700) != nil {
		return r.top
	}
	return name
}

// free returns a name in a folder that nothing has.
func (r *remover) free(dir string) (string, error) {
	for {
		r.number++
		name := filepath.Join(dir, ".remove-"+strconv.Itoa(r.number))
		switch _, err := os.Lstat(name); {
		case errors.Is(err, fs.ErrNotExist):
			return name, nil
		case err != nil:
			return "", err
		}
	}
}

// remove removes a file or an empty folder, if it is there.
func remove(name string) error {
	if err := os.Remove(name); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
