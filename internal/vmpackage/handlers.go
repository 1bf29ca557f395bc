package vmpackage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spotworker/spotworker/internal/program"
)

// kindsName is the file of a folder of handlers that describes the kinds.
const kindsName = "kinds.json"

// readHandlers reads a folder with programs and the kinds file; no folder is none.
// Files whose names begin with a dot, and folders named __pycache__, stay out.
func readHandlers(folder string) ([]file, error) {
	if folder == "" {
		return nil, nil
	}
	if err := program.CheckKinds(filepath.Join(folder, kindsName)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%s has no %s, which names the programs that do the jobs (docs/jobs.md)", folder, kindsName)
		}
		return nil, err
	}
	root := os.DirFS(folder)
	var files []file
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name != "." && isLeftOut(name) {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if entry.IsDir() {
			return nil
		}
		f, err := readHandler(root, name, entry)
		files = append(files, f)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("handlers: %w", err)
	}
	return files, nil
}

func isLeftOut(name string) bool {
	base := path.Base(name)
	return strings.HasPrefix(base, ".") || base == "__pycache__"
}

// readHandler reads one file. A link would lead somewhere else on the VM.
func readHandler(root fs.FS, name string, entry fs.DirEntry) (f file, err error) {
	if !entry.Type().IsRegular() {
		return f, fmt.Errorf("%s is no regular file: put the file itself there, since links and devices do not travel", name)
	}
	info, err := entry.Info()
	if err != nil {
		return f, err
	}
	data, err := fs.ReadFile(root, name)
	return file{name: name, data: data, executable: info.Mode()&0o111 != 0}, err
}
