package outputs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
)

// Limits bound the files of a job.
type Limits struct {
	Files int
	Bytes int64 // of all files
}

// Set holds the files that a job has sent, as one delivery knows them: the files of the
// record that it acquired, and its own. Its methods may be called from many goroutines.
type Set struct {
	store      *Store
	id         string
	generation int // of the claim
	token      string
	limits     Limits

	mu       sync.Mutex
	files    map[string]File
	bytes    int64
	listed   int            // bytes of the manifest, about
	sends    map[string]int // how often this claim began to send a path
	prefixes map[string]int // folders of files, with the number of files below
	changes  int
	recorded int // changes that ref has
	ref      Ref
	sent     Sent
}

// Sent counts the files that a delivery has sent.
type Sent struct {
	Files int
	Bytes int64
}

// NewSet returns the set of a delivery that acquired a record with that generation and
// token. It begins with the files of a list, whose hash is empty for none.
func (s *Store) NewSet(id string, generation int, token string, limits Limits, hash string, files []File) *Set {
	t := &Set{store: s, id: id, token: token, limits: limits, generation: generation}
	for _, f := range files {
		t.add(f)
	}
	t.ref, t.recorded = refOf(hash, files), t.changes
	return t
}

// Ref names the list of the files as of the last [Set.Record], or the list that the set
// began with.
func (t *Set) Ref() Ref {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ref
}

// Send sends a file, and replaces a file with the same path. size is its length in bytes,
// or -1 if that is not known. The error wraps [paths.ErrRefused] if the file cannot be
// sent, and is a [*SourceError] if it cannot be read.
func (t *Set) Send(ctx context.Context, path string, size int64, content io.Reader) (File, error) {
	if err := paths.Validate(path); err != nil {
		return File{}, err
	}
	folder, err := t.begin(path, max(size, 0))
	if err != nil {
		return File{}, err
	}
	f, err := t.store.send(ctx, sending{id: t.id, folder: folder, path: path, token: t.token, size: size, content: content})
	if err != nil {
		return File{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(path, f.Size); err != nil { // it may have grown, or others came
		return File{}, err
	}
	t.sent.Files, t.sent.Bytes = t.sent.Files+1, t.sent.Bytes+f.Size
	t.add(f)
	return f, nil
}

// folder is the claim's own, below the job's.
func (t *Set) folder() string {
	return strconv.Itoa(t.generation) + "-" + t.token[:min(len(t.token), 8)]
}

// begin checks a file against the others, and returns the folder to send it to: each time
// another one, so that no blob is written twice.
func (t *Set) begin(path string, size int64) (folder string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.check(path, size); err != nil {
		return "", err
	}
	if t.sends == nil {
		t.sends = map[string]int{}
	}
	t.sends[path]++
	if n := t.sends[path]; n > 1 {
		return t.folder() + "-" + strconv.Itoa(n), nil
	}
	return t.folder(), nil
}

// check returns why a file of that size cannot be added.
func (t *Set) check(path string, size int64) error {
	old, replaced := t.files[path]
	files := len(t.files)
	if !replaced {
		files++
	}
	switch {
	case files > t.limits.Files:
		return fmt.Errorf("output %s: %w: the job would have more than %d output files, which its kind allows; store fewer, or an "+
			"archive of them", paths.Quote(path), paths.ErrRefused, t.limits.Files)
	case t.bytes-old.Size+size > t.limits.Bytes:
		return fmt.Errorf("output %s: %w: the job's outputs would have more than %d bytes, which its kind allows", paths.Quote(path),
			paths.ErrRefused, t.limits.Bytes)
	case t.listed+listedBytes(path) > maxManifest:
		return fmt.Errorf("output %s: %w: the names of the job's outputs are too long for a list of %d bytes; store fewer, or an "+
			"archive of them", paths.Quote(path), paths.ErrRefused, maxManifest)
	case t.prefixes[path] > 0:
		return fmt.Errorf("output %s: %w: there are outputs in a folder of that name", paths.Quote(path), paths.ErrRefused)
	}
	for at, folder := range folders(path) {
		if _, isFile := t.files[folder]; isFile {
			return fmt.Errorf("output %s: %w: another output is named %s", paths.Quote(path), paths.ErrRefused, paths.Quote(path[:at]))
		}
	}
	return nil
}

// listedBytes is about the length of a file's entry in the manifest, and not less.
func listedBytes(path string) int { return 2*len(path) + 400 }

// folders yields the folders that a path is in, with their lengths.
func folders(path string) func(yield func(int, string) bool) {
	return func(yield func(int, string) bool) {
		for i := range len(path) {
			if path[i] == '/' && !yield(i, path[:i]) {
				return
			}
		}
	}
}

// add adds a file, or replaces it.
func (t *Set) add(f File) {
	t.remove(f.Path)
	if t.files == nil {
		t.files, t.prefixes = map[string]File{}, map[string]int{}
	}
	t.files[f.Path] = f
	t.bytes += f.Size
	t.listed += listedBytes(f.Path)
	for _, folder := range folders(f.Path) {
		t.prefixes[folder]++
	}
	t.changes++
}

func (t *Set) remove(path string) {
	old, ok := t.files[path]
	if !ok {
		return
	}
	delete(t.files, path)
	t.bytes -= old.Size
	t.listed -= listedBytes(path)
	for _, folder := range folders(path) {
		t.prefixes[folder]--
	}
	t.changes++
}

// Remove removes a file from the job's outputs. Its blob becomes garbage.
func (t *Set) Remove(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.remove(path)
}

// Files returns the files in the order of their paths.
func (t *Set) Files() []File {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.files), func(a, b File) int { return strings.Compare(a.Path, b.Path) })
}

// Get returns a file.
func (t *Set) Get(path string) (File, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f, ok := t.files[path]
	return f, ok
}

// Open returns the content of a file.
func (t *Set) Open(ctx context.Context, path string) (io.ReadCloser, error) {
	f, ok := t.Get(path)
	if !ok {
		return nil, fmt.Errorf("output %s: %w", paths.Quote(path), errNone)
	}
	return t.store.OpenChecked(ctx, t.id, f)
}

var errNone = errors.New("the job has no such output")

// Sent returns the counts of the files that this delivery has sent.
func (t *Set) Sent() Sent {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent
}

// Unrecorded reports whether the files have changed since [Set.Record] was called last.
func (t *Set) Unrecorded() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changes != t.recorded
}

// Record stores the list of the files as they are now, and returns what names it, as
// [Set.Ref] does from then on. It makes no call if they have not changed since the last time.
func (t *Set) Record(ctx context.Context) (Ref, error) {
	t.mu.Lock()
	changes, ref := t.changes, t.ref
	files := slices.Collect(maps.Values(t.files))
	unchanged := changes == t.recorded
	t.mu.Unlock()
	if unchanged {
		return ref, nil
	}
	ref, err := t.store.writeManifest(ctx, t.id, files)
	if err != nil {
		return Ref{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ref, t.recorded = ref, changes
	return ref, nil
}
