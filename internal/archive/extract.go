package archive

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// Extract makes the files, folders and links of a stream in a folder, which must exist and
// be empty. The stream is not trusted: nothing is made outside the folder, no link leads
// out of it, and nothing exceeds the limits. Links are made last, so that nothing is
// written through one. All of the stream is read. The error wraps [ErrDamaged] or
// [ErrTooLarge] if the stream is invalid; others come from the disk or from reading the
// stream.
func Extract(stream io.Reader, dir string, l Limits) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	x := &extraction{root: root, stream: bufio.NewReaderSize(stream, 64<<10), limits: l}
	return errors.Join(x.run(), root.Close())
}

// extraction is the state of an Extract.
type extraction struct {
	root   *os.Root
	stream *bufio.Reader
	limits Limits
	at     int64 // of the next byte
}

func (x *extraction) run() error {
	entries, err := x.index()
	if err != nil {
		return err
	}
	var todo []piece
	for all := (pieces{entries: entries}); ; {
		piece, ok := all.next()
		if !ok {
			break
		}
		todo = append(todo, piece)
	}
	slices.SortFunc(todo, func(a, b piece) int { return cmp.Compare(a.at, b.at) })
	if err := checkOrder(todo, x.at); err != nil {
		return err
	}
	for i := range entries {
		if err := x.create(&entries[i]); err != nil {
			return err
		}
	}
	for _, piece := range todo {
		if err := x.fill(piece); err != nil {
			return err
		}
	}
	switch _, err := x.stream.ReadByte(); {
	case err == nil:
		return fmt.Errorf("%w: it continues behind its last file", ErrDamaged)
	case err != io.EOF:
		return err
	}
	return x.link(entries)
}

// link makes the links, hard ones first: those are to files, and a path must not lead
// through a symbolic link.
func (x *extraction) link(entries []entry) error {
	if err := linkAll(entries, hardLink, x.root.Link); err != nil {
		return err
	}
	return linkAll(entries, link, x.root.Symlink)
}

func linkAll(entries []entry, kind byte, link func(target, name string) error) error {
	for i := range entries {
		if e := &entries[i]; e.kind == kind {
			if err := link(filepath.FromSlash(e.target), filepath.FromSlash(e.path)); err != nil {
				return err
			}
		}
	}
	return nil
}

// index reads and validates header and index.
func (x *extraction) index() ([]entry, error) {
	header := make([]byte, headerLen)
	if _, err := io.ReadFull(x.stream, header); err != nil {
		return nil, cutOff(err)
	}
	length, version, err := decodeHeader(header)
	if err != nil {
		return nil, err
	}
	x.at = int64(headerLen) + length
	lines := bufio.NewReaderSize(io.LimitReader(x.stream, length), maxLine)
	var known tree
	for {
		line, err := lines.ReadSlice('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return known.entries, x.checkRead(length, known.read)
		case errors.Is(err, bufio.ErrBufferFull), errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%w: its index ends within a line, or has one of more than %d bytes", ErrDamaged, maxLine)
		case err != nil:
			return nil, err
		}
		known.read += int64(len(line))
		e, err := decodeLine(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			return nil, err
		}
		if needs := versionOf([]entry{e}); needs > version {
			return nil, fmt.Errorf("%w: %.80q is of a type that version %d has and %d has not", ErrDamaged, e.path, needs, version)
		}
		if err := known.add(e, x.limits); err != nil {
			return nil, err
		}
	}
}

// checkRead finds a stream that ends within its index.
func (x *extraction) checkRead(length, read int64) error {
	if read != length {
		return cutOff(io.ErrUnexpectedEOF)
	}
	return nil
}

// tree is the part of an index that was read so far.
type tree struct {
	entries []entry
	folders map[string]bool
	total   int64 // bytes of files
	read    int64 // bytes of the index
}

func (t *tree) add(e entry, l Limits) error {
	if n := len(t.entries); n > 0 && t.entries[n-1].path >= e.path {
		return fmt.Errorf("%w: entry %.80q is not behind %.80q", ErrDamaged, e.path, t.entries[n-1].path)
	}
	if parent := path.Dir(e.path); parent != "." && !t.folders[parent] {
		return fmt.Errorf("%w: the folder of %.80q is missing", ErrDamaged, e.path)
	}
	if e.kind == hardLink {
		if i, found := slices.BinarySearchFunc(t.entries, e.target, func(have entry, path string) int { return cmp.Compare(have.path, path) }); !found || !t.entries[i].isFile() {
			return fmt.Errorf("%w: hard link %.80q to %.80q, which is no file before it", ErrDamaged, e.path, e.target)
		}
	}
	if len(t.entries) >= l.Entries {
		return fmt.Errorf("%w: more than %d files and folders", ErrTooLarge, l.Entries)
	}
	if e.size > l.Bytes-t.total {
		return fmt.Errorf("%w: more than %d bytes of files", ErrTooLarge, l.Bytes)
	}
	t.total += e.size
	t.entries = append(t.entries, e)
	if e.kind == folder {
		if t.folders == nil {
			t.folders = map[string]bool{}
		}
		t.folders[e.path] = true
	}
	return nil
}

// checkOrder wants pieces that begin behind the index and do not overlap, with
// less than a chunk between them.
func checkOrder(all []piece, at int64) error {
	for _, piece := range all {
		if piece.at < at || piece.at-at >= chunk {
			return fmt.Errorf("%w: %.80q is at %d, where the data before it ends at %d", ErrDamaged, piece.entry.path, piece.at, at)
		}
		at = piece.at + piece.size
	}
	return nil
}

// create makes a folder, or a file that is still empty.
func (x *extraction) create(e *entry) error {
	name := filepath.FromSlash(e.path)
	switch e.kind {
	case folder:
		return x.root.Mkdir(name, 0o700)
	case link, hardLink:
		return nil
	}
	mode := os.FileMode(0o600)
	if e.kind == executable || e.kind == sparseExec {
		mode = 0o700
	}
	file, err := x.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if e.holes != nil {
		err = file.Truncate(e.holes.size)
	}
	return errors.Join(err, file.Close())
}

// fill copies a piece into its file.
func (x *extraction) fill(p piece) error {
	if _, err := io.CopyN(io.Discard, x.stream, p.at-x.at); err != nil {
		return cutOff(err)
	}
	file, err := x.root.OpenFile(filepath.FromSlash(p.entry.path), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	n, err := io.CopyN(io.NewOffsetWriter(packed{file, p.entry.holes}, p.from), x.stream, p.size)
	x.at = p.at + n
	return errors.Join(cutOff(err), file.Close())
}

// cutOff turns an early end of the stream into [ErrDamaged].
func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it ends early", ErrDamaged)
	}
	return err
}
