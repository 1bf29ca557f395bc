// Package outfolder sends the files that a program writes into its output folder, while it
// runs and when it has ended, and restores them for the next run.
package outfolder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/spotworker/spotworker/internal/host/filetype"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
)

// Pass says which files of a folder are sent.
type Pass int

// The passes.
const (
	// Finished sends the files that have not changed since the pass before, while the
	// program runs. What cannot be sent is left for a later pass.
	Finished Pass = iota + 1

	// Everything sends all files as they are, so that a checkpoint may rely on them. Of a
	// growing file it sends the bytes up to its size at the start. It leaves out entries
	// that are no files.
	Everything

	// Final is Everything after the program has ended: what cannot be sent is an error.
	Final
)

// Folder sends the files that a program writes into its output folder, each once unless it
// changes. Its methods may be called from many goroutines; one pass runs at a time.
//
// The program owns the folder and may be hostile: it may replace files by links while
// they are opened. So everything is opened below the folder ([os.Root]) and with the
// rights of the program's user, without blocking, and checked after it was opened.
type Folder struct {
	dir   string
	as    func(func() error) error // calls a function with the rights of the program's user
	sink  Sink
	files int // at most

	turn   chan struct{}       // holds one while a pass runs, and guards what follows
	sent   map[string]sentFile // by path
	before map[string]fs.FileInfo
}

// Sink stores the files.
type Sink interface {
	Send(ctx context.Context, path string, size int64, content io.Reader) error
	Remove(path string)
}

// sentFile is a file as it was sent.
type sentFile struct {
	info  fs.FileInfo
	size  int64 // sent; less than the file's if that has grown
	hash  uint64
	fresh bool // so new that a change may not show in its time
}

// New returns the folder at dir. as calls a function with the rights of the
// program's user.
func New(dir string, as func(func() error) error, sink Sink, files int) *Folder {
	return &Folder{dir: dir, as: as, sink: sink, files: files, turn: make(chan struct{}, 1), sent: map[string]sentFile{}}
}

// parallelFiles is how many files of a folder are sent or restored at once.
const parallelFiles = 16

// Send makes a pass over the folder. The error wraps [paths.ErrRefused] if a file can never be
// sent.
func (f *Folder) Send(ctx context.Context, pass Pass) error {
	select {
	case f.turn <- struct{}{}:
		defer func() { <-f.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	found, root, err := f.scan(pass)
	if err != nil {
		return err
	}
	if root != nil {
		defer func() { _ = root.Close() }()
	}
	f.removeMissing(found)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelFiles)
	var mu sync.Mutex // guards f.sent while files are sent
	for name, old := range f.toSend(found, pass) {
		group.Go(func() error {
			now, err := f.sendFile(ctx, root, name, old, pass)
			if err != nil || now.info == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			f.sent[name] = now
			return nil
		})
	}
	err = group.Wait()
	f.before = found
	return err
}

// toSend returns the files that a pass sends, with the facts of their last sending.
func (f *Folder) toSend(found map[string]fs.FileInfo, pass Pass) map[string]sentFile {
	due := map[string]sentFile{}
	for name, info := range found {
		old, known := f.sent[name]
		sent := known && !old.fresh && old.matches(info)
		if !sent && (pass != Finished || unchanged(f.before[name], info)) {
			due[name] = old
		}
	}
	return due
}

// removeMissing removes files from the outputs that the program has removed. What earlier
// deliveries sent and was not restored is not in the folder, and stays.
func (f *Folder) removeMissing(found map[string]fs.FileInfo) {
	for name := range f.sent {
		if _, ok := found[name]; !ok {
			f.sink.Remove(name)
			delete(f.sent, name)
		}
	}
}

// matches reports whether a file is still the sent file, by its size, time and mode.
func (s sentFile) matches(info fs.FileInfo) bool {
	return s.info != nil && s.size == info.Size() && unchanged(s.info, info) && (s.info.Mode()^info.Mode())&executable == 0
}

// executable is the bit of a file's mode that outputs keep. Windows has none.
const executable = 0o100

// unchanged reports whether a file was not written between two looks.
func unchanged(before, now fs.FileInfo) bool {
	return before != nil && before.Size() == now.Size() && before.ModTime().Equal(now.ModTime()) && os.SameFile(before, now)
}

// scan returns the files of the folder by their paths, and no root if the program has removed the
// folder. A link to a file in the folder counts as that file, and one to a folder in it adds nothing.
func (f *Folder) scan(pass Pass) (found map[string]fs.FileInfo, root *os.Root, err error) {
	found = map[string]fs.FileInfo{}
	err = f.as(func() error {
		info, err := os.Lstat(f.dir)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if _, err = os.Lstat(filepath.Dir(f.dir)); err == nil { // otherwise more than the program has removed it
				return nil
			}
		case err == nil && !info.IsDir():
			return unfit(pass, filepath.Base(f.dir), "no folder any more: leave it, or make it again as one")
		case err == nil:
			root, err = openSame(f.dir, info)
		}
		if err != nil {
			return fmt.Errorf("open the output folder: %w", err)
		}
		return f.walk(root, ".", found, pass)
	})
	if err != nil && root != nil {
		_ = root.Close()
	}
	return found, root, err
}

// openSame opens a folder that was found. The program may have put a link in its place.
func openSame(dir string, found fs.FileInfo) (*os.Root, error) {
	root, err := filetype.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	if now, err := root.Stat("."); err != nil || !os.SameFile(found, now) {
		return nil, errors.Join(errChanged, err, root.Close())
	}
	return root, nil
}

// walk adds the files of a folder and its subfolders.
func (f *Folder) walk(root *os.Root, dir string, found map[string]fs.FileInfo, pass Pass) error {
	folder, err := root.OpenFile(dir, os.O_RDONLY|filetype.NoWait, 0)
	if errors.Is(err, fs.ErrNotExist) && dir != "." {
		return nil // it is gone already
	}
	if err != nil {
		return fmt.Errorf("read the output folder: %w", err)
	}
	defer func() { _ = folder.Close() }()
	const batch = 1024
	for {
		entries, err := folder.ReadDir(batch)
		for _, entry := range entries {
			if err := f.visit(root, path.Join(dir, entry.Name()), entry, found, pass); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the output folder: %w", err)
		}
	}
}

func (f *Folder) visit(root *os.Root, name string, entry fs.DirEntry, found map[string]fs.FileInfo, pass Pass) error {
	if entry.IsDir() {
		if len(name) > maxDirectory {
			return paths.Validate(name)
		}
		return f.walk(root, name, found, pass)
	}
	info, err := root.Lstat(name) // and not of the entry, which on Windows does not tell one file from another
	if errors.Is(err, fs.ErrNotExist) {
		return nil // it is gone already
	}
	if err != nil {
		return fmt.Errorf("read the output folder: %w", err)
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		switch info, err = root.Stat(name); {
		case err == nil && info.IsDir(): // such as latest -> run-7: its files have paths of their own
			return nil
		case err != nil || !info.Mode().IsRegular():
			return unfit(pass, name, "a symbolic link that does not lead to a file in the output folder, and blobs have no links: write a file")
		}
	}
	if !info.Mode().IsRegular() {
		return unfit(pass, name, fmt.Sprintf("a %s, and only files can be stored", filetype.Name(info.Mode())))
	}
	if err := paths.Validate(name); err != nil {
		return err
	}
	if found[name] = info; len(found) > f.files {
		return fmt.Errorf("output folder: %w: it has more than %d files, which the job's kind allows; store fewer, or an archive of them",
			paths.ErrRefused, f.files)
	}
	return nil
}

// maxDirectory is the longest path of a folder that is read: no file in a longer one has
// a valid path.
const maxDirectory = 4 * paths.Max

// unfit returns the error of something that is no file. Before the program has ended it
// may be there for a moment only.
func unfit(pass Pass, name, what string) error {
	if pass != Final {
		return nil
	}
	return fmt.Errorf("output %s: %w: it is %s", paths.Quote(name), paths.ErrRefused, what)
}

// errChanged means that a file changed while it was read.
var errChanged = errors.New("it changes while it is read")

// changedTries is how often a file is read that changes while it is read.
const changedTries = 3

// sendFile sends a file, unless it turns out to be sent already. The result has no info
// if the file is gone, or not finished yet.
func (f *Folder) sendFile(ctx context.Context, root *os.Root, name string, old sentFile, pass Pass) (sentFile, error) {
	for try := 1; ; try++ {
		now, err := f.trySend(ctx, root, name, old, pass)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			if pass == Final {
				return now, fmt.Errorf("output %s: it was removed after the program had ended", paths.Quote(name))
			}
			return sentFile{}, nil
		case errors.Is(err, errChanged) && pass == Finished:
			return sentFile{}, nil
		case errors.Is(err, errChanged) && try < changedTries:
			continue
		}
		return now, err
	}
}

func (f *Folder) trySend(ctx context.Context, root *os.Root, name string, old sentFile, pass Pass) (sentFile, error) {
	var s *source
	if err := f.as(func() (err error) { s, err = open(root, name, pass == Final); return err }); err != nil {
		return sentFile{}, err
	}
	defer func() { _ = s.file.Close() }()
	if old.fresh && old.matches(s.info) {
		if sum, err := s.sum(s.size); err == nil && sum == old.hash {
			old.fresh = false
			return old, nil
		}
	}
	began := time.Now()
	if err := f.sink.Send(ctx, name, s.size, s); err != nil {
		return sentFile{}, err
	}
	return sentFile{info: s.info, size: s.size, hash: s.hash.Sum64(), fresh: began.Sub(s.info.ModTime()) < freshFor}, nil
}

// freshFor is the longest time in which a file may change without a change of its time,
// by the clocks of file systems.
const freshFor = 2 * time.Second

// SkipPresent makes the files that are there now no outputs, until they change. The error wraps
// [paths.ErrRefused] if something there could never be sent.
func (f *Folder) SkipPresent() error {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	found, root, err := f.scan(Final)
	if err != nil || root == nil {
		return err
	}
	for name, info := range found {
		if _, known := f.sent[name]; !known && time.Since(info.ModTime()) >= freshFor {
			f.sent[name] = sentFile{info: info, size: info.Size()}
		}
	}
	return root.Close()
}

// Sent is a file that the job has sent before.
type Sent struct {
	Path       string
	Executable bool
}

// Restore writes the files that the job has sent before into the folder, which is empty.
// open returns the content of one.
func (f *Folder) Restore(ctx context.Context, files []Sent, open func(ctx context.Context, path string) (io.ReadCloser, error)) error {
	f.turn <- struct{}{}
	defer func() { <-f.turn }()
	var root *os.Root
	if err := f.as(func() (err error) { root, err = filetype.OpenRoot(f.dir); return err }); err != nil {
		return fmt.Errorf("open the output folder: %w", err)
	}
	defer func() { _ = root.Close() }()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelFiles)
	var mu sync.Mutex
	for _, file := range files {
		group.Go(func() error {
			info, err := f.restore(ctx, root, file, open)
			if err != nil {
				return fmt.Errorf("restore output %s: %w", paths.Quote(file.Path), err)
			}
			mu.Lock()
			defer mu.Unlock()
			f.sent[file.Path] = sentFile{info: info, size: info.Size()}
			return nil
		})
	}
	return group.Wait()
}

// restore writes one file. Its time is a while ago, so that every change shows.
func (f *Folder) restore(ctx context.Context, root *os.Root, sent Sent, open func(context.Context, string) (io.ReadCloser,
	error)) (info fs.FileInfo, err error) {
	name, mode := sent.Path, fs.FileMode(0o600)
	if sent.Executable {
		mode |= executable
	}
	content, err := open(ctx, name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = content.Close() }()
	var file *os.File
	err = f.as(func() (err error) {
		if err = root.MkdirAll(path.Dir(name), 0o700); err == nil {
			file, err = root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(file, content)
	if err := errors.Join(err, file.Close()); err != nil {
		return nil, err
	}
	err = f.as(func() (err error) {
		past := time.Now().Add(-2 * freshFor)
		if err = root.Chtimes(name, past, past); err == nil {
			info, err = root.Stat(name)
		}
		return err
	})
	return info, err
}
