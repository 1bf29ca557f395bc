package archive

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Open returns the folder as a stream, which has the same bytes each time. A read fails if
// a file has changed since the folder was scanned. It has one file open at a time.
func (x *Index) Open() (io.ReadCloser, error) {
	root, err := os.OpenRoot(x.folder)
	if err != nil {
		return nil, err
	}
	size := encodedLen(x.entries)
	return &reader{index: x, root: root, pieces: pieces{entries: x.entries}, part: newHead(x.entries, size), left: size}, nil
}

// head reads header and index, a few lines at a time.
type head struct {
	entries []entry // whose lines are still to come
	part    []byte
}

func newHead(entries []entry, size int64) *head {
	return &head{entries: entries, part: appendHeader(nil, entries, size-int64(headerLen))}
}

// Read implements [io.Reader].
func (h *head) Read(p []byte) (int, error) {
	const lines = 64
	if len(h.part) == 0 {
		n := min(lines, len(h.entries))
		if n == 0 {
			return 0, io.EOF
		}
		for i := range n {
			h.part = h.entries[i].appendLine(h.part)
		}
		h.entries = h.entries[n:]
	}
	n := copy(p, h.part)
	if h.part = h.part[n:]; len(h.part) == 0 {
		h.part = h.part[:0]
	}
	return n, nil
}

// reader reads a folder as a stream: header and index, then the pieces and the zeros
// between them.
type reader struct {
	index  *Index
	root   *os.Root
	pieces pieces // still to come
	gap    *piece // the piece behind the zeros
	at     int64  // of the next byte

	part io.Reader // the current part
	left int64     // bytes that are left of it
	file *os.File  // its open file, or nil
}

// Read implements [io.Reader].
func (r *reader) Read(p []byte) (int, error) {
	if r.left == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n, err := r.part.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	r.at += int64(n)
	if err == io.EOF {
		err = nil
		if n == 0 && len(p) > 0 {
			return 0, fmt.Errorf("a file of folder %s is shorter than it was: %w", filepath.Base(r.root.Name()), ErrChanged)
		}
	}
	return n, err
}

// next starts the next piece, or the zeros before it.
func (r *reader) next() error {
	if err := r.closeFile(); err != nil {
		return err
	}
	var piece piece
	if r.gap != nil {
		piece, r.gap = *r.gap, nil
	} else {
		next, ok := r.pieces.next()
		if !ok {
			if err := r.index.verify(); err != nil {
				return err
			}
			return io.EOF
		}
		if gap := next.at - r.at; gap > 0 {
			r.gap, r.part, r.left = &next, zeros{}, gap
			return nil
		}
		piece = next
	}
	file, err := r.open(piece.entry)
	if err != nil {
		return err
	}
	r.file, r.part, r.left = file, io.NewSectionReader(packed{file, piece.entry.holes}, piece.from, piece.size), piece.size
	return nil
}

// open opens a file, which must not have changed since the scan.
func (r *reader) open(e *entry) (*os.File, error) {
	file, err := r.root.OpenFile(filepath.FromSlash(e.path), os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || stampOf(info) != e.stamp) {
		err = fmt.Errorf("file %q: %w", e.path, ErrChanged)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

func (r *reader) closeFile() error {
	file := r.file
	if r.file = nil; file == nil {
		return nil
	}
	return file.Close()
}

// Close implements [io.Closer].
func (r *reader) Close() error {
	return errors.Join(r.closeFile(), r.root.Close())
}

// zeros is the padding between two parts.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
