package archive

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// dataOf returns where a file has data. A file system without holes has one range.
func dataOf(file *os.File, size int64) ([]span, error) {
	var all []span
	for at := int64(0); at < size; {
		from, err := file.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // nothing but a hole
		}
		if err != nil {
			return []span{{0, size}}, nil //nolint:nilerr // not supported here
		}
		to, err := file.Seek(from, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		all = append(all, span{from, min(to, size) - from})
		at = to
	}
	_, err := file.Seek(0, io.SeekStart)
	return all, err
}
