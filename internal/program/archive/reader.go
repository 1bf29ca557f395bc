package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/spotworker/spotworker/internal/host/filetype"
)

// Open returns the folder as a stream, which has the same bytes each time. A read fails if
// something has changed since the folder was scanned, at the end of the stream at the latest.
// It has one file open at a time, and the folders that it is in.
func (x *Index) Open() (io.ReadCloser, error) {
	p, err := newPass(context.Background(), x.folder, x.limits)
	if err != nil {
		return nil, err
	}
	return &reader{index: x, pass: p}, nil
}

// reader reads a folder as a stream: of each entry the header, the data, and zeros up to a
// whole block.
type reader struct {
	index *Index
	pass  *pass
	at    int64 // of the next byte

	entry         *entry
	header        []byte // that is left, or the end of the stream
	data, padding int64  // bytes that are left of the entry
	file          *os.File
	ended         bool
	err           error // of the last Read; it is final
}

// entriesAtOnce bounds how many files are read by one Read, so that a caller that is asked
// to stop does.
const entriesAtOnce = 256

// Read implements [io.Reader]. It fills p from several files: callers have costs for each
// call.
func (r *reader) Read(p []byte) (n int, err error) {
	for range 3 * entriesAtOnce {
		if n == len(p) || r.err != nil {
			break
		}
		var more int
		more, r.err = r.read(p[n:])
		r.at += int64(more)
		n += more
	}
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

// read reads from one part of the stream.
func (r *reader) read(p []byte) (n int, err error) {
	switch {
	case len(r.header) > 0:
		n = copy(p, r.header)
		r.header = r.header[n:]
	case r.data > 0:
		n, err = r.readData(p[:min(int64(len(p)), r.data)])
		r.data -= int64(n)
	case r.padding > 0:
		n = int(min(int64(len(p)), r.padding))
		clear(p[:n])
		r.padding -= int64(n)
	default:
		err = r.next()
	}
	return n, err
}

// next begins with the next entry, or with the end of the stream.
func (r *reader) next() error {
	if err := r.closeFile(); err != nil {
		return err
	}
	if r.ended {
		return io.EOF
	}
	e, err := r.pass.next()
	switch {
	case errors.Is(err, io.EOF):
		r.ended, r.header = true, make([]byte, trailer)
		return r.verify()
	case err == nil && r.at >= r.index.size: // it has become larger
		err = ErrChanged
	}
	if err != nil {
		return changed(err)
	}
	r.entry, r.data, r.padding = e, e.size, e.padding()
	r.header, err = e.appendHeader(r.header[:0], r.at)
	return err
}

// verify returns an error if something was written to the folder since it was scanned: it
// compares what was read, and all that is there now.
func (r *reader) verify() error {
	now, err := newPass(context.Background(), r.index.folder, r.index.limits)
	if err != nil {
		return changed(err)
	}
	defer func() { _ = now.Close() }()
	for err == nil {
		_, err = now.next()
	}
	if !errors.Is(err, io.EOF) {
		return changed(err)
	}
	if r.pass.digest.Sum64() != r.index.digest || now.digest.Sum64() != r.index.digest {
		return fmt.Errorf("the folder %w", ErrChanged)
	}
	return nil
}

// readData reads from the entry's file.
func (r *reader) readData(p []byte) (int, error) {
	if r.file == nil {
		if err := r.open(); err != nil {
			return 0, err
		}
	}
	n, err := packed{r.file, r.entry.holes}.ReadAt(p, r.entry.size-r.data)
	if errors.Is(err, io.EOF) {
		if err = nil; n == 0 {
			err = fmt.Errorf("%q is shorter than it was: %w", r.entry.path, ErrChanged)
		}
	}
	return n, err
}

// open opens the entry's file, which must not have changed since the entry was found.
func (r *reader) open() error {
	open := func() error {
		root, name, err := r.pass.dirs.of(r.entry.path)
		if err == nil {
			r.file, err = root.OpenFile(name, os.O_RDONLY|filetype.NoWait, 0)
		}
		return err
	}
	with := r.index.OpenWith
	if with == nil {
		with = func(open func() error) error { return open() }
	}
	if err := with(open); err != nil {
		return changed(err)
	}
	info, err := r.file.Stat()
	if err == nil && (!info.Mode().IsRegular() || stampOf(info) != r.entry.stamp) {
		err = changed(fmt.Errorf("%q: %w", r.entry.path, fs.ErrNotExist))
	}
	return err
}

func (r *reader) closeFile() error {
	file := r.file
	if r.file = nil; file == nil {
		return nil
	}
	return file.Close()
}

// Close implements [io.Closer].
func (r *reader) Close() error { return errors.Join(r.closeFile(), r.pass.Close()) }

// Skip passes over bytes of files without reading them. At its end the stream finds out
// whether one of the files has changed since the scan, as for bytes that were read.
func (r *reader) Skip(bytes int64) error {
	for bytes > 0 && r.err == nil {
		var n int64
		switch {
		case len(r.header) > 0:
			n = min(bytes, int64(len(r.header)))
			r.header = r.header[n:]
		case r.data > 0:
			n = min(bytes, r.data)
			r.data -= n
		case r.padding > 0:
			n = min(bytes, r.padding)
			r.padding -= n
		default:
			r.err = r.next()
		}
		r.at += n
		bytes -= n
	}
	if errors.Is(r.err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return r.err
}
