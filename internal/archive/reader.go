package archive

import (
	"bytes"
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
	head := encode(x.entries)
	return &reader{root: root, pieces: pieces(x.entries), part: bytes.NewReader(head), left: int64(len(head))}, nil
}

// reader reads a folder as a stream: header and index, then the pieces and the zeros
// between them.
type reader struct {
	root   *os.Root
	pieces []piece // still to come
	at     int64   // of the next byte

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
			return 0, fmt.Errorf("a file of folder %s is shorter than it was", filepath.Base(r.root.Name()))
		}
	}
	return n, err
}

// next starts the next piece, or the zeros before it.
func (r *reader) next() error {
	if err := r.closeFile(); err != nil {
		return err
	}
	if len(r.pieces) == 0 {
		return io.EOF
	}
	piece := r.pieces[0]
	if gap := piece.at - r.at; gap > 0 {
		r.part, r.left = zeros{}, gap
		return nil
	}
	r.pieces = r.pieces[1:]
	file, err := r.open(piece.entry)
	if err != nil {
		return err
	}
	r.file, r.part, r.left = file, io.NewSectionReader(file, piece.from, piece.size), piece.size
	return nil
}

// open opens a file, which must not have changed since the scan.
func (r *reader) open(e *entry) (*os.File, error) {
	file, err := r.root.OpenFile(filepath.FromSlash(e.path), os.O_RDONLY|noWait, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() != e.size) {
		err = fmt.Errorf("file %q changed after its folder was renamed into place", e.path)
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
func (r *reader) Close() error { return errors.Join(r.closeFile(), r.root.Close()) }

// zeros is the padding between two parts.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
