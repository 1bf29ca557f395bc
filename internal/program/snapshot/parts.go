package snapshot

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// folderParts are the parts that are folders; the others are files.
var folderParts = []string{"work", "tmp", "shm"}

// specialTypes are the types that the archive of a state cannot hold, but [attributes] can.
const specialTypes = fs.ModeNamedPipe | fs.ModeSocket

// checkParts returns a [*RefusedError] if a job's folder has something that a snapshot
// cannot hold. It is called before anything is moved or copied, so that the program
// continues.
func checkParts(job string) error {
	for _, part := range Parts {
		if err := checkKind(job, part); err != nil {
			return err
		}
		err := filepath.WalkDir(filepath.Join(job, part), func(name string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || d.Type().IsRegular() || d.Type()&specialTypes != 0 {
				return err
			}
			within, err := filepath.Rel(job, name)
			if err != nil {
				return err
			}
			within = filepath.ToSlash(within)
			if d.Type()&fs.ModeSymlink == 0 {
				return &RefusedError{Reason: "the program's folder has a device, which cannot be kept: " + within, Known: true}
			}
			target, err := os.Readlink(name)
			if err == nil && !staysInside(within, target) {
				err = &RefusedError{Reason: "the program's folder has a link that leads out of it, which cannot be kept: " + within + " -> " + target,
					Known: true}
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// checkKind returns a [*RefusedError] if a part is not the folder or file that it has to be. The
// worker finds the parts by their names, so a link in the place of one would lead it elsewhere.
func checkKind(job, part string) error {
	info, err := os.Lstat(filepath.Join(job, part))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if isFolder := slices.Contains(folderParts, part); isFolder != info.IsDir() || !isFolder && !info.Mode().IsRegular() {
		return &RefusedError{Reason: "something else has the name of a part of the job's folder: " + part, Known: true}
	}
	return nil
}

// staysInside reports whether a link leads to a place in the job's folder, with ".." only at
// the start of its target.
func staysInside(name, target string) bool {
	if path.IsAbs(target) || target == "" {
		return false
	}
	inner := target
	for strings.HasPrefix(inner, "../") {
		inner = inner[len("../"):]
	}
	if inner != ".." && strings.Contains("/"+inner+"/", "/../") {
		return false
	}
	return filepath.IsLocal(path.Join(path.Dir(name), target))
}
