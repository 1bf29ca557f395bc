package archive

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spotworker/spotworker/internal/host/filetype"
)

// Open returns the folder as a stream, which has the same bytes each time. A read fails if
// a file has changed since the folder was scanned. It has one file open at a time, and the
// folders that it is in.
func (x *Index) Open() (io.ReadCloser, error) {
	root, err := filetype.OpenRoot(x.folder)
	if err != nil {
		return nil, err
	}
	r := &reader{index: x, dirs: dirs{top: root}, part: &head{index: x, list: x.list.read(), layout: x.layout()}, left: x.indexEnd}
	r.begin(false)
	return r, nil
}

func (x *Index) layout() layout { return newLayout(x.indexEnd, x.restsEnd) }

// head reads header and index, a few lines at a time.
type head struct {
	index   *Index
	list    *listReader // of the lines that are still to come
	layout  layout
	part    []byte
	started bool // the header was read
}

// Read implements [io.Reader].
func (h *head) Read(p []byte) (int, error) {
	const lines = 64
	if len(h.part) == 0 {
		h.part = h.part[:0]
		if !h.started {
			h.started = true
			h.part = appendHeader(h.part, h.index.version, h.index.indexEnd-int64(headerLen))
		}
		for range lines {
			e, err := h.list.next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return 0, err
			}
			h.layout.placeRest(e)
			h.layout.placeBody(e)
			h.part = e.appendLine(h.part)
		}
		if len(h.part) == 0 {
			return 0, io.EOF
		}
	}
	n := copy(p, h.part)
	h.part = h.part[n:]
	return n, nil
}

// piece is a run of a file's bytes and its place in the stream.
type piece struct {
	entry *entry
	at    int64 // in the stream
	from  int64 // in the file
	size  int64
}

// reader reads a folder as a stream: header and index, then the rests of all files, then
// their whole chunks, with zeros between them.
type reader struct {
	index *Index
	dirs  dirs

	list   *listReader // of the files whose pieces are still to come
	bodies bool        // these pieces are whole chunks
	layout layout

	gap *piece // the piece behind the zeros
	at  int64  // of the next byte

	part  io.Reader // the current part; nil if it is a piece that is not open
	piece *piece    // the current part, if it is a piece
	left  int64     // bytes that are left of it
	file  *os.File  // its open file, or nil
	err   error     // of the last Read; it is final
}

// begin begins with the rests or the whole chunks.
func (r *reader) begin(bodies bool) {
	r.list, r.layout, r.bodies = r.index.list.read(), r.index.layout(), bodies
}

// piecesAtOnce bounds how many files are read by one Read, so that a caller that is asked
// to stop does.
const piecesAtOnce = 256

// Read implements [io.Reader]. It fills p from several files: callers have costs for each
// call.
func (r *reader) Read(p []byte) (n int, err error) {
	for range piecesAtOnce {
		if n == len(p) || r.err != nil {
			break
		}
		var more int
		more, r.err = r.read(p[n:])
		n += more
	}
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

// read reads from one part.
func (r *reader) read(p []byte) (int, error) {
	if r.left == 0 {
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	if r.part == nil {
		if err := r.openPart(); err != nil {
			return 0, err
		}
	}
	n, err := r.part.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	r.at += int64(n)
	if err == io.EOF {
		err = nil
		if n == 0 && len(p) > 0 {
			return 0, fmt.Errorf("a file is shorter than it was: %w", ErrChanged)
		}
	}
	return n, err
}

// next starts the next piece, or the zeros before it.
func (r *reader) next() error {
	if err := r.closeFile(); err != nil {
		return err
	}
	next := r.gap
	if r.gap = nil; next == nil {
		var err error
		if next, err = r.nextPiece(); err != nil {
			return err
		}
		if gap := next.at - r.at; gap > 0 {
			r.gap, r.part, r.piece, r.left = next, zeros{}, nil, gap
			return nil
		}
	}
	r.part, r.piece, r.left = nil, next, next.size
	return nil
}

// openPart opens the file of the current piece. Some of its bytes may be skipped already.
func (r *reader) openPart() error {
	file, err := r.open(r.piece.entry)
	if err != nil {
		return err
	}
	from := r.piece.from + r.piece.size - r.left
	r.file, r.part = file, io.NewSectionReader(packed{file, r.piece.entry.holes}, from, r.left)
	return nil
}

// nextPiece returns the next piece of a file. Behind the last it compares the folder with
// its scan, and returns [io.EOF].
func (r *reader) nextPiece() (*piece, error) {
	for {
		e, err := r.list.next()
		switch {
		case errors.Is(err, io.EOF) && !r.bodies && r.index.bodies > 0:
			r.begin(true)
		case errors.Is(err, io.EOF):
			if err := r.index.verify(&r.dirs); err != nil {
				return nil, err
			}
			return nil, io.EOF
		case err != nil:
			return nil, err
		case r.bodies:
			r.layout.placeBody(e)
			if n := e.bodySize(); n > 0 {
				return &piece{entry: e, at: e.body, size: n}, nil
			}
		default:
			r.layout.placeRest(e)
			if n := e.restSize(); n > 0 {
				return &piece{entry: e, at: e.rest, from: e.bodySize(), size: n}, nil
			}
		}
	}
}

// open opens a file, which must not have changed since the scan.
func (r *reader) open(e *entry) (*os.File, error) {
	var file *os.File
	open := func() error {
		root, name, err := r.dirs.of(e.path)
		if err == nil {
			file, err = root.OpenFile(name, os.O_RDONLY|filetype.NoWait, 0)
		}
		return err
	}
	with := r.index.OpenWith
	if with == nil {
		with = func(open func() error) error { return open() }
	}
	if err := with(open); err != nil {
		return nil, changed(e, err)
	}
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || stampOf(info) != e.stamp) {
		err = changed(e, fs.ErrNotExist)
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
func (r *reader) Close() error { return errors.Join(r.closeFile(), r.dirs.Close()) }

// zeros is the padding between two parts.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
