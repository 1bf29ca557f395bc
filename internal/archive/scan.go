package archive

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Index lists the content of a folder, with the offsets of each file in its stream.
type Index struct {
	folder  string
	entries []entry
	size    int64
	stamp   stamp // of the folder
}

// errNames is the error of a folder whose index would be too long.
var errNames = fmt.Errorf("%w: the names of its files have more than %d bytes", ErrTooLarge, maxIndex)

// Scan reads the index of a folder, which must not change any more. The error wraps
// [ErrTooLarge] or [ErrUnfit] if the folder cannot be stored, and [ErrChanged] if it
// changes all the time.
func Scan(dir string, l Limits) (*Index, error) {
	for range 3 {
		index, newest, err := scan(dir, l)
		if err != nil || !unsettled(newest, time.Now()) {
			return index, err
		}
		time.Sleep(settle)
	}
	return nil, fmt.Errorf("the folder %w", ErrChanged)
}

// scan also returns the time of the last change in the folder.
func scan(dir string, l Limits) (*Index, time.Time, error) {
	top, err := os.Lstat(dir)
	if err != nil {
		return nil, time.Time{}, err
	}
	s := scanner{index: &Index{folder: dir, stamp: stampOf(top)}, limits: l, newest: top.ModTime(), files: map[uint64][]int{}}
	if err := Walk(dir, s.visit); err != nil {
		return nil, s.newest, err
	}
	index := s.index
	index.linkNames(s.files)
	slices.SortFunc(index.entries, func(a, b entry) int { return cmp.Compare(a.path, b.path) })
	indexEnd := encodedLen(index.entries)
	if indexEnd > maxIndex {
		return nil, s.newest, errNames
	}
	if index.size = place(index.entries, indexEnd); index.size > l.Bytes {
		return nil, s.newest, fmt.Errorf("%w: it amounts to %d bytes, of %d allowed", ErrTooLarge, index.size, l.Bytes)
	}
	return index, s.newest, nil
}

// scanner is the state of a scan.
type scanner struct {
	index        *Index
	limits       Limits
	newest       time.Time        // the last change
	files        map[uint64][]int // those with several names, by inode
	total, names int64            // bytes
}

// visit adds an entry.
func (s *scanner) visit(name string, d fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	info, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%q: %w", name, ErrChanged)
	}
	if err != nil {
		return err
	}
	e, err := entryOf(s.index.folder, name, info)
	if err != nil {
		return err
	}
	if info.ModTime().After(s.newest) {
		s.newest = info.ModTime()
	}
	if inode, links := inodeOf(info); links > 1 && e.isFile() {
		s.files[inode] = append(s.files[inode], len(s.index.entries))
	}
	s.index.entries = append(s.index.entries, e)
	return s.checkLimits(&e)
}

func (s *scanner) checkLimits(e *entry) error {
	if len(s.index.entries) > s.limits.Entries {
		return fmt.Errorf("%w: more than %d files and folders", ErrTooLarge, s.limits.Entries)
	}
	if s.names += int64(len(e.path) + len(e.target)); s.names > maxIndex {
		return errNames
	}
	if s.total += e.size; s.total > s.limits.Bytes || s.total < 0 {
		return fmt.Errorf("%w: more than %d bytes of files", ErrTooLarge, s.limits.Bytes)
	}
	return nil
}

// linkNames makes all names of a file but the first, in the order of paths, hard links to
// that.
func (x *Index) linkNames(files map[uint64][]int) {
	for _, names := range files {
		first := slices.MinFunc(names, func(a, b int) int { return cmp.Compare(x.entries[a].path, x.entries[b].path) })
		for _, i := range names {
			if e := &x.entries[i]; i != first {
				*e = entry{kind: hardLink, path: e.path, target: x.entries[first].path, stamp: e.stamp}
			}
		}
	}
}

// entryOf describes one file or folder.
func entryOf(dir, name string, info fs.FileInfo) (entry, error) {
	relative, err := filepath.Rel(dir, name)
	if err != nil {
		return entry{}, err
	}
	e := entry{kind: folder, path: filepath.ToSlash(relative), stamp: stampOf(info)}
	if len(e.path) > maxPath {
		return entry{}, fmt.Errorf("%w: the path %.80q… has more than %d bytes", ErrUnfit, e.path, maxPath)
	}
	switch {
	case info.IsDir():
		return e, nil
	case info.Mode()&fs.ModeSymlink != 0:
		return e.asLink(name)
	case !info.Mode().IsRegular():
		return entry{}, fmt.Errorf("%w: %q is a %s, and only files, folders and links between them are kept", ErrUnfit, e.path, describe(info.Mode()))
	}
	e.kind, e.size = plain, info.Size()
	if info.Mode()&0o100 != 0 {
		e.kind = executable
	}
	if e.size-Allocated(info) < leastHole {
		return e, nil
	}
	return e.withHoles(name)
}

// withHoles describes a file that has holes.
func (e entry) withHoles(name string) (entry, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|noWait, 0)
	if err != nil {
		return entry{}, err
	}
	defer func() { _ = file.Close() }()
	data, err := dataOf(file, e.size)
	if err != nil {
		return entry{}, err
	}
	holes := &ranges{size: e.size, all: merged(data)}
	if n := holes.data(); n < e.size {
		e.kind, e.size, e.holes = map[byte]byte{plain: sparse, executable: sparseExec}[e.kind], n, holes
	}
	return e, nil
}

// asLink describes a symbolic link, which must lead to a place in the folder.
func (e entry) asLink(name string) (entry, error) {
	target, err := os.Readlink(name)
	if err != nil {
		return entry{}, err
	}
	e.kind, e.target = link, filepath.ToSlash(target)
	if err := checkTarget(e.path, target); err != nil {
		return entry{}, fmt.Errorf("%w: %q is a symbolic link to %.200q: %w; only links that stay in the checkpoint are kept", ErrUnfit, e.path, target, err)
	}
	return e, nil
}

func describe(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	default:
		return "device"
	}
}

// Version is the lowest version of the format that has everything in the folder. Versions
// of this package that do not know it reject the stream: 2 has symbolic links, 3 hard links
// and sparse files.
func (x *Index) Version() int { return versionOf(x.entries) }

// Entries is the number of files, folders and links.
func (x *Index) Entries() int { return len(x.entries) }

// Size is the length of the stream in bytes.
func (x *Index) Size() int64 { return x.size }
