package spill

import (
	"bufio"
	"errors"
	"io"
	"os"
)

// Buffer is a sequence of bytes that is written once and then read, any number of times and
// by several readers. What exceeds its memory is in a temporary file, which has no name, so
// that nothing is left of it when the process ends.
type Buffer struct {
	dir    string // of the temporary file
	memory int

	file   *os.File // nil while all is in memory
	inFile int64    // bytes in the file
	buffer []byte   // the bytes behind those
	remove string   // the file's name where an open file cannot be removed
}

// NewBuffer returns a buffer that holds so many bytes in memory, and others in a temporary
// file in that folder.
func NewBuffer(dir string, memory int) *Buffer { return &Buffer{dir: dir, memory: memory} }

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	if b.buffer = append(b.buffer, p...); len(b.buffer) < b.memory {
		return len(p), nil
	}
	if b.file == nil {
		if err := b.create(); err != nil {
			return 0, err
		}
	}
	n, err := b.file.WriteAt(b.buffer, b.inFile)
	b.inFile += int64(n)
	b.buffer = b.buffer[:0]
	return len(p), err
}

func (b *Buffer) create() error {
	file, err := os.CreateTemp(b.dir, ".archive-*") // mode 0600
	if err != nil {
		return err
	}
	if os.Remove(file.Name()) != nil {
		b.remove = file.Name()
	}
	b.file = file
	return nil
}

// Size is the number of bytes that were written.
func (b *Buffer) Size() int64 { return b.inFile + int64(len(b.buffer)) }

// ReadAt implements [io.ReaderAt].
func (b *Buffer) ReadAt(p []byte, at int64) (n int, err error) {
	if at < b.inFile {
		n, err = b.file.ReadAt(p[:min(int64(len(p)), b.inFile-at)], at)
		if err != nil {
			return n, err
		}
	}
	if in := at + int64(n) - b.inFile; n < len(p) && in < int64(len(b.buffer)) {
		n += copy(p[n:], b.buffer[in:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Reader returns a reader of a part, which has a buffer of that size.
func (b *Buffer) Reader(from, size int64, buffer int) *bufio.Reader {
	return bufio.NewReaderSize(io.NewSectionReader(b, from, size), buffer)
}

// Close implements [io.Closer].
func (b *Buffer) Close() error {
	file, name := b.file, b.remove
	if b.file, b.remove = nil, ""; file == nil {
		return nil
	}
	err := file.Close()
	if name != "" {
		err = errors.Join(err, os.Remove(name))
	}
	return err
}
