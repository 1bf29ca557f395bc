package archive

import (
	"cmp"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Index lists the content of a folder, with the offsets of each file in its stream.
type Index struct {
	folder  string
	entries []entry
	size    int64
}

// errNames is the error of a folder whose index would be too long.
var errNames = fmt.Errorf("%w: the names of its files have more than %d bytes", ErrTooLarge, maxIndex)

// Scan reads the index of a folder, which must not change any more. The error wraps
// [ErrTooLarge] or [ErrUnfit] if the folder cannot be stored.
func Scan(dir string, l Limits) (*Index, error) {
	index := &Index{folder: dir}
	var total, names int64
	err := Walk(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		e, err := entryOf(dir, name, d)
		if err != nil {
			return err
		}
		index.entries = append(index.entries, e)
		if len(index.entries) > l.Entries {
			return fmt.Errorf("%w: more than %d files and folders", ErrTooLarge, l.Entries)
		}
		if names += int64(len(e.path) + len(e.target)); names > maxIndex {
			return errNames
		}
		if total += e.size; total > l.Bytes || total < 0 {
			return fmt.Errorf("%w: more than %d bytes of files", ErrTooLarge, l.Bytes)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(index.entries, func(a, b entry) int { return cmp.Compare(a.path, b.path) })
	indexEnd := encodedLen(index.entries)
	if indexEnd > maxIndex {
		return nil, errNames
	}
	if index.size = place(index.entries, indexEnd); index.size > l.Bytes {
		return nil, fmt.Errorf("%w: it amounts to %d bytes, of %d allowed", ErrTooLarge, index.size, l.Bytes)
	}
	return index, nil
}

// entryOf describes one file or folder.
func entryOf(dir, name string, d fs.DirEntry) (entry, error) {
	relative, err := filepath.Rel(dir, name)
	if err != nil {
		return entry{}, err
	}
	e := entry{kind: folder, path: filepath.ToSlash(relative)}
	if len(e.path) > maxPath {
		return entry{}, fmt.Errorf("%w: the path %.80q… has more than %d bytes", ErrUnfit, e.path, maxPath)
	}
	switch {
	case d.IsDir():
		return e, nil
	case d.Type()&fs.ModeSymlink != 0:
		return e.asLink(name)
	case !d.Type().IsRegular():
		return entry{}, fmt.Errorf("%w: %q is a %s, and only files, folders and links between them are kept", ErrUnfit, e.path, describe(d.Type()))
	}
	info, err := d.Info()
	if err != nil {
		return entry{}, err
	}
	e.kind, e.size = plain, info.Size()
	if info.Mode()&0o100 != 0 {
		e.kind = executable
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

// HasLinks reports whether the folder has symbolic links. Earlier versions of this package
// reject such a stream.
func (x *Index) HasLinks() bool { return hasLinks(x.entries) }

// Size is the length of the stream in bytes.
func (x *Index) Size() int64 { return x.size }
