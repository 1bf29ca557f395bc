package vmpackage

import (
	"archive/zip"
	"compress/flate"
	"io"
	"slices"
	"strings"
	"time"
)

// writeZip writes files as a zip archive, which tar.exe of Windows unpacks. As in
// [writeArchive] nothing depends on the machine.
func writeZip(out io.Writer, files []file, at time.Time) error {
	archive := zip.NewWriter(out)
	archive.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(w, flate.BestCompression)
	})
	files = slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
	for _, f := range files {
		entry, err := archive.CreateHeader(&zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at.UTC().Truncate(time.Second)})
		if err != nil {
			return err
		}
		if _, err := entry.Write(f.data); err != nil {
			return err
		}
	}
	return archive.Close()
}

// readZip returns the files of such an archive, and their time.
func readZip(name string) (files []file, at time.Time, err error) {
	archive, err := zip.OpenReader(name)
	if err != nil {
		return nil, at, err
	}
	defer archive.Close()
	for _, entry := range archive.File {
		in, err := entry.Open()
		if err != nil {
			return nil, at, err
		}
		data, err := io.ReadAll(in)
		if err != nil {
			in.Close()
			return nil, at, err
		}
		if err := in.Close(); err != nil {
			return nil, at, err
		}
		at = entry.Modified
		files = append(files, file{name: entry.Name, data: data})
	}
	return files, at, nil
}
