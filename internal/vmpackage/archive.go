package vmpackage

import (
	"archive/tar"
	"compress/gzip"
	"io"
	"path"
	"slices"
	"strings"
	"time"
)

const (
	executableMode = 0o755
	plainMode      = 0o644
)

// writeArchive writes files as a compressed tar archive in which nothing depends
// on the machine: names are in order, all have the given time, and there are no owners.
func writeArchive(out io.Writer, files []file, at time.Time) error {
	zipped, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	archive := tar.NewWriter(zipped)
	at = at.UTC().Truncate(time.Second)
	for _, folder := range folders(files) {
		if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: executableMode, ModTime: at}); err != nil {
			return err
		}
	}
	files = slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
	for _, f := range files {
		if err := writeFile(archive, f, at); err != nil {
			return err
		}
	}
	if err := archive.Close(); err != nil {
		return err
	}
	return zipped.Close()
}

func writeFile(archive *tar.Writer, f file, at time.Time) error {
	header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Size: int64(len(f.data)), Mode: plainMode, ModTime: at}
	if f.executable {
		header.Mode = executableMode
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err := archive.Write(f.data)
	return err
}

// folders returns the folders of files, each after its parent folder.
func folders(files []file) []string {
	seen := map[string]bool{}
	for _, f := range files {
		for folder := path.Dir(f.name); folder != "."; folder = path.Dir(folder) {
			seen[folder] = true
		}
	}
	names := make([]string, 0, len(seen))
	for name := range seen {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
