package ownfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/internal/host/filetype"
	"github.com/spotworker/spotworker/internal/program/command"
)

// Names in the working folder of what the worker makes: two links, and the folder of outputs. A
// relative path is the same on every VM, so a program may keep it in its own files.
const (
	Payload = "payload"
	Inputs  = "inputs"
	Output  = command.Output
)

func isReserved(name string) bool { return name == Payload || name == Inputs || name == Output }

// CheckPattern returns an error if a pattern is none of [path.Match], or names files that are not the
// program's own in the working folder. Patterns have slashes on every system.
func CheckPattern(pattern string) error {
	parts := strings.Split(pattern, "/")
	_, bad := path.Match(pattern, "")
	switch {
	case pattern == "":
		return errors.New(`a pattern must not be empty: give names of files in the job's working folder, such as "md.*"`)
	case path.IsAbs(pattern) || filepath.IsAbs(pattern) || filepath.VolumeName(pattern) != "":
		return fmt.Errorf("%q is an absolute path: give a pattern that starts in the job's working folder", pattern)
	case slices.Contains(parts, ".."):
		return fmt.Errorf("%q leaves the job's working folder: take out its parts \"..\"", pattern)
	case slices.Contains(parts, ".") || slices.Contains(parts, ""):
		return fmt.Errorf("%q matches nothing: take out empty parts and parts \".\"", pattern)
	case slices.Contains(parts, "**"):
		return fmt.Errorf("%q: ** is no pattern for folders of any depth: name a folder, and all files in it are meant", pattern)
	case bad != nil:
		return fmt.Errorf(`%q is not a pattern: * and ? stand for characters, [a-z] for one of a range`, pattern)
	case isReserved(parts[0]):
		return fmt.Errorf("%q is what the worker makes, not files of the program's own; files in output are outputs already", pattern)
	}
	return nil
}

// found are files by path with slashes, each as it was when it was looked at.
type found map[string]fs.FileInfo

// same reports whether a file was not written to between two looks, as far as its size and
// time tell.
func same(a, b fs.FileInfo) bool {
	return a != nil && b != nil && os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// equal reports whether both looks found the same unchanged files.
func (f found) equal(other found) bool {
	if len(f) != len(other) {
		return false
	}
	for name, info := range f {
		if !same(info, other[name]) {
			return false
		}
	}
	return true
}

// isReplaced reports whether all files that differ were replaced by others, or are gone.
func (f found) isReplaced(before found) bool {
	for name, info := range f {
		if was := before[name]; !same(was, info) && (was == nil || os.SameFile(was, info)) {
			return false
		}
	}
	return true
}

// size is the sum of all sizes.
func (f found) size() (sum int64) {
	for _, info := range f {
		sum += info.Size()
	}
	return sum
}

// Find returns the paths of the files that patterns match below a folder, with slashes and
// sorted. Of a folder that matches it returns all files.
func Find(dir string, patterns []string) ([]string, error) {
	root, err := filetype.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	all, err := find(root, patterns)
	var names []string
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, err
}

// find looks for files. A file that is gone meanwhile is left out, and so is everything but
// files and the links that stay in the folder.
func find(root *os.Root, patterns []string) (found, error) {
	all, files := found{}, tree{root}
	add := func(name string, info fs.FileInfo) {
		if info.Mode().IsRegular() || info.Mode()&fs.ModeSymlink != 0 && staysInside(root, name) {
			all[name] = info
		}
	}
	visit := func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return skipGone(err)
		}
		info, err := entry.Info()
		if err == nil {
			add(name, info)
		}
		return skipGone(err)
	}
	for _, pattern := range patterns {
		matches, err := fs.Glob(files, pattern)
		if err != nil {
			return nil, err
		}
		for _, match := range matches {
			if top, _, _ := strings.Cut(match, "/"); isReserved(top) {
				continue
			}
			info, err := root.Lstat(filepath.FromSlash(match))
			switch {
			case err != nil:
				err = skipGone(err)
			case info.IsDir():
				err = fs.WalkDir(files, match, visit)
			default:
				add(match, info)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// tree is the file system of a root. That of [os.Root.FS] refuses names that are no UTF-8.
type tree struct{ root *os.Root }

// Open implements [fs.FS].
func (t tree) Open(name string) (fs.File, error) {
	return t.root.OpenFile(filepath.FromSlash(name), os.O_RDONLY|filetype.NoWait, 0)
}

// Stat implements [fs.StatFS].
func (t tree) Stat(name string) (fs.FileInfo, error) { return t.root.Stat(filepath.FromSlash(name)) }

func skipGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// staysInside reports whether a symbolic link leads to a place in the folder.
func staysInside(root *os.Root, name string) bool {
	target, err := root.Readlink(filepath.FromSlash(name))
	if err != nil || filepath.IsAbs(target) {
		return false
	}
	return filepath.IsLocal(filepath.Join(filepath.FromSlash(path.Dir(name)), target))
}
