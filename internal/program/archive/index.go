package archive

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// chunk is the length that states are cut into, in bytes.
const chunk = 1 << 20

// Sizes of the format.
const (
	magic     = "spotworker-archive "
	newest    = 4                                   // version
	digits    = 12                                  // of a number
	headerLen = len(magic) + len("1 ") + digits + 1 // bytes
	fieldsLen = len("f ") + 3*(digits+1)            // of a line, before the path
	maxPath   = 4096                                // bytes
	maxLine   = fieldsLen + 4*maxPath + max(4*maxTarget+len(`"" ""\n`), maxRanges*len(" 000000000000+000000000000"))
)

// An archive that exceeds one of these has version 4: versions of this package that do not
// know it would take it for too large, and not for one to leave to others.
const (
	smallEntries = 200_000
	smallIndex   = 64 << 20 // bytes
)

// Limits are the limits on a stream and its folder.
type Limits struct {
	Bytes   int64 // of the stream, and of all files together
	Entries int   // files and folders
	Index   int64 // bytes of the index, which is names for the most part

	// Memory is how many bytes of the list of entries are held in memory. The rest is in
	// temporary files. 0 means 2 MiB.
	Memory int
}

// memory returns Memory or its default.
func (l Limits) memory() int {
	if l.Memory == 0 {
		return 2 << 20
	}
	return l.Memory
}

// Errors. They are wrapped with details.
var (
	// ErrTooLarge is the error of a folder that exceeds its [Limits].
	ErrTooLarge = errors.New("too large")

	// ErrUnfit is the error of a folder with something that cannot be stored, such as a
	// device.
	ErrUnfit = errors.New("unsuitable")

	// ErrDamaged is the error of a stream that [Index.Open] did not write.
	ErrDamaged = errors.New("archive is damaged")

	// ErrChanged is the error of a folder or file that something wrote to while it was read.
	ErrChanged = errors.New("changed while it was read")
)

// types of entries, as they stand in the index.
const (
	folder     = 'd'
	plain      = 'f'
	executable = 'x'
	link       = 'l'
	hardLink   = 'h' // another name of a file before it
	sparse     = 's' // a file with holes
	sparseExec = 'z' // the same, executable
)

// entry is a file, a folder or a link.
type entry struct {
	kind   byte
	path   string // with slashes, below the folder
	target string // of a link; of a hard link the path of the file
	size   int64  // of a file, bytes; without holes
	body   int64  // where its whole chunks begin in the stream
	rest   int64  // where the rest begins

	holes *ranges // of a file with holes
	stamp stamp   // when it was scanned
	born  int64   // when the file was created, in nanoseconds; 0 if that is not known
}

// isFile reports whether the entry has bytes of its own.
func (e *entry) isFile() bool {
	return e.kind == plain || e.kind == executable || e.kind == sparse || e.kind == sparseExec
}

func (e *entry) restSize() int64 { return e.size % chunk }
func (e *entry) bodySize() int64 { return e.size - e.restSize() }

// version returns the lowest version of the format that has the kind of entry.
func (e *entry) version() int {
	switch e.kind {
	case link:
		return 2
	case hardLink, sparse, sparseExec:
		return 3
	}
	return 1
}

// versionFor returns the lowest version that may have so many entries, and an index of that
// length.
func versionFor(entries int, length int64) int {
	if entries > smallEntries || length > smallIndex {
		return 4
	}
	return 1
}

// appendHeader appends the header of an index of that length.
func appendHeader(to []byte, version int, length int64) []byte {
	return fmt.Appendf(to, "%s%d %0*x\n", magic, version, digits, length)
}

// appendLine appends the entry's line of the index.
func (e *entry) appendLine(to []byte) []byte {
	return fmt.Appendf(to, "%c %0*x %0*x %0*x %s\n", e.kind, digits, e.size, digits, e.body, digits, e.rest, e.names())
}

// names is the path, and what stands behind it, as the index has them: the target of a
// link, or where a file with holes has data.
func (e *entry) names() string {
	switch e.kind {
	case link, hardLink:
		return strconv.Quote(e.path) + " " + strconv.Quote(e.target)
	case sparse, sparseExec:
		return strconv.Quote(e.path) + e.holes.String()
	}
	return strconv.Quote(e.path)
}

// lineLen is the length of the entry's line. It does not depend on where the file is.
func (e *entry) lineLen() int64 { return int64(fieldsLen + len(e.names()) + 1) }

// decodeHeader returns the index's length, and the version of the format.
func decodeHeader(line []byte, most int64) (length int64, version int, err error) {
	text, known := bytes.CutPrefix(line, []byte(magic))
	if !known || len(text) != headerLen-len(magic) || text[0] < '1' || text[0] > '0'+newest || text[1] != ' ' || text[len(text)-1] != '\n' {
		return 0, 0, fmt.Errorf("%w: it does not begin with %q, a version from 1 to %d and a length", ErrDamaged, magic, newest)
	}
	version = int(text[0] - '0')
	length, err = decodeNumber(text[len("1 ") : len(text)-1])
	if version < 4 {
		most = min(most, smallIndex)
	}
	if err == nil && length > most {
		err = fmt.Errorf("%w: an index of %d bytes, of %d allowed", ErrTooLarge, length, most)
	}
	return length, version, err
}

// decodeLine reads a line of the index, without its newline.
func decodeLine(line []byte) (entry, error) {
	if len(line) < fieldsLen || line[1] != ' ' {
		return entry{}, fmt.Errorf("%w: index line %.80q", ErrDamaged, line)
	}
	e := entry{kind: line[0]}
	fields := line[len("f "):]
	for _, number := range []*int64{&e.size, &e.body, &e.rest} {
		n, err := decodeNumber(fields[:digits])
		if err != nil || fields[digits] != ' ' {
			return entry{}, fmt.Errorf("%w: number in index line %.80q", ErrDamaged, line)
		}
		*number, fields = n, fields[digits+1:]
	}
	if err := e.decodeNames(string(fields)); err != nil {
		return entry{}, fmt.Errorf("%w: path in index line %.80q", ErrDamaged, line)
	}
	return e, e.check()
}

func (e *entry) decodeNames(text string) error {
	quoted, err := strconv.QuotedPrefix(text)
	if err != nil {
		return err
	}
	if e.path, err = strconv.Unquote(quoted); err != nil {
		return err
	}
	behind := text[len(quoted):]
	switch e.kind {
	case link, hardLink:
		target, _ := strings.CutPrefix(behind, " ")
		e.target, err = strconv.Unquote(target)
	case sparse, sparseExec:
		e.holes, err = decodeRanges(behind)
	}
	if err != nil {
		return err
	}
	if e.names() != text { // such as other quotes, or something behind
		return strconv.ErrSyntax
	}
	return nil
}

func decodeNumber(text []byte) (int64, error) {
	for _, c := range text {
		if !('0' <= c && c <= '9' || 'a' <= c && c <= 'f') {
			return 0, fmt.Errorf("%w: %q is no number", ErrDamaged, text)
		}
	}
	return strconv.ParseInt(string(text), 16, 64)
}

// check validates an entry, without its relation to others.
func (e *entry) check() error {
	switch {
	case e.kind != folder && e.kind != link && e.kind != hardLink && !e.isFile():
		return fmt.Errorf("%w: entry %.80q has the unknown type %q", ErrDamaged, e.path, e.kind)
	case !e.isFile() && e.size != 0:
		return fmt.Errorf("%w: folder or link %.80q has a size", ErrDamaged, e.path)
	case !isPath(e.path):
		return fmt.Errorf("%w: %.80q is no path below the folder", ErrDamaged, e.path)
	case e.holes != nil && e.holes.data() != e.size:
		return fmt.Errorf("%w: file %.80q has %d bytes in its ranges, and not %d", ErrDamaged, e.path, e.holes.data(), e.size)
	case e.kind == hardLink && (e.target >= e.path || !isPath(e.target)):
		return fmt.Errorf("%w: hard link %.80q to %.80q, which is no file before it", ErrDamaged, e.path, e.target)
	case e.kind == link:
		if err := checkTarget(e.path, e.target); err != nil {
			return fmt.Errorf("%w: link %.80q to %.80q: %w", ErrDamaged, e.path, e.target, err)
		}
	}
	return nil
}

// isPath reports whether a name is a path of something below the folder.
func isPath(name string) bool {
	return len(name) <= maxPath && name != "." && path.Clean(name) == name && filepath.IsLocal(filepath.FromSlash(name))
}

// maxTarget is the longest target of a link that systems take, in bytes.
const maxTarget = maxPath - 1

// checkTarget returns an error for a link that may lead out of the folder, for any place
// of the folder and any other links.
//
// The target must be relative. It may go up only at its start, and at most to the folder:
// the start is the link's parent, which is a real folder in an archive. The rest goes down,
// through folders or through links for which the same holds. A target such as a/../b is
// rejected, because .. leads elsewhere if a is a link.
func checkTarget(name, target string) error {
	if target == "" || len(target) > maxTarget || strings.ContainsRune(target, 0) {
		return errors.New("its target is empty or too long, or has a zero in it")
	}
	slashed := filepath.ToSlash(target)
	if path.IsAbs(slashed) || filepath.VolumeName(target) != "" {
		return errors.New("its target is absolute")
	}
	down := false
	for part := range strings.SplitSeq(slashed, "/") {
		switch {
		case part == "..":
			if down {
				return errors.New("its target goes up behind a name")
			}
		case part != "" && part != ".":
			down = true
		}
	}
	if to := path.Join(path.Dir(name), slashed); !filepath.IsLocal(filepath.FromSlash(to)) {
		return errors.New("its target is outside")
	}
	return nil
}
