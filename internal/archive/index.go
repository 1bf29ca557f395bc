package archive

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// chunk is the length that states are cut into, in bytes.
const chunk = 1 << 20

// Sizes of the format.
const (
	magic     = "spotworker-archive 1 "  // without links
	magic2    = "spotworker-archive 2 "  // with some; of the same length
	digits    = 12                       // of a number
	headerLen = len(magic) + digits + 1  // bytes
	fieldsLen = len("f ") + 3*(digits+1) // of a line, before the path
	maxIndex  = 64 << 20                 // bytes
	maxPath   = 4096                     // bytes
	maxLine   = fieldsLen + 4*maxPath + 4*maxTarget + len("\"\" \"\"\n")
)

// Limits are the limits on a stream and its folder.
type Limits struct {
	Bytes   int64 // of the stream, and of all files together
	Entries int   // files and folders
}

// Errors. They are wrapped with details.
var (
	// ErrTooLarge is the error of a folder that exceeds its [Limits].
	ErrTooLarge = errors.New("too large")

	// ErrUnfit is the error of a folder with something that cannot be stored, such as a
	// device.
	ErrUnfit = errors.New("cannot be kept")

	// ErrDamaged is the error of a stream that [Index.Open] did not write.
	ErrDamaged = errors.New("archive is damaged")
)

// types of entries, as they stand in the index.
const (
	folder     = 'd'
	plain      = 'f'
	executable = 'x'
	link       = 'l'
)

// entry is a file, a folder or a link.
type entry struct {
	kind   byte
	path   string // with slashes, below the folder
	target string // of a link
	size   int64  // of a file, bytes
	body   int64  // where its whole chunks begin in the stream
	rest   int64  // where what is left begins
}

func (e *entry) restSize() int64 { return e.size % chunk }
func (e *entry) bodySize() int64 { return e.size - e.restSize() }

// hasLinks reports whether a link is among the entries.
func hasLinks(entries []entry) bool {
	return slices.ContainsFunc(entries, func(e entry) bool { return e.kind == link })
}

// encode writes header and index.
func encode(entries []entry) []byte {
	var lines bytes.Buffer
	for i := range entries {
		e := &entries[i]
		fmt.Fprintf(&lines, "%c %0*x %0*x %0*x %s\n", e.kind, digits, e.size, digits, e.body, digits, e.rest, e.names())
	}
	version := magic
	if hasLinks(entries) {
		version = magic2
	}
	return append(fmt.Appendf(nil, "%s%0*x\n", version, digits, lines.Len()), lines.Bytes()...)
}

// names is the path, and of a link the target behind it, as the index has them.
func (e *entry) names() string {
	if e.kind != link {
		return strconv.Quote(e.path)
	}
	return strconv.Quote(e.path) + " " + strconv.Quote(e.target)
}

// encodedLen is the length of header and index. It does not depend on where the
// files are.
func encodedLen(entries []entry) int64 {
	n := int64(headerLen)
	for i := range entries {
		n += int64(fieldsLen + len(entries[i].names()) + 1)
	}
	return n
}

// decodeHeader returns the index's length, and whether there may be links in it.
func decodeHeader(line []byte) (length int64, links bool, err error) {
	number, ok := bytes.CutPrefix(line, []byte(magic))
	if !ok {
		number, links = bytes.CutPrefix(line, []byte(magic2))
	}
	if !ok && !links || len(number) != digits+1 || number[digits] != '\n' {
		return 0, false, fmt.Errorf("%w: it does not begin with %q or %q and a length", ErrDamaged, magic, magic2)
	}
	length, err = decodeNumber(number[:digits])
	if err == nil && length > maxIndex {
		err = fmt.Errorf("%w: an index of %d bytes, of %d allowed", ErrTooLarge, length, maxIndex)
	}
	return length, links, err
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
	if target, ok := strings.CutPrefix(text[len(quoted):], " "); ok && e.kind == link {
		if e.target, err = strconv.Unquote(target); err != nil {
			return err
		}
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
	case e.kind != folder && e.kind != plain && e.kind != executable && e.kind != link:
		return fmt.Errorf("%w: entry %.80q has the unknown type %q", ErrDamaged, e.path, e.kind)
	case (e.kind == folder || e.kind == link) && e.size != 0:
		return fmt.Errorf("%w: folder or link %.80q has a size", ErrDamaged, e.path)
	case len(e.path) > maxPath, e.path == ".", path.Clean(e.path) != e.path, !filepath.IsLocal(filepath.FromSlash(e.path)):
		return fmt.Errorf("%w: %.80q is no path below the folder", ErrDamaged, e.path)
	case e.kind == link:
		if err := checkTarget(e.path, e.target); err != nil {
			return fmt.Errorf("%w: link %.80q to %.80q: %w", ErrDamaged, e.path, e.target, err)
		}
	}
	return nil
}

// maxTarget is the longest target of a link that systems take, in bytes.
const maxTarget = maxPath - 1

// checkTarget returns an error for a link that may lead out of the folder, wherever the
// folder is and whatever its other links are.
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
