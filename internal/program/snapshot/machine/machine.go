// Package machine says on which machines a snapshot of processes can continue: by their facts, the
// features of their processors, and the files that the snapshot needs.
package machine

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Facts are what a snapshot depends on of a machine.
type Facts struct {
	Kernel    string `json:"kernel"`    // its release
	Arch      string `json:"arch"`      // as Go names it
	CPU       string `json:"cpu"`       // the model's name: another one will do
	Vendor    string `json:"vendor"`    // of the processor; with its model on architectures other than x86-64
	Features  string `json:"features"`  // of the processor: others may have more; empty on other architectures
	Registers string `json:"registers"` // the layout of its saved registers; a hash of its features on other architectures
	CRIU      string `json:"criu"`      // its version
	PageSize  int    `json:"page_size"` // in bytes
}

// File is a file that a snapshot needs as it was: a program or library in its memory, or a file that
// is open for reading, such as a script.
type File struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256,omitempty"` // empty for a file of more than maxHashed bytes
}

// MismatchError is the error of a snapshot that needs another machine.
type MismatchError struct{ Differences []string }

// Error names each difference.
func (e *MismatchError) Error() string {
	return "the snapshot needs a machine like the one before: " + strings.Join(e.Differences, "; ")
}

// Compare returns a [*MismatchError] if a snapshot of one machine cannot be restored on
// another, as far as this package knows.
func (m Facts) Compare(here Facts) error {
	var all []string
	differs := func(what, theirs, ours string) {
		if theirs != ours {
			all = append(all, fmt.Sprintf("%s was %s, here it is %s", what, theirs, ours))
		}
	}
	differs("the architecture", m.Arch, here.Arch)
	differs("the kernel", m.Kernel, here.Kernel)
	differs("the processor's vendor", m.Vendor, here.Vendor)
	differs("the layout of its registers", m.Registers, here.Registers)
	if lacks := lacking(m.Features, here.Features); lacks != "" {
		all = append(all, lacks)
	}
	differs("criu", m.CRIU, here.CRIU)
	differs("the size of a page", fmt.Sprint(m.PageSize), fmt.Sprint(here.PageSize))
	if len(all) > 0 {
		return &MismatchError{all}
	}
	return nil
}

// Hashes remembers hashes of files by size and time. Its zero value is ready to use.
type Hashes struct {
	mu    sync.Mutex
	known map[fileStamp]string
}

type fileStamp struct {
	path string
	size int64
	time time.Time
}

// maxHashed bounds the files whose content is compared, in bytes: a hash must not take longer than
// an eviction leaves. Of larger ones the size is compared.
const maxHashed = 1 << 30

// errIrregular is the error of something that cannot be mapped.
var errIrregular = errors.New("it is no regular file")

// Of returns size and hash of a file.
func (h *Hashes) Of(path string) (File, error) {
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // a device may do something when it is opened
		err = errIrregular
	}
	if err != nil {
		return File{}, err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return File{}, err
	}
	defer func() { _ = file.Close() }()
	if info, err = file.Stat(); err != nil {
		return File{}, err
	}
	if !info.Mode().IsRegular() {
		return File{}, errIrregular
	}
	if info.Size() > maxHashed {
		return File{Path: path, Size: info.Size()}, nil
	}
	stamp := fileStamp{path, info.Size(), info.ModTime()}
	h.mu.Lock()
	sum, ok := h.known[stamp]
	h.mu.Unlock()
	if !ok {
		hash := sha256.New()
		if _, err := io.Copy(hash, io.LimitReader(file, info.Size())); err != nil {
			return File{}, err
		}
		sum = hex.EncodeToString(hash.Sum(nil))
		h.mu.Lock()
		if h.known == nil {
			h.known = map[fileStamp]string{}
		}
		h.known[stamp] = sum
		h.mu.Unlock()
	}
	return File{Path: path, Size: info.Size(), SHA256: sum}, nil
}

// matches reports whether a file is the same here. It reads none of another size.
func (h *Hashes) matches(want File) (bool, error) {
	info, err := os.Stat(want.Path)
	if err != nil || info.Size() != want.Size {
		return false, err
	}
	got, err := h.Of(want.Path)
	return err == nil && strings.HasPrefix(got.SHA256, want.SHA256), err
}

// maxNamed is how many differing files an error names.
const maxNamed = 5

// Check returns a [*MismatchError] if files that a snapshot needs are missing or
// different here. Other errors are of reading them. A hash may be the start of one.
func (h *Hashes) Check(files []File) error {
	var bad []string
	for _, want := range files {
		same, err := h.matches(want)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			bad = append(bad, want.Path+" is missing here")
		case err != nil && !errors.Is(err, errIrregular):
			return err
		case !same:
			bad = append(bad, want.Path+" has other content here")
		}
	}
	if len(bad) > maxNamed {
		bad = append(slices.Clip(bad[:maxNamed]), fmt.Sprintf("and %d more files differ", len(bad)-maxNamed))
	}
	if len(bad) > 0 {
		return &MismatchError{bad}
	}
	return nil
}
