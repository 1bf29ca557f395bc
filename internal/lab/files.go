package lab

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// smallestInput is the least size of an input, in bytes: a job must have a
// middle, more than two of the digest's 4 MiB ranges.
const smallestInput = 9 << 20

// File is a blob that a digest job hashes: whole files of this machine, one
// after another, since few files are as large as a job should be.
type File struct {
	// Blob is the name in the container: the first file's path without its
	// leading slash, and how many follow, as in "usr/lib/libx.so+3".
	Blob   string
	Parts  []string // the files' paths
	Size   int64
	SHA256 string // lower-case hex, computed by the lab while uploading
}

// Roots returns the folders in which [Choose] looks for files, best first: the
// Go installation, then what most systems have.
func Roots(goroot string) []string {
	roots := []string{"/usr/lib", "/usr/bin", "/usr/share", "/Library"}
	if goroot != "" {
		roots = slices.Insert(roots, 0, goroot)
	}
	return roots
}

// Choose makes n inputs of about that size, from an eighth less to a quarter
// more, of readable regular files below the first roots that have enough of
// them. Where all roots together have too little, inputs may be smaller, and in
// the end there are fewer. The same files give the same choice.
func Choose(roots []string, n int, size int64) ([]File, error) {
	least, most := size-size/8, size+size/4
	var found []part
	for _, root := range roots {
		found = append(found, filesBelow(root, most)...)
		slices.SortFunc(found, largerFirst)
		if chosen := pack(found, n, least, most); len(chosen) == n {
			return chosen, nil
		}
	}
	for ; least > smallestInput; least -= least / 8 {
		if chosen := pack(found, n, least, most); len(chosen) == n {
			return chosen, nil
		}
	}
	if chosen := pack(found, n, smallestInput, most); len(chosen) > 0 {
		return chosen, nil
	}
	return nil, errors.New("too few readable files to work on in " + strings.Join(roots, ", "))
}

// part is a file that may become part of an input.
type part struct {
	path string
	size int64
}

// filesBelow returns the regular files of at most most bytes below root.
// Folders that cannot be read are passed over.
func filesBelow(root string, most int64) []part {
	var found []part
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be read is no input
		}
		info, err := entry.Info()
		if err != nil || info.Size() == 0 || info.Size() > most || !plain(path) {
			return nil //nolint:nilerr // as above
		}
		found = append(found, part{path, info.Size()})
		return nil
	})
	return found
}

func largerFirst(a, b part) int {
	return cmp.Or(cmp.Compare(b.size, a.size), cmp.Compare(a.path, b.path))
}

// pack makes up to n inputs of least to most bytes, of files that come largest
// first. It uses no file twice.
func pack(found []part, n int, least, most int64) []File {
	used := make([]bool, len(found))
	var inputs []File
	for range n {
		input := fill(found, used, least, most)
		if input.Size < least {
			break
		}
		input.Blob = blobName(input.Parts)
		inputs = append(inputs, input)
	}
	return inputs
}

// fill makes one input: always the largest file that still fits.
func fill(found []part, used []bool, least, most int64) (input File) {
	for i, f := range found {
		switch {
		case input.Size >= least:
			return input
		case used[i] || input.Size+f.size > most:
		case !readable(f.path):
			used[i] = true
		default:
			used[i] = true
			input.Parts, input.Size = append(input.Parts, f.path), input.Size+f.size
		}
	}
	return input
}

// plain reports whether a path is a blob name that every client writes alike.
func plain(path string) bool {
	return !strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`\?#%"`, c) })
}

func blobName(parts []string) string {
	if len(parts) == 0 {
		return ""
	}
	name := strings.TrimPrefix(filepath.ToSlash(parts[0]), "/")
	if more := len(parts) - 1; more > 0 {
		name += fmt.Sprintf("+%d", more)
	}
	return name
}

func readable(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	return file.Close() == nil
}

// listFolders says, for people, how many files are from where.
func listFolders(files []File, roots []string) string {
	count, total := map[string]int{}, 0
	for _, f := range files {
		for _, path := range f.Parts {
			total++
			count[rootOf(path, roots)]++
		}
	}
	var folders []string
	for _, root := range roots {
		if n := count[root]; n > 0 {
			folders = append(folders, fmt.Sprintf("%d from %s", n, root))
		}
	}
	return plural(total, "file") + ": " + strings.Join(folders, ", ")
}

func rootOf(path string, roots []string) string {
	for _, root := range roots {
		if strings.HasPrefix(path, strings.TrimSuffix(root, "/")+"/") {
			return root
		}
	}
	return ""
}

func totalSize(files []File) (bytes int64) {
	for _, f := range files {
		bytes += f.Size
	}
	return bytes
}
