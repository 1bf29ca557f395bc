package lab

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Sizes of input files, in bytes. A job must have a middle: more than one of
// the digest's 4 MiB ranges. It must also be short enough to be repeated from
// anywhere within the demo.
const (
	smallestFile = 4<<20 + 1
	largestFile  = 20 << 20
)

// File is one input: a file of this machine that a digest job hashes.
type File struct {
	Path   string
	Blob   string // name in the container: the path without its leading slash
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

// Choose returns n readable regular files, largest first: those of the first
// root, as far as they have a fit size, then those of the next. Where all roots
// together have too few of them it takes smaller ones. The same files give the
// same choice. It returns fewer than n only if there are no more.
func Choose(roots []string, n int) ([]File, error) {
	var fit, small []File
	for _, root := range roots {
		files := filesBelow(root)
		at, _ := slices.BinarySearchFunc(files, smallestFile-1, func(f File, size int64) int { return cmp.Compare(size, f.Size) })
		fit, small = append(fit, files[:at]...), append(small, files[at:]...)
		if len(fit) >= n {
			break
		}
	}
	slices.SortStableFunc(small, largerFirst)
	chosen := slices.Concat(fit, small)
	chosen = chosen[:min(n, len(chosen))]
	if len(chosen) == 0 {
		return nil, errors.New("no readable file to work on in " + strings.Join(roots, ", "))
	}
	slices.SortFunc(chosen, largerFirst)
	return chosen, nil
}

// filesBelow returns the readable regular files of at most largestFile below
// root, largest first, then by path. Folders that cannot be read are passed over.
func filesBelow(root string) []File {
	var files []File
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // what cannot be read is no input
		}
		info, err := entry.Info()
		if err != nil || info.Size() == 0 || info.Size() > largestFile || !plain(path) {
			return nil //nolint:nilerr // as above
		}
		files = append(files, File{Path: path, Blob: blobName(path), Size: info.Size()})
		return nil
	})
	slices.SortFunc(files, largerFirst)
	return slices.DeleteFunc(files, func(f File) bool { return f.Size >= smallestFile && !readable(f.Path) })
}

func largerFirst(a, b File) int {
	return cmp.Or(cmp.Compare(b.Size, a.Size), cmp.Compare(a.Path, b.Path))
}

// plain reports whether a path is a blob name that every client writes alike.
func plain(path string) bool {
	return !strings.ContainsFunc(path, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`\?#%"`, c) })
}

func blobName(path string) string {
	return strings.TrimPrefix(filepath.ToSlash(path), "/")
}

func readable(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	return file.Close() == nil
}

// folders says, for people, how many of the files lie below which root.
func folders(files []File, roots []string) map[string]int {
	count := map[string]int{}
	for _, f := range files {
		for _, root := range roots {
			if strings.HasPrefix(f.Path, strings.TrimSuffix(root, "/")+"/") {
				count[root]++
				break
			}
		}
	}
	return count
}

func totalSize(files []File) (bytes int64) {
	for _, f := range files {
		bytes += f.Size
	}
	return bytes
}
