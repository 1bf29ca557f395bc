package archive

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/spotworker/spotworker/internal/program/archive/spill"
)

// list is a list of entries in the order of their paths, with the known facts of their files.
// Offsets are not in it.
type list struct {
	*spill.Buffer
	record []byte // the last one written
}

// add writes an entry at the end of the list.
func (l *list) add(e *entry) error {
	l.record = spill.AppendRecord(l.record[:0], []byte(e.path), e.details())
	_, err := l.Write(l.record)
	return err
}

// read returns a reader from the start of the list.
func (l *list) read() *listReader {
	return &listReader{of: l.Reader(0, l.Size(), 32<<10)}
}

// listReader reads a list.
type listReader struct {
	of     *bufio.Reader
	record []byte
}

// next returns the next entry, or [io.EOF].
func (l *listReader) next() (e *entry, err error) {
	var path, details []byte
	if l.record, path, details, err = spill.ReadRecord(l.of, l.record); err != nil {
		return nil, err
	}
	return decodeDetails(path, details)
}

// details holds the known facts of an entry without its path: type, size, times, inode,
// the length of its target, the target, and its ranges.
func (e *entry) details() []byte {
	to := append(make([]byte, 0, 32), e.kind)
	to = binary.AppendUvarint(to, uint64(e.size))
	to = binary.AppendVarint(to, e.stamp.modified)
	to = binary.AppendUvarint(to, e.stamp.inode)
	to = binary.AppendVarint(to, e.born)
	to = binary.AppendUvarint(to, uint64(len(e.target)))
	to = append(to, e.target...)
	if e.holes != nil {
		to = append(to, e.holes.String()...)
	}
	return to
}

// errList is the error of a list that was not written by this package: only a process of
// the same user can do that.
var errList = errors.New("list of files: a record is invalid")

// decodeDetails is the reverse of details.
func decodeDetails(path, details []byte) (*entry, error) {
	if len(details) == 0 {
		return nil, errList
	}
	e := &entry{path: string(path), kind: details[0]}
	d := decoder{details[1:], true}
	e.size = int64(d.uvarint())
	e.stamp.modified = d.varint()
	e.stamp.inode = d.uvarint()
	e.born = d.varint()
	target := d.uvarint()
	if !d.ok || e.size < 0 || target > uint64(len(d.left)) {
		return nil, errList
	}
	e.target, d.left = string(d.left[:target]), d.left[target:]
	if len(d.left) > 0 {
		var err error
		if e.holes, err = decodeRanges(string(d.left)); err != nil {
			return nil, fmt.Errorf("list of files: %w", err)
		}
	}
	return e, nil
}

// decoder reads numbers.
type decoder struct {
	left []byte
	ok   bool // all numbers were there
}

func (d *decoder) uvarint() uint64 {
	value, n := binary.Uvarint(d.left)
	d.skip(n)
	return value
}

func (d *decoder) varint() int64 {
	value, n := binary.Varint(d.left)
	d.skip(n)
	return value
}

func (d *decoder) skip(n int) {
	if n <= 0 {
		d.ok, n = false, 0
	}
	d.left = d.left[n:]
}

// each calls do for every entry of the list.
func (l *list) each(do func(e *entry) error) error {
	for r := l.read(); ; {
		e, err := r.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = do(e)
		}
		if err != nil {
			return err
		}
	}
}
