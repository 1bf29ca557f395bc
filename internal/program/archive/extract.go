package archive

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/spotworker/spotworker/internal/host/filetype"
	"github.com/spotworker/spotworker/internal/program/archive/spill"
)

// Extract makes the files, folders and links of a stream in a folder, which must exist and
// be empty. The stream is not trusted: nothing is made outside the folder, no link leads
// out of it, and nothing exceeds the limits. Links are made last, so that nothing is
// written through one. All of the stream is read. A long index goes to a temporary file in
// temp. The error wraps [ErrDamaged] or [ErrTooLarge] if the stream is invalid; others come
// from the disk or from reading the stream.
func Extract(stream io.Reader, dir, temp string, l Limits) error {
	root, err := filetype.OpenRoot(dir)
	if err != nil {
		return err
	}
	x := &extraction{dirs: dirs{top: root}, stream: newStream(stream), limits: l, lines: spill.NewBuffer(temp, l.memory())}
	return errors.Join(x.run(), x.dirs.Close(), x.lines.Close())
}

func newStream(stream io.Reader) *bufio.Reader { return bufio.NewReaderSize(stream, 64<<10) }

// extraction is the state of an Extract.
type extraction struct {
	dirs   dirs
	stream *bufio.Reader
	limits Limits
	at     int64         // of the next byte
	lines  *spill.Buffer // of the index, without its header
	buffer []byte        // for copying

	has map[byte]int // how many entries of each type there are
	big int          // and how many files with whole chunks
}

func (x *extraction) run() error {
	if err := x.index(); err != nil {
		return err
	}
	if err := x.each(x.create); err != nil {
		return err
	}
	if x.big > 0 {
		if err := x.each(x.fillBody); err != nil {
			return err
		}
	}
	switch _, err := x.stream.ReadByte(); {
	case err == nil:
		return fmt.Errorf("%w: it continues behind its last file", ErrDamaged)
	case err != io.EOF:
		return err
	}
	// Hard links come first: those are to files, and a path must not lead through a
	// symbolic link.
	if x.has[hardLink] > 0 {
		if err := x.each(x.linkHard); err != nil {
			return err
		}
	}
	if x.has[link] > 0 {
		return x.each(x.linkSymbolic)
	}
	return nil
}

// index reads and validates header and index, whose lines it keeps.
func (x *extraction) index() error {
	header := make([]byte, headerLen)
	if _, err := io.ReadFull(x.stream, header); err != nil {
		return cutOff(err)
	}
	length, version, err := decodeHeader(header, x.limits.Index)
	if err != nil {
		return err
	}
	x.at = int64(headerLen) + length
	lines := bufio.NewReaderSize(io.TeeReader(io.LimitReader(x.stream, length), x.lines), maxLine)
	known := tree{limits: x.limits, version: version, rest: x.at}
	err = eachLine(lines, known.add)
	if err == nil && x.lines.Size() != length {
		err = cutOff(io.ErrUnexpectedEOF)
	}
	if err == nil {
		err = known.end()
	}
	x.has, x.big = known.has, known.big
	return err
}

// each calls do for every entry of the index.
func (x *extraction) each(do func(e *entry) error) error {
	return eachLine(x.lines.Reader(0, x.lines.Size(), maxLine), do)
}

// eachLine calls do for the entry of every line.
func eachLine(lines *bufio.Reader, do func(e *entry) error) error {
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return nil
		case errors.Is(err, bufio.ErrBufferFull), errors.Is(err, io.EOF):
			return fmt.Errorf("%w: its index ends within a line, or has one of more than %d bytes", ErrDamaged, maxLine)
		case err != nil:
			return err
		}
		e, err := decodeLine(bytes.TrimSuffix(line, []byte("\n")))
		if err == nil {
			err = do(&e)
		}
		if err != nil {
			return err
		}
	}
}

// create makes a folder, or a file with its rest.
func (x *extraction) create(e *entry) error {
	if e.kind == link || e.kind == hardLink {
		return nil
	}
	root, name, err := x.dirs.of(e.path)
	if err != nil {
		return err
	}
	mode := os.FileMode(0o600)
	switch e.kind {
	case folder:
		return root.Mkdir(name, 0o700)
	case executable, sparseExec:
		mode = 0o700
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if e.holes != nil {
		err = file.Truncate(e.holes.size)
	}
	if err == nil && e.restSize() > 0 {
		err = x.copy(file, piece{entry: e, at: e.rest, from: e.bodySize(), size: e.restSize()})
	}
	return errors.Join(err, file.Close())
}

// fillBody copies a file's whole chunks.
func (x *extraction) fillBody(e *entry) error {
	if e.bodySize() == 0 {
		return nil
	}
	root, name, err := x.dirs.of(e.path)
	if err != nil {
		return err
	}
	file, err := root.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	err = x.copy(file, piece{entry: e, at: e.body, size: e.bodySize()})
	return errors.Join(err, file.Close())
}

// copy copies a piece from the stream into its file.
func (x *extraction) copy(file *os.File, p piece) error {
	if gap := p.at - x.at; gap > 0 { // less than a chunk
		if _, err := x.stream.Discard(int(gap)); err != nil {
			return cutOff(err)
		}
	}
	if x.buffer == nil {
		x.buffer = make([]byte, 256<<10)
	}
	to := packed{file, p.entry.holes}
	for done := int64(0); done < p.size; {
		part := x.buffer[:min(int64(len(x.buffer)), p.size-done)]
		if _, err := io.ReadFull(x.stream, part); err != nil {
			return cutOff(err)
		}
		if _, err := to.WriteAt(part, p.from+done); err != nil {
			return err
		}
		done += int64(len(part))
	}
	x.at = p.at + p.size
	return nil
}

// linkHard makes a hard link. All files exist and no symbolic link does, so its target is
// a file of the archive.
func (x *extraction) linkHard(e *entry) error {
	if e.kind != hardLink {
		return nil
	}
	target := filepath.FromSlash(e.target)
	switch info, err := x.dirs.top.Lstat(target); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%w: hard link %.80q to %.80q, which is no file", ErrDamaged, e.path, e.target)
	case err != nil:
		return err
	}
	return x.dirs.top.Link(target, filepath.FromSlash(e.path))
}

// linkSymbolic makes a symbolic link.
func (x *extraction) linkSymbolic(e *entry) error {
	if e.kind != link {
		return nil
	}
	return x.dirs.top.Symlink(filepath.FromSlash(e.target), filepath.FromSlash(e.path))
}

// cutOff turns an early end of the stream into [ErrDamaged].
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends early", ErrDamaged)
	}
	return err
}
