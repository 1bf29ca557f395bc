package outfolder

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/zeebo/xxh3"

	"github.com/spotworker/spotworker/internal/host/filetype"
	"github.com/spotworker/spotworker/internal/jobfiles/outputs/paths"
)

// source is a file of a program while it is sent. It notices when the file changes: its
// last Read fails then, so that nothing is stored. Of a file that has only grown it
// yields the bytes that were there when it was opened.
type source struct {
	file  *os.File
	info  fs.FileInfo // when it was opened
	size  int64
	final bool // the program has ended: nothing may change
	at    int64
	hash  xxh3.Hasher
}

// open opens a file of a folder, which must be a regular one.
func open(root *os.Root, name string, final bool) (*source, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|filetype.NoWait, 0)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("output %s: %w", paths.Quote(name), errChanged) // it was a file just now
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &source{file: file, info: info, size: info.Size(), final: final}, nil
}

// Stat returns the file as it was when it was opened.
func (s *source) Stat() (fs.FileInfo, error) { return s.info, nil }

// Read implements [io.Reader].
func (s *source) Read(p []byte) (int, error) {
	if left := s.size - s.at; int64(len(p)) > left {
		p = p[:left]
	}
	if len(p) == 0 {
		if s.at < s.size {
			return 0, nil
		}
		return 0, s.check()
	}
	n, err := s.file.ReadAt(p, s.at)
	s.at += int64(n)
	_, _ = s.hash.Write(p[:n]) // never fails
	if errors.Is(err, io.EOF) {
		err = nil
		if n == 0 {
			err = errChanged // it was cut
		}
	}
	return n, err
}

// check returns io.EOF if all of the file was read, unchanged.
func (s *source) check() error {
	now, err := s.file.Stat()
	switch {
	case err != nil:
		return err
	case unchanged(s.info, now):
		return io.EOF
	case s.final, now.Size() < s.size:
		return errChanged
	}
	sum, err := s.sum(s.size)
	switch {
	case err != nil:
		return err
	case sum != s.hash.Sum64():
		return errChanged
	}
	return io.EOF
}

// sum returns the hash of the first bytes of the file as they are now.
func (s *source) sum(size int64) (uint64, error) {
	var h xxh3.Hasher
	n, err := io.Copy(&h, io.NewSectionReader(s.file, 0, size))
	if err == nil && n < size {
		err = errChanged
	}
	return h.Sum64(), err
}

// Seek implements [io.Seeker] for the start, from which a file is sent again, and for
// the current place.
func (s *source) Seek(offset int64, whence int) (int64, error) {
	switch {
	case whence == io.SeekCurrent && offset == 0:
		return s.at, nil
	case whence == io.SeekStart && offset == 0:
		s.at = 0
		s.hash.Reset()
		return 0, nil
	}
	return 0, errors.ErrUnsupported
}
