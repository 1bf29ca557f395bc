package vmpackage

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spotworker/spotworker/vmapp"
)

// Configure copies a package and adds a configuration file to it, for where the
// platform does not bring one beside the package. The same files give the same
// bytes.
func Configure(archive, configuration, out string) error {
	settings, err := os.ReadFile(configuration)
	if err != nil {
		return err
	}
	read, write := readArchive, writeArchive
	if strings.HasSuffix(archive, ".zip") {
		read, write = readZip, writeZip
	}
	files, at, err := read(archive)
	if err != nil {
		return fmt.Errorf("read package %s: %w", archive, err)
	}
	for _, f := range files {
		if f.name == vmapp.ConfigurationFile {
			return fmt.Errorf("package %s has a %s already", archive, f.name)
		}
	}
	files = append(files, file{name: vmapp.ConfigurationFile, data: settings})
	var data bytes.Buffer
	if err := write(&data, files, at); err != nil {
		return err
	}
	return writeWhole(out, data.Bytes())
}

// readArchive returns the files of a package, and their time.
func readArchive(name string) (files []file, at time.Time, err error) {
	in, err := os.Open(name)
	if err != nil {
		return nil, at, err
	}
	defer in.Close()
	return readFiles(in)
}

// readFiles returns the files of a compressed tar archive, and the time of the last one.
func readFiles(in io.Reader) (files []file, at time.Time, err error) {
	plain, err := gzip.NewReader(in)
	if err != nil {
		return nil, at, err
	}
	archive := tar.NewReader(plain)
	for {
		header, err := archive.Next()
		switch {
		case errors.Is(err, io.EOF) && len(files) == 0:
			return nil, at, errors.New("it has no files")
		case errors.Is(err, io.EOF):
			return files, at, nil
		case err != nil:
			return nil, at, err
		case header.Typeflag != tar.TypeReg:
			continue
		}
		data, err := io.ReadAll(archive)
		if err != nil {
			return nil, at, err
		}
		at = header.ModTime
		files = append(files, file{
			name: strings.TrimPrefix(header.Name, "./"), data: data, executable: header.Mode&0o100 != 0,
		})
	}
}
