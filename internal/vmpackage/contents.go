package vmpackage

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/spotworker/spotworker/vmapp"
)

const (
	sumsName    = "SHA256SUMS"
	releaseName = "release"

	// digestLength is how much of the digest is in a release's name: enough that
	// no two packages of one version share it by chance.
	digestLength = 12
)

// file is one of an archive.
type file struct {
	name       string // with slashes
	data       []byte
	executable bool
}

// inHandlers returns the handlers' files with their names in a release.
func inHandlers(handlers []file) []file {
	files := make([]file, 0, len(handlers))
	for _, f := range handlers {
		f.name = path.Join("handlers", f.name)
		files = append(files, f)
	}
	return files
}

// contents returns all files of a package, and its release. The files are the worker, others
// with their names in a release, the fixed files, checksums, and the name of the release.
func contents(c Config, target target, binary []byte, others []file) (release string, files []file, err error) {
	payload := target.payload()
	files = []file{{name: path.Join(payload, target.binary()), data: binary, executable: true}}
	for _, f := range others {
		f.name = path.Join(payload, f.name)
		files = append(files, f)
	}
	if target.system == linux {
		static, err := fixed()
		if err != nil {
			return "", nil, err
		}
		files = append(files, static...)
	}
	sums := checksums(files)
	digest := sha256.Sum256(sums)
	release = c.Version + "-" + hex.EncodeToString(digest[:])[:digestLength]
	return release, append(
		files,
		file{name: sumsName, data: sums},
		file{name: releaseName, data: fmt.Appendf(nil, "RELEASE=%s\nARCHITECTURE=%s\n", release, target.architecture)},
	), nil
}

// fixed returns the files that are the same in every package for Linux. Scripts stand at the
// top.
func fixed() ([]file, error) {
	var files []file
	err := fs.WalkDir(vmapp.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := vmapp.Files.ReadFile(name)
		files = append(files, file{name: strings.TrimPrefix(name, "scripts/"), data: data})
		return err
	})
	return files, err
}

// checksums lists files as sha256sum does, by name.
func checksums(files []file) []byte {
	lines := make([]string, 0, len(files))
	for _, f := range files {
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(f.data), f.name))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[2*sha256.Size:], b[2*sha256.Size:]) })
	return []byte(strings.Join(lines, ""))
}
