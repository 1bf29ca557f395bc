package archive

import (
	"archive/tar"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/host/filetype"
)

// pass goes through a folder in the order of its stream: the names of each folder in
// ascending order, and a folder's content behind it. It holds the names of the folders on the
// way that are still to come, and the paths of files with several names.
type pass struct {
	ctx    context.Context
	limits Limits
	dirs   dirs
	levels []level
	first  map[uint64]string // inode and first path of files with several names

	entries, names, bytes int64 // that were found
	newest                time.Time
	digest                maphash.Hash // of everything but the bytes of files
}

// level is a folder with the names that are still to come.
type level struct {
	prefix string // of their paths
	names  []string
}

// seed is the seed of all hashes, which are compared only in this process.
var seed = maphash.MakeSeed()

func newPass(ctx context.Context, dir string, l Limits) (*pass, error) {
	root, err := filetype.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	p := &pass{ctx: ctx, limits: l, dirs: dirs{top: root}, first: map[uint64]string{}}
	p.digest.SetSeed(seed)
	info, err := os.Lstat(dir)
	if err == nil {
		p.note(&entry{stamp: stampOf(info)}, info)
		err = p.enter(".", "")
	}
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close implements [io.Closer].
func (p *pass) Close() error { return p.dirs.Close() }

// next returns the next entry, or [io.EOF].
func (p *pass) next() (*entry, error) {
	for len(p.levels) > 0 {
		last := &p.levels[len(p.levels)-1]
		if len(last.names) == 0 {
			p.levels = p.levels[:len(p.levels)-1]
			continue
		}
		path := last.prefix + last.names[0]
		last.names = last.names[1:]
		e, err := p.find(path)
		if err == nil && e.kind == tar.TypeDir {
			err = p.enter(path, path+"/")
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
			err = fmt.Errorf("%q: %w", path, ErrChanged)
		}
		return e, err
	}
	return nil, io.EOF
}

// enter reads the names of a folder, whose paths have that prefix.
func (p *pass) enter(path, prefix string) error {
	root, name, err := p.dirs.of(path)
	if err != nil {
		return err
	}
	folder, err := root.OpenFile(name, os.O_RDONLY|filetype.NoWait, 0)
	if err != nil {
		return err
	}
	defer func() { _ = folder.Close() }()
	l := level{prefix: prefix}
	for {
		names, err := folder.Readdirnames(walkBatch)
		l.names = append(l.names, names...)
		for _, name := range names {
			p.names += int64(len(prefix) + len(name))
		}
		p.entries += int64(len(names))
		switch {
		case p.ctx.Err() != nil:
			return context.Cause(p.ctx)
		case p.entries > int64(p.limits.Entries):
			return fmt.Errorf("%w: more than %d files and folders", ErrTooLarge, p.limits.Entries)
		case p.names > p.limits.Names:
			return p.tooLong()
		case errors.Is(err, io.EOF):
			slices.Sort(l.names)
			p.levels = append(p.levels, l)
			return nil
		case err != nil:
			return err
		}
	}
}

func (p *pass) tooLong() error {
	return fmt.Errorf("%w: the names of its files have more than %d bytes", ErrTooLarge, p.limits.Names)
}

// find describes one file, folder or link.
func (p *pass) find(path string) (*entry, error) {
	if err := p.ctx.Err(); err != nil {
		return nil, context.Cause(p.ctx)
	}
	if len(path) > maxPath {
		return nil, fmt.Errorf("%w: the path %.80q… has more than %d bytes", ErrUnfit, path, maxPath)
	}
	root, name, err := p.dirs.of(path)
	if err != nil {
		return nil, err
	}
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	e := &entry{kind: tar.TypeDir, path: path, stamp: stampOf(info)}
	switch {
	case info.IsDir():
	case info.Mode()&fs.ModeSymlink != 0:
		err = e.asLink(root, name)
	case info.Mode().IsRegular():
		err = p.asFile(e, root, name, info)
	default:
		err = fmt.Errorf("%w: %q is a %s, and only files, folders and links between them are kept", ErrUnfit, path, filetype.Name(info.Mode()))
	}
	if err != nil {
		return nil, err
	}
	p.names += int64(len(e.target))
	p.bytes += e.size
	switch {
	case p.names > p.limits.Names:
		return nil, p.tooLong()
	case p.bytes > p.limits.Bytes || p.bytes < 0:
		return nil, fmt.Errorf("%w: more than %d bytes of files", ErrTooLarge, p.limits.Bytes)
	}
	p.note(e, info)
	return e, nil
}

// asFile describes a file, or another name of a file before it.
func (p *pass) asFile(e *entry, root *os.Root, name string, info fs.FileInfo) error {
	e.kind, e.exec, e.modified = tar.TypeReg, info.Mode()&0o100 != 0, info.ModTime()
	if inode, names := inodeOf(info); names > 1 {
		if e.target = p.first[inode]; e.target != "" {
			e.kind = tar.TypeLink
			return nil
		}
		p.first[inode] = e.path
	}
	e.size = info.Size()
	if e.size-Allocated(info) < leastHole {
		return nil
	}
	file, err := root.OpenFile(name, os.O_RDONLY|filetype.NoWait, 0)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	data, err := dataOf(file, e.size)
	if err != nil {
		return err
	}
	if e.holes = newRanges(e.size, data); e.holes != nil {
		e.size = e.holes.data()
	}
	return nil
}

// asLink describes a symbolic link, which must lead to a place in the folder.
func (e *entry) asLink(root *os.Root, name string) error {
	target, err := root.Readlink(name)
	if err != nil {
		return err
	}
	e.kind, e.target = tar.TypeSymlink, filepath.ToSlash(target)
	if err := checkTarget(e.path, target); err != nil {
		return fmt.Errorf("%w: %q is a symbolic link to %.200q: %w; only links that stay in the folder are kept", ErrUnfit, e.path,
			target, err)
	}
	return nil
}

// note adds an entry to the digest.
func (p *pass) note(e *entry, info fs.FileInfo) {
	if info.ModTime().After(p.newest) {
		p.newest = info.ModTime()
	}
	for _, text := range []string{e.path, e.target, e.holes.String()} {
		_, _ = p.digest.WriteString(text) // it never fails
		_ = p.digest.WriteByte(0)
	}
	var facts [26]byte
	facts[0] = e.kind
	if e.exec {
		facts[1] = 1
	}
	binary.LittleEndian.PutUint64(facts[2:], uint64(e.size))
	binary.LittleEndian.PutUint64(facts[10:], uint64(e.stamp.modified))
	binary.LittleEndian.PutUint64(facts[18:], e.stamp.inode)
	_, _ = p.digest.Write(facts[:])
}
