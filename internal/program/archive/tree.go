package archive

import (
	"fmt"
	"path"
	"sort"
	"strings"
)

// tree validates the entries of an index one after the other: that they are in order, each
// in a folder before it, within the limits, and that their pieces follow each other in the
// stream. It remembers the entry before and the folders that may still have content, so
// that its memory does not grow with the number of entries.
type tree struct {
	limits  Limits
	version int

	last    string   // path
	folders []string // each a prefix of the next, and of the last path
	entries int
	total   int64 // bytes of files
	has     map[byte]int

	// Where the pieces before end in the stream.
	rest, body int64
	firstBody  int64
	firstPath  string // of the first file with whole chunks
	big        int    // files with whole chunks
}

func (t *tree) add(e *entry) error {
	if needs := e.version(); needs > t.version {
		return fmt.Errorf("%w: %.80q is of a type that version %d has and %d has not", ErrDamaged, e.path, needs, t.version)
	}
	if t.entries > 0 && t.last >= e.path {
		return fmt.Errorf("%w: entry %.80q is not behind %.80q", ErrDamaged, e.path, t.last)
	}
	if !t.hasFolder(e.path) {
		return fmt.Errorf("%w: the folder of %.80q is missing", ErrDamaged, e.path)
	}
	most := t.limits.Entries
	if t.version < 4 {
		most = min(most, smallEntries)
	}
	if t.entries++; t.entries > most {
		return fmt.Errorf("%w: more than %d files and folders", ErrTooLarge, most)
	}
	if e.size > t.limits.Bytes-t.total {
		return fmt.Errorf("%w: more than %d bytes of files", ErrTooLarge, t.limits.Bytes)
	}
	t.total += e.size
	t.last = e.path
	if t.has == nil {
		t.has = map[byte]int{}
	}
	t.has[e.kind]++
	if e.kind == folder {
		t.folders = append(t.folders, e.path)
	}
	return t.addPieces(e)
}

// hasFolder reports whether the folder that a path is in was added, and forgets folders
// that no later path can be in. In the order of paths these are all that do not begin the
// path: a folder's content may come behind names such as "folder.txt", since '/' is
// behind '.'.
func (t *tree) hasFolder(name string) bool {
	for n := len(t.folders); n > 0; n-- {
		if dir := t.folders[n-1]; strings.HasPrefix(name, dir) && name[len(dir)] <= '/' {
			break
		}
		t.folders = t.folders[:n-1]
	}
	parent := path.Dir(name)
	if parent == "." {
		return true
	}
	at := sort.Search(len(t.folders), func(i int) bool { return len(t.folders[i]) >= len(parent) })
	return at < len(t.folders) && t.folders[at] == parent
}

// addPieces checks that the entry's pieces are behind those before.
func (t *tree) addPieces(e *entry) error {
	if n := e.restSize(); n > 0 {
		if err := checkPlace(e.path, e.rest, t.rest); err != nil {
			return err
		}
		t.rest = e.rest + n
	}
	if n := e.bodySize(); n > 0 {
		if t.big++; t.big == 1 {
			t.firstBody, t.firstPath = e.body, e.path
		} else if err := checkPlace(e.path, e.body, t.body); err != nil {
			return err
		}
		t.body = e.body + n
	}
	return nil
}

// end checks that whole chunks begin behind the rests.
func (t *tree) end() error {
	if t.big == 0 {
		return nil
	}
	return checkPlace(t.firstPath, t.firstBody, t.rest)
}

// checkPlace wants a piece that does not overlap with the data before it, with less than a
// chunk between them.
func checkPlace(name string, at, before int64) error {
	if at < before || at-before >= chunk {
		return fmt.Errorf("%w: %.80q is at %d, where the data before it ends at %d", ErrDamaged, name, at, before)
	}
	return nil
}
