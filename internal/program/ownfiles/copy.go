package ownfiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/spotworker/spotworker/internal/host/filetype"
)

// errChanged is the error of a file that is another one than before, or has become shorter.
var errChanged = errors.New("the file has changed")

// part is how much is copied between two looks at whether the job was stopped, in bytes.
const part = 16 << 20

// copying is a folder that files are brought into.
type copying struct {
	from, to *os.Root
	dir      string
}

// newCopying makes a folder for the files in from.
func newCopying(from *os.Root, dir string) (*copying, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	to, err := filetype.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &copying{from: from, to: to, dir: dir}, nil
}

func (c *copying) close() { _ = c.to.Close() }

// parent makes the folder of a file.
func (c *copying) parent(name string) error {
	if dir := path.Dir(name); dir != "." {
		return c.to.MkdirAll(filepath.FromSlash(dir), 0o700)
	}
	return nil
}

// link gives a file of another folder a second name. The folders that lead there are not
// written to by a program.
func (c *copying) link(from, name string) error {
	local := filepath.FromSlash(name)
	if err := c.parent(name); err != nil {
		return err
	}
	return os.Link(filepath.Join(from, local), filepath.Join(c.dir, local))
}

// copy copies a file as far as it went when it was looked at, or a symbolic link.
func (c *copying) copy(ctx context.Context, name string, was fs.FileInfo) (err error) {
	local := filepath.FromSlash(name)
	if err := c.parent(name); err != nil {
		return err
	}
	if was.Mode()&fs.ModeSymlink != 0 {
		target, err := c.from.Readlink(local)
		if err != nil {
			return changedIfGone(err)
		}
		return c.to.Symlink(target, local)
	}
	in, err := c.from.OpenFile(local, os.O_RDONLY|filetype.NoWait, 0)
	if err != nil {
		return changedIfGone(err)
	}
	defer func() { _ = in.Close() }()
	if info, err := in.Stat(); err != nil || !os.SameFile(info, was) || info.Size() < was.Size() {
		return errors.Join(err, errChanged)
	}
	mode := os.FileMode(0o600)
	if was.Mode()&0o100 != 0 {
		mode = 0o700
	}
	out, err := c.to.OpenFile(local, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	for left := was.Size(); left > 0 && err == nil; left -= part {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
			break
		}
		_, err = io.CopyN(out, in, min(left, part))
	}
	if errors.Is(err, io.EOF) {
		err = errChanged // it has become shorter
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return err
	}
	return c.to.Chtimes(local, time.Time{}, was.ModTime())
}

func changedIfGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: %w", errChanged, err)
	}
	return err
}
