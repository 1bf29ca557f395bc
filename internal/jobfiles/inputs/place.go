package inputs

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/spotworker/spotworker/internal/jobfiles/inputs/named"
)

// placer finds paths that collide: two files of one path, or a file where another needs a
// folder.
type placer struct {
	windows    bool              // rules of Windows
	ignoreCase bool              // the file system ignores case
	files      map[string]string // the blob of each path
	folders    map[string]string // a blob below each folder
}

func newPlacer() *placer {
	return &placer{
		windows: runtime.GOOS == "windows", ignoreCase: runtime.GOOS == "windows" || runtime.GOOS == "darwin",
		files: map[string]string{}, folders: map[string]string{},
	}
}

// place takes the path of a blob's file. An error says why it cannot be there.
func (p *placer) place(path, blob string) error {
	err := named.CheckPath(path)
	if err == nil && p.windows {
		err = named.CheckWindowsPath(path)
	}
	if err != nil {
		return fmt.Errorf("%s cannot be the file %.200q: %w", blob, path, err)
	}
	key := path
	if p.ignoreCase {
		key = strings.ToLower(path)
	}
	if other, ok := p.files[key]; ok {
		return fmt.Errorf("%s and %s would both be the file %q: give one another path (to)", other, blob, path)
	}
	if other, ok := p.folders[key]; ok {
		return fmt.Errorf("%s would be the file %q, where %s needs a folder: give one another path (to)", blob, path, other)
	}
	p.files[key] = blob
	for i := strings.LastIndexByte(key, '/'); i >= 0; i = strings.LastIndexByte(key[:i], '/') {
		if other, ok := p.files[key[:i]]; ok {
			return fmt.Errorf("%s would be the file %q, where %s needs a folder: give one another path (to)", other, path[:i], blob)
		}
		if _, ok := p.folders[key[:i]]; ok {
			break // and so are those above it
		}
		p.folders[key[:i]] = blob
	}
	return nil
}
