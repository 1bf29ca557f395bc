package archive

import (
	"archive/tar"
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spotworker/spotworker/internal/host/filetype"
)

// Extract makes the files, folders and links of a stream in a folder, which must exist and
// be empty. The stream is not trusted: nothing is made outside the folder, no link leads
// out of it, and nothing exceeds the limits. Symbolic links are made last, so that nothing is
// written through one. All of the stream is read. The error wraps [ErrDamaged] or
// [ErrTooLarge] if the stream is invalid; others come from the disk or from reading the stream.
func Extract(stream io.Reader, dir string, l Limits) error {
	root, err := filetype.OpenRoot(dir)
	if err != nil {
		return err
	}
	ranged, ok := stream.(Ranged)
	if !ok {
		ranged = buffered{bufio.NewReaderSize(stream, bufferSize)}
	}
	x := &extraction{dirs: dirs{top: root}, limits: l, stream: source{from: ranged}}
	return errors.Join(x.run(), x.dirs.Close())
}

// Ranged is a stream that hands out its bytes where they are, so that nobody copies them.
type Ranged interface {
	// Next returns the next bytes, at least one and at most so many. They are valid until the
	// next call.
	Next(most int) ([]byte, error)
}

// buffered is another stream.
type buffered struct{ *bufio.Reader }

// bufferSize is how much is read from such a stream at once, in bytes.
const bufferSize = 256 << 10

// Next implements [Ranged].
func (b buffered) Next(most int) ([]byte, error) {
	if _, err := b.Peek(1); err != nil {
		return nil, err
	}
	part, err := b.Peek(min(most, b.Buffered()))
	if err == nil {
		_, err = b.Discard(len(part))
	}
	return part, err
}

// extraction is the state of an Extract.
type extraction struct {
	dirs   dirs
	stream source
	limits Limits

	last    *entry  // the entry before
	links   []entry // symbolic links, which are still to be made
	entries int
	bytes   int64 // of files
	names   int64 // bytes
}

// source is a stream that keeps its error.
type source struct {
	from Ranged
	err  error
}

// Read implements [io.Reader].
func (s *source) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	var part []byte
	part, s.err = s.from.Next(len(p))
	return copy(p, part), s.err
}

// damaged returns the error of a stream that cannot be read: its own, or [ErrDamaged].
func (s *source) damaged(err error) error {
	switch {
	case errors.Is(s.err, io.EOF):
		return fmt.Errorf("%w: it ends early", ErrDamaged)
	case s.err != nil:
		return s.err
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

func (x *extraction) run() error {
	for {
		// Each entry gets a new reader. Its data is read from the stream: package tar reads holes as zeros.
		h, err := tar.NewReader(&x.stream).Next()
		if errors.Is(err, io.EOF) && x.stream.err == nil {
			return x.end() // behind two blocks of zeros
		}
		if err != nil {
			return x.stream.damaged(err)
		}
		e, err := decode(h)
		if err == nil {
			err = x.check(e)
		}
		if err == nil {
			err = x.create(e)
		}
		if err != nil {
			return err
		}
		x.last = e
	}
}

// end checks that the stream ends, and makes the symbolic links.
func (x *extraction) end() error {
	switch _, err := x.stream.from.Next(1); {
	case err == nil:
		return fmt.Errorf("%w: it continues behind its end", ErrDamaged)
	case !errors.Is(err, io.EOF):
		return err
	}
	for _, e := range x.links {
		if err := x.dirs.top.Symlink(filepath.FromSlash(e.target), filepath.FromSlash(e.path)); err != nil {
			return err
		}
	}
	return nil
}

// kinds are the types of entries that an archive has.
var kinds = string([]byte{tar.TypeDir, tar.TypeReg, tar.TypeLink, tar.TypeSymlink})

// decode returns the entry of a header.
func decode(h *tar.Header) (*entry, error) {
	e := &entry{kind: h.Typeflag, path: h.Name, target: h.Linkname, size: h.Size, exec: h.Mode&0o100 != 0, modified: h.ModTime}
	if e.kind == tar.TypeDir {
		e.path = strings.TrimSuffix(e.path, "/")
	}
	if h.Format != tar.FormatPAX && h.Format != tar.FormatUSTAR {
		return nil, fmt.Errorf("%w: %.80q is in the format %s", ErrDamaged, h.Name, h.Format)
	}
	for name := range h.PAXRecords {
		if strings.HasPrefix(name, sparsePrefix) && name != sparseCount && name != sparseMap && name != sparseSize {
			return nil, fmt.Errorf("%w: %.80q has the record %.80q", ErrDamaged, h.Name, name)
		}
	}
	if text := h.PAXRecords[sparseMap]; text != "" {
		var err error
		if e.holes, err = parseRanges(h.Size, text); err != nil {
			return nil, err
		}
		e.size = e.holes.data()
	}
	return e, e.validate(h.Size)
}

// validate checks what an entry says of itself; size is that of its header.
func (e *entry) validate(size int64) error {
	switch {
	case !strings.ContainsRune(kinds, rune(e.kind)):
		return fmt.Errorf("%w: entry %.80q has the unknown type %q", ErrDamaged, e.path, e.kind)
	case !isPath(e.path):
		return fmt.Errorf("%w: %.80q is no path below the folder", ErrDamaged, e.path)
	case e.kind != tar.TypeReg && size != 0:
		return fmt.Errorf("%w: folder or link %.80q has a size", ErrDamaged, e.path)
	case e.kind == tar.TypeLink && !isPath(e.target):
		return fmt.Errorf("%w: hard link %.80q to %.80q, which is no file before it", ErrDamaged, e.path, e.target)
	case e.kind == tar.TypeSymlink:
		if err := checkTarget(e.path, e.target); err != nil {
			return fmt.Errorf("%w: link %.80q to %.80q: %w", ErrDamaged, e.path, e.target, err)
		}
	}
	return nil
}

// check validates an entry's relation to the entries before: its place and the limits.
func (x *extraction) check(e *entry) error {
	if x.last != nil && !inOrder(x.last.path, e.path) {
		return fmt.Errorf("%w: entry %.80q is not behind %.80q", ErrDamaged, e.path, x.last.path)
	}
	if !x.hasFolder(e.path) {
		return fmt.Errorf("%w: the folder of %.80q is missing", ErrDamaged, e.path)
	}
	x.entries++
	x.names += int64(len(e.path) + len(e.target))
	switch {
	case x.entries > x.limits.Entries:
		return fmt.Errorf("%w: more than %d files and folders", ErrTooLarge, x.limits.Entries)
	case x.names > x.limits.Names:
		return fmt.Errorf("%w: the names of its files have more than %d bytes", ErrTooLarge, x.limits.Names)
	case e.size > x.limits.Bytes-x.bytes:
		return fmt.Errorf("%w: more than %d bytes of files", ErrTooLarge, x.limits.Bytes)
	}
	x.bytes += e.size
	return nil
}

// inOrder reports whether a path comes before another one: a folder's content comes directly
// behind it.
func inOrder(first, second string) bool {
	for i := range min(len(first), len(second)) {
		if a, b := first[i], second[i]; a != b {
			return b != '/' && (a == '/' || a < b)
		}
	}
	return len(first) < len(second)
}

// hasFolder reports whether the folder that a path is in was made: it is the entry before, or
// that is in it.
func (x *extraction) hasFolder(name string) bool {
	parent := path.Dir(name)
	if parent == "." {
		return true
	}
	return x.last != nil && (x.last.kind == tar.TypeDir && x.last.path == parent || strings.HasPrefix(x.last.path, parent+"/"))
}

// create makes what an entry describes, except for a symbolic link.
func (x *extraction) create(e *entry) error {
	if e.kind == tar.TypeSymlink {
		x.links = append(x.links, *e)
		return nil
	}
	root, name, err := x.dirs.of(e.path)
	if err != nil {
		return err
	}
	switch e.kind {
	case tar.TypeDir:
		return root.Mkdir(name, execMode)
	case tar.TypeLink:
		return x.linkHard(e)
	}
	mode := os.FileMode(fileMode)
	if e.exec {
		mode = execMode
	}
	file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	if err := errors.Join(x.fill(file, e), file.Close()); err != nil {
		return err
	}
	return root.Chtimes(name, time.Time{}, e.modified)
}

// writeSize is how much is written to a file at once, in bytes. The kernel copies larger writes into
// larger folios, which takes up to twice the time for each byte (Linux 6.18, ext4).
const writeSize = 256 << 10

// fill copies the data of an entry into its file.
func (x *extraction) fill(file *os.File, e *entry) error {
	if e.holes != nil {
		if err := file.Truncate(e.holes.size); err != nil {
			return err
		}
	}
	to := packed{file, e.holes}
	for done := int64(0); done < e.size; {
		part, err := x.stream.from.Next(int(min(e.size-done, writeSize)))
		if x.stream.err = err; err != nil {
			return x.stream.damaged(err)
		}
		if _, err := to.WriteAt(part, done); err != nil {
			return err
		}
		done += int64(len(part))
	}
	if _, err := io.CopyN(io.Discard, &x.stream, e.padding()); err != nil {
		return x.stream.damaged(err)
	}
	return nil
}

// linkHard makes a hard link. Its target is in the folder: no symbolic link exists yet.
func (x *extraction) linkHard(e *entry) error {
	target := filepath.FromSlash(e.target)
	switch info, err := x.dirs.top.Lstat(target); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("%w: hard link %.80q to %.80q, which is no file before it", ErrDamaged, e.path, e.target)
	case err != nil:
		return err
	}
	return x.dirs.top.Link(target, filepath.FromSlash(e.path))
}
