package spill

import (
	"bufio"
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"io"
	"slices"
)

// Sorter sorts records by their keys. It holds a bounded part of them in memory: when that
// is full it is sorted and written to a temporary file as a run, and the runs are merged
// at the end. Keys that are equal stay in their order within a run.
type Sorter struct {
	buffer *Buffer // of runs
	runs   []span  // in the buffer
	memory int     // bytes of records

	records []byte // that are in no run yet
	begins  []int  // where each of them begins
}

// NewSorter returns a sorter that holds about so many bytes in memory, and others in a
// temporary file in that folder.
func NewSorter(dir string, memory int) *Sorter {
	return &Sorter{buffer: NewBuffer(dir, memory/8), memory: memory}
}

// AppendRecord appends a record: the lengths of its key and its value, then both.
func AppendRecord(to, key, value []byte) []byte {
	to = binary.AppendUvarint(to, uint64(len(key)))
	to = binary.AppendUvarint(to, uint64(len(value)))
	return append(append(to, key...), value...)
}

// Add adds a record, whose bytes it copies.
func (s *Sorter) Add(key, value []byte) error {
	s.begins = append(s.begins, len(s.records))
	s.records = AppendRecord(s.records, key, value)
	if len(s.records) < s.memory {
		return nil
	}
	return s.endRun()
}

// endRun writes the records in memory, sorted.
func (s *Sorter) endRun() error {
	from := s.buffer.Size()
	s.sort()
	for _, at := range s.begins {
		_, _, end := recordAt(s.records, at)
		if _, err := s.buffer.Write(s.records[at:end]); err != nil {
			return err
		}
	}
	s.runs = append(s.runs, span{from, s.buffer.Size() - from})
	s.records, s.begins = s.records[:0], s.begins[:0]
	return nil
}

func (s *Sorter) sort() {
	slices.SortStableFunc(s.begins, func(a, b int) int {
		first, _, _ := recordAt(s.records, a)
		second, _, _ := recordAt(s.records, b)
		return bytes.Compare(first, second)
	})
}

// recordAt returns a record of the memory, and where it ends.
func recordAt(records []byte, at int) (key, value []byte, end int) {
	keyLen, n := binary.Uvarint(records[at:])
	at += n
	valueLen, n := binary.Uvarint(records[at:])
	at += n
	middle := at + int(keyLen)
	end = middle + int(valueLen)
	return records[at:middle], records[middle:end], end
}

// Sorted ends the additions, and returns the records in the order of their keys.
func (s *Sorter) Sorted() (*Merger, error) {
	if len(s.runs) == 0 {
		s.sort()
		return &Merger{memory: s}, nil
	}
	if err := s.endRun(); err != nil {
		return nil, err
	}
	s.records, s.begins = nil, nil
	const readAhead = 16 << 10
	m := &Merger{}
	for _, part := range s.runs {
		r := &runReader{of: s.buffer.Reader(part.from, part.size, readAhead)}
		if err := r.next(); err == nil {
			m.runs = append(m.runs, r)
		} else if !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	heap.Init(&m.runs)
	return m, nil
}

// Close removes the temporary file.
func (s *Sorter) Close() error { return s.buffer.Close() }

// Merger reads the records of a sorter in order.
type Merger struct {
	memory *Sorter // of records that are all in memory; otherwise nil
	at     int     // of the next one

	runs    runs // not read to their ends
	started bool // the record of the first run was returned
}

// Next returns the next record, which is valid until the next call, or [io.EOF].
func (m *Merger) Next() (key, value []byte, err error) {
	if m.memory != nil {
		if m.at == len(m.memory.begins) {
			return nil, nil, io.EOF
		}
		m.at++
		key, value, _ = recordAt(m.memory.records, m.memory.begins[m.at-1])
		return key, value, nil
	}
	if m.started {
		switch err := m.runs[0].next(); {
		case errors.Is(err, io.EOF):
			heap.Pop(&m.runs)
		case err != nil:
			return nil, nil, err
		default:
			heap.Fix(&m.runs, 0)
		}
	}
	if len(m.runs) == 0 {
		return nil, nil, io.EOF
	}
	m.started = true
	return m.runs[0].key, m.runs[0].value, nil
}

// runs is a heap: the run with the lowest key is the first.
type runs []*runReader

func (r runs) Len() int           { return len(r) }
func (r runs) Less(a, b int) bool { return bytes.Compare(r[a].key, r[b].key) < 0 }
func (r runs) Swap(a, b int)      { r[a], r[b] = r[b], r[a] }
func (r runs) Push(any)           { panic("no run is added") }

func (r *runs) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// span is a part of the buffer.
type span struct{ from, size int64 }

// runReader reads the records of one run.
type runReader struct {
	of         *bufio.Reader
	record     []byte
	key, value []byte
}

func (r *runReader) next() (err error) {
	r.record, r.key, r.value, err = ReadRecord(r.of, r.record)
	return err
}

// maxRecord bounds a record, in bytes: a path and a target, or a path and ranges.
const maxRecord = 64 << 10

// ReadRecord reads a record into a buffer, which it returns for the next one. The error is
// [io.EOF] only at the end of a record.
func ReadRecord(of *bufio.Reader, buffer []byte) (_, key, value []byte, err error) {
	keyLen, err := binary.ReadUvarint(of)
	if err != nil {
		return buffer, nil, nil, err
	}
	valueLen, err := binary.ReadUvarint(of)
	switch {
	case errors.Is(err, io.EOF):
		err = io.ErrUnexpectedEOF
	case err == nil && (keyLen > maxRecord || valueLen > maxRecord):
		err = errors.New("temporary file: a record is too long")
	}
	if err != nil {
		return buffer, nil, nil, err
	}
	buffer = slices.Grow(buffer[:0], int(keyLen+valueLen))[:keyLen+valueLen]
	if _, err := io.ReadFull(of, buffer); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return buffer, nil, nil, err
	}
	return buffer, buffer[:keyLen], buffer[keyLen:], nil
}
