// Package images reads and changes CRIU's images of a frozen program, so that its threads make the
// system calls again that the freeze has interrupted.
package images

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/encoding/protowire"
)

// Files of criu: two magic numbers, then messages of protocol buffers behind their lengths.
const (
	imageHead  = 8
	lengthSize = 4
)

// Numbers of fields in criu's messages (core.proto, core-x86.proto, pagemap.proto).
var (
	pathRegisters = []protowire.Number{2, 2} // thread_info, gpregs
	pathTask      = []protowire.Number{3}    // tc
)

const (
	fieldTaskState     protowire.Number = 1 // of tc
	fieldPages         protowire.Number = 1 // of the first message of a page map: the number of the file of pages
	fieldPagesAddress  protowire.Number = 1
	fieldPagesCount    protowire.Number = 2
	fieldPagesInParent protowire.Number = 3
	fieldPagesFlags    protowire.Number = 4
	pagesPresent                        = 1 << 2
	taskAlive                           = 1
	taskStopped                         = 3
)

var errImage = errors.New("an image of criu has an unknown form")

// message reads a message of an image, and returns what follows it.
func message(data []byte) (m, rest []byte, err error) {
	if len(data) < lengthSize {
		return nil, nil, errImage
	}
	n := uint64(binary.LittleEndian.Uint32(data))
	if data = data[lengthSize:]; n > uint64(len(data)) {
		return nil, nil, errImage
	}
	return data[:n], data[n:], nil
}

// fields returns the numbers of a message.
func fields(m []byte) (map[protowire.Number]uint64, error) {
	all := map[protowire.Number]uint64{}
	for len(m) > 0 {
		number, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return nil, errImage
		}
		if kind == protowire.VarintType {
			all[number], _ = protowire.ConsumeVarint(m[n:])
		}
		size := protowire.ConsumeFieldValue(number, kind, m[n:])
		if size < 0 {
			return nil, errImage
		}
		m = m[n+size:]
	}
	return all, nil
}

// change returns a message in which change has replaced the message at path.
func change(m []byte, path []protowire.Number, to func([]byte) []byte) ([]byte, error) {
	if len(path) == 0 {
		return to(m), nil
	}
	var out []byte
	for len(m) > 0 {
		number, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return nil, errImage
		}
		size := protowire.ConsumeFieldValue(number, kind, m[n:])
		if size < 0 {
			return nil, errImage
		}
		if number == path[0] && kind == protowire.BytesType {
			inner, _ := protowire.ConsumeBytes(m[n:])
			inner, err := change(inner, path[1:], to)
			if err != nil {
				return nil, err
			}
			out = protowire.AppendBytes(protowire.AppendTag(out, number, kind), inner)
		} else {
			out = append(out, m[:n+size]...)
		}
		m = m[n+size:]
	}
	return out, nil
}

// Core is the image of a thread.
type Core struct {
	name      string
	head      []byte
	message   []byte
	Registers Registers
	Stopped   bool // by a signal

	wasStopped bool
}

// ReadCore reads the image of a thread.
func ReadCore(name string) (*Core, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if len(data) < imageHead {
		return nil, fmt.Errorf("%w: %s", errImage, name)
	}
	c := &Core{name: name, head: data[:imageHead]}
	if c.message, _, err = message(data[imageHead:]); err != nil {
		return nil, fmt.Errorf("%w: %s", err, name)
	}
	read := func(path []protowire.Number) (all map[protowire.Number]uint64) {
		_, failed := change(c.message, path, func(m []byte) []byte {
			var bad error
			all, bad = fields(m)
			err = errors.Join(err, bad)
			return m
		})
		err = errors.Join(err, failed)
		return all
	}
	c.Registers, c.Stopped = read(pathRegisters), read(pathTask)[fieldTaskState] == taskStopped
	c.wasStopped = c.Stopped
	return c, err
}

// set returns a message with other numbers.
func set(m []byte, to map[protowire.Number]uint64) (out []byte) {
	for len(m) > 0 { // [ReadCore] has read it
		number, kind, n := protowire.ConsumeField(m)
		if value, ok := to[number]; ok && kind == protowire.VarintType {
			out = protowire.AppendVarint(protowire.AppendTag(out, number, kind), value)
		} else {
			out = append(out, m[:n]...)
		}
		m = m[n:]
	}
	return out
}

// Write stores the registers, and whether the process is stopped.
func (c *Core) Write() error {
	m, err := change(c.message, pathRegisters, func(m []byte) []byte { return set(m, c.Registers) })
	if err == nil && c.wasStopped && !c.Stopped {
		m, err = change(m, pathTask, func(m []byte) []byte {
			return set(m, map[protowire.Number]uint64{fieldTaskState: taskAlive})
		})
	}
	if err != nil {
		return err
	}
	data := binary.LittleEndian.AppendUint32(append([]byte(nil), c.head...), uint32(len(m)))
	return os.WriteFile(c.name, append(data, m...), 0o600)
}

// ErrNoPage is the error of an address whose page is not in the images: the process has not
// changed it.
var ErrNoPage = errors.New("the page is not in the images")

// WriteMemory changes the memory of a process in the images of a snapshot.
func WriteMemory(images string, pid int, address uint64, from []byte) error {
	data, err := os.ReadFile(filepath.Join(images, fmt.Sprintf("pagemap-%d.img", pid)))
	if err != nil {
		return err
	}
	if len(data) < imageHead {
		return errImage
	}
	m, rest, err := message(data[imageHead:])
	if err != nil {
		return err
	}
	head, err := fields(m)
	if err != nil {
		return err
	}
	page, before := uint64(os.Getpagesize()), uint64(0)
	for len(rest) > 0 {
		if m, rest, err = message(rest); err != nil {
			return err
		}
		part, err := fields(m)
		if err != nil {
			return err
		}
		if part[fieldPagesInParent] != 0 || part[fieldPagesFlags]&pagesPresent == 0 {
			continue
		}
		first, size := part[fieldPagesAddress], part[fieldPagesCount]*page
		if address < first || address+uint64(len(from)) > first+size {
			before += size
			continue
		}
		file, err := os.OpenFile(filepath.Join(images, fmt.Sprintf("pages-%d.img", head[fieldPages])), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = file.WriteAt(from, int64(before+address-first))
		return errors.Join(err, file.Close())
	}
	return ErrNoPage
}
