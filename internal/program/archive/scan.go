package archive

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spotworker/spotworker/internal/host/filetype"
	"github.com/spotworker/spotworker/internal/program/archive/spill"
)

// Index lists the content of a folder, with the offsets of each file in its stream. It has
// to be closed: a long list is in a temporary file.
type Index struct {
	folder   string
	list     list
	entries  int
	version  int
	indexEnd int64 // where header and index end in the stream
	restsEnd int64 // where the rests end
	bodies   int64 // bytes of whole chunks
	size     int64
	stamp    stamp // of the folder

	// OpenWith calls a function that opens a file, and may call it again after an error.
	// Nil calls it once.
	OpenWith func(open func() error) error
}

// Scan reads the index of a folder, which must no longer change. A list of many files
// goes to temporary files in temp. The error wraps [ErrTooLarge] or [ErrUnfit] if the
// folder cannot be stored, and [ErrChanged] if it changes all the time. When ctx is
// cancelled, the scan ends with its error.
func Scan(ctx context.Context, dir, temp string, l Limits) (*Index, error) {
	for range 3 {
		index, newest, err := scan(ctx, dir, temp, l)
		if err != nil || !unsettled(newest, time.Now()) {
			return index, err
		}
		if err := index.Close(); err != nil {
			return nil, err
		}
		time.Sleep(settle)
	}
	return nil, fmt.Errorf("the folder %w", ErrChanged)
}

// scan also returns the time of the last change in the folder.
func scan(ctx context.Context, dir, temp string, l Limits) (*Index, time.Time, error) {
	top, err := os.Lstat(dir)
	if err != nil {
		return nil, time.Time{}, err
	}
	s := &scanner{
		ctx: ctx, folder: dir, limits: l, newest: top.ModTime(),
		entries: spill.NewSorter(temp, l.memory()), named: spill.NewSorter(temp, l.memory()), names: spill.NewSorter(temp, l.memory()),
	}
	index := &Index{folder: dir, stamp: stampOf(top), list: list{Buffer: spill.NewBuffer(temp, l.memory()/2)}, version: 1}
	err = Walk(dir, s.visit)
	if err == nil {
		err = s.linkNames()
	}
	if err == nil {
		err = s.fill(index)
	}
	if err = errors.Join(err, s.entries.Close(), s.named.Close(), s.names.Close()); err != nil {
		return nil, s.newest, errors.Join(err, index.Close())
	}
	return index, s.newest, nil
}

// scanner is the state of a scan. Its facts about entries are in sorters, so that its
// memory does not grow with their number.
type scanner struct {
	ctx    context.Context
	folder string
	limits Limits
	newest time.Time // the last change

	entries *spill.Sorter // by path
	named   *spill.Sorter // files with several names, here or elsewhere: inode and path
	names   *spill.Sorter // paths that are hard links, with their targets

	number        int   // of entries
	total, length int64 // bytes of files, and of paths and targets
}

// visit adds an entry.
func (s *scanner) visit(name string, d fs.DirEntry, err error) error {
	if err == nil {
		err = context.Cause(s.ctx)
	}
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
	e, err := entryOf(s.folder, name, info)
	if err != nil {
		return err
	}
	if info.ModTime().After(s.newest) {
		s.newest = info.ModTime()
	}
	if err := s.checkLimits(&e); err != nil {
		return err
	}
	if inode, links := inodeOf(info); links > 1 && e.isFile() {
		key := append(binary.BigEndian.AppendUint64(nil, inode), e.path...)
		if err := s.named.Add(key, nil); err != nil {
			return err
		}
	}
	return s.entries.Add([]byte(e.path), e.details())
}

func (s *scanner) checkLimits(e *entry) error {
	if s.number++; s.number > s.limits.Entries {
		return fmt.Errorf("%w: more than %d files and folders", ErrTooLarge, s.limits.Entries)
	}
	if s.length += int64(len(e.path) + len(e.target)); s.length > s.limits.Index {
		return s.tooLong()
	}
	if s.total += e.size; s.total > s.limits.Bytes || s.total < 0 {
		return fmt.Errorf("%w: more than %d bytes of files", ErrTooLarge, s.limits.Bytes)
	}
	return nil
}

// tooLong is the error of a folder whose index would be too long.
func (s *scanner) tooLong() error {
	return fmt.Errorf("%w: the names of its files have more than %d bytes", ErrTooLarge, s.limits.Index)
}

// linkNames finds the names of each file but the first, in the order of paths.
func (s *scanner) linkNames() error {
	all, err := s.named.Sorted()
	if err != nil {
		return err
	}
	for first := []byte(nil); ; {
		key, _, err := all.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(first) == 0 || !bytes.Equal(first[:8], key[:8]) {
			first = append(first[:0], key...)
			continue
		}
		if err := s.names.Add(key[8:], first[8:]); err != nil {
			return err
		}
	}
}

// fill makes the index of all entries that were found. All names of a file but the first
// are hard links to that.
func (s *scanner) fill(x *Index) error {
	entries, err := s.entries.Sorted()
	if err != nil {
		return err
	}
	names, err := s.names.Sorted()
	if err != nil {
		return err
	}
	name, target, noName := names.Next()
	x.entries, x.indexEnd = s.number, int64(headerLen)
	for {
		path, details, err := entries.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		e, err := decodeDetails(path, details)
		if err != nil {
			return err
		}
		if noName == nil && string(name) == e.path {
			e = &entry{kind: hardLink, path: e.path, target: string(target), stamp: e.stamp}
			name, target, noName = names.Next()
		}
		x.version = max(x.version, e.version())
		x.indexEnd += e.lineLen()
		x.bodies += e.bodySize()
		if err := x.list.add(e); err != nil {
			return err
		}
	}
	if !errors.Is(noName, io.EOF) {
		return cmp.Or(noName, errList)
	}
	x.version = max(x.version, versionFor(x.entries, x.indexEnd-int64(headerLen)))
	return s.measure(x)
}

// measure sets where the stream's parts end.
func (s *scanner) measure(x *Index) error {
	if x.indexEnd-int64(headerLen) > s.limits.Index {
		return s.tooLong()
	}
	l := newLayout(x.indexEnd, 0)
	if err := x.list.each(func(e *entry) error { l.placeRest(e); return nil }); err != nil {
		return err
	}
	x.restsEnd, x.size = l.restsEnd, l.restsEnd
	if x.bodies > 0 {
		x.size = nextChunk(x.restsEnd) + x.bodies
	}
	if x.size > s.limits.Bytes {
		return fmt.Errorf("%w: it amounts to %d bytes, of %d allowed", ErrTooLarge, x.size, s.limits.Bytes)
	}
	return nil
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
		return entry{}, fmt.Errorf("%w: %q is a %s, and only files, folders and links between them are kept", ErrUnfit, e.path,
			filetype.Name(info.Mode()))
	}
	e.kind, e.size = plain, info.Size()
	if e.size >= leastCompared {
		e.born = bornAt(name, e.stamp)
	}
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
	file, err := os.OpenFile(name, os.O_RDONLY|filetype.NoWait, 0)
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
		return entry{}, fmt.Errorf("%w: %q is a symbolic link to %.200q: %w; only links that stay in the checkpoint are kept", ErrUnfit, e.path,
			target, err)
	}
	return e, nil
}

// Version is the lowest version of the format that has everything in the folder. Versions
// of this package that do not know it reject the stream: 2 has symbolic links, 3 hard links
// and sparse files, 4 more than 200,000 entries or names of more than 64 MiB.
func (x *Index) Version() int { return x.version }

// Entries is the number of files, folders and links.
func (x *Index) Entries() int { return x.entries }

// Size is the length of the stream in bytes.
func (x *Index) Size() int64 { return x.size }

// Close implements [io.Closer]. The index and its streams cannot be used afterwards.
func (x *Index) Close() error { return x.list.Close() }
