package archive

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// stamp tells whether a file or folder has been written to. It leaves out the time of the
// last change of an inode, which a new hard link to it changes too: programs link files
// that do not change into their next checkpoint.
type stamp struct {
	inode    uint64 // 0 where files have no number
	modified int64  // nanoseconds
}

func stampOf(info fs.FileInfo) stamp {
	inode, _ := inodeOf(info)
	return stamp{inode: inode, modified: info.ModTime().UnixNano()}
}

// settle is how long after its last change a folder is scanned again: file systems take
// the time of a change from a clock that stands still for some milliseconds, so that a
// later change may have the same time.
const settle = 20 * time.Millisecond

// unsettled reports whether a change at that time could be followed by another with the
// same time.
func unsettled(modified, now time.Time) bool {
	age := now.Sub(modified)
	return age >= 0 && age < settle
}

// changed returns the error of an entry that could not be found or opened, or is another one
// now: [ErrChanged], unless it may be for a reason that lies elsewhere.
func changed(err error) error {
	always := []error{ErrChanged, fs.ErrPermission, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.EIO}
	for _, as := range append(always, heldErrors...) {
		if errors.Is(err, as) {
			return err
		}
	}
	return fmt.Errorf("%w: %s", ErrChanged, err.Error())
}

// File is a file whose last Read fails with [ErrChanged] if something has written to it
// since Stat.
type File struct {
	file *os.File
	was  fs.FileInfo
}

// OpenFile returns an opened file that must not change since it was was.
func OpenFile(file *os.File, was fs.FileInfo) *File { return &File{file, was} }

// Read implements [io.Reader].
func (f *File) Read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	if err != nil || n == 0 {
		if info, failed := f.file.Stat(); failed != nil || stampOf(info) != stampOf(f.was) || info.Size() != f.was.Size() {
			return n, fmt.Errorf("the file %w", ErrChanged)
		}
	}
	return n, err
}

// Close implements [io.Closer].
func (f *File) Close() error { return f.file.Close() }

// Await waits until a change of a file that was last changed at that time would show.
func Await(info fs.FileInfo) {
	if unsettled(info.ModTime(), time.Now()) {
		time.Sleep(settle)
	}
}
