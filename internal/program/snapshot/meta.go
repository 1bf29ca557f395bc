package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/spotworker/spotworker/internal/program/snapshot/machine"
)

// Names in a snapshot.
const (
	MetaName       = "snapshot.json"
	attributesName = "attributes"
	folderName     = "folder"
	imagesName     = "images"
)

// Place is the path of the job's folder in the program's mount namespace, the same on every
// machine: a program keeps paths in its memory.
const Place = "/media/spotworker"

// Parts are the names in a job's folder that belong to a snapshot. Others are the worker's.
var Parts = []string{"work", "tmp", "shm", "payload", "progress", "result"}

// formatVersion is the version of a snapshot's format.
const formatVersion = 1

// maxMeta bounds the files that describe a snapshot, in bytes.
const maxMeta = 64 << 20

// ErrDamaged is the error of a snapshot that no machine can restore.
var ErrDamaged = errors.New("the snapshot is damaged")

// Meta describes a snapshot.
type Meta struct {
	Format  int            `json:"format"`
	Root    int            `json:"root"`     // PID of the first process
	LastPID int            `json:"last_pid"` // the highest PID in use
	Stdout  uint64         `json:"stdout"`   // inode of the pipe
	Stderr  uint64         `json:"stderr"`
	Machine machine.Facts  `json:"machine"`
	Files   []machine.File `json:"files"` // outside the job's folder, in use by the program
	Taken   time.Time      `json:"taken"`
	Clocks  Clocks         `json:"clocks"`
	Images  []machine.File `json:"images"` // by their names in images/; the large ones without a hash
}

// Clocks are the clocks of a machine that count from its start: a program waits for absolute times
// of them, and continues with the same ones on a machine that has run for longer or shorter. They
// stand still while a program is stored, as in a suspended machine.
type Clocks struct {
	Monotonic time.Duration `json:"monotonic"`
	Boottime  time.Duration `json:"boottime"`
}

// Needs returns the needs of the snapshot, for the record of its job.
func (m *Meta) Needs() string { return machine.Needs(m.Machine, m.Files) }

// ReadMeta reads the description of a snapshot. The error wraps [ErrDamaged] if it has a
// format that this version cannot use.
func ReadMeta(dir string) (*Meta, error) {
	data, err := readBounded(filepath.Join(dir, MetaName))
	if err != nil {
		return nil, err
	}
	return ParseMeta(data)
}

// ParseMeta is [ReadMeta] of the content of [MetaName].
func ParseMeta(data []byte) (*Meta, error) {
	var m Meta
	decoder := json.NewDecoder(bytes.NewReader(data))
	if err := decoder.Decode(&m); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, MetaName, err)
	}
	switch {
	case m.Format != formatVersion:
		return nil, fmt.Errorf("%w: it has format %d; this version reads %d", ErrDamaged, m.Format, formatVersion)
	case m.Root < firstPID || m.LastPID < m.Root || m.LastPID > maxPID:
		return nil, fmt.Errorf("%w: PIDs %d to %d are out of range", ErrDamaged, m.Root, m.LastPID)
	}
	return &m, nil
}

// Bounds of the PIDs of a program.
const (
	firstPID = 1000
	maxPID   = 1 << 22
)

// readBounded reads a regular file of at most maxMeta bytes.
func readBounded(name string) ([]byte, error) {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%w: it has no %s", ErrDamaged, filepath.Base(name))
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular() || info.Size() > maxMeta:
		return nil, fmt.Errorf("%w: %s is no file of at most %d bytes", ErrDamaged, filepath.Base(name), maxMeta)
	}
	return os.ReadFile(name)
}

// attributes are the mode and time of a file or folder. The archive of a state keeps neither
// modes nor the times of folders, and no named pipes and sockets.
type attributes struct {
	Path  string      `json:"p,omitempty"`
	Bytes []byte      `json:"b,omitempty"` // of a path that is no UTF-8, which JSON would change
	Mode  fs.FileMode `json:"m"`           // permissions alone
	Time  int64       `json:"t"`           // of the last change, in nanoseconds
	Type  fs.FileMode `json:"s,omitempty"` // of specialTypes: only this record holds it
}

func attributesOf(path string, info fs.FileInfo) attributes {
	a := attributes{Path: path, Mode: info.Mode().Perm(), Time: info.ModTime().UnixNano(), Type: info.Mode() & specialTypes}
	if !utf8.ValidString(path) {
		a.Path, a.Bytes = "", []byte(path)
	}
	return a
}

func (a attributes) path() string { return a.Path + string(a.Bytes) }

// writeAttributes records the attributes of everything in dir/folder, and removes
// what the archive cannot hold.
func writeAttributes(dir string) (err error) {
	file, err := os.OpenFile(filepath.Join(dir, attributesName), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	top := filepath.Join(dir, folderName)
	out := json.NewEncoder(file)
	return filepath.WalkDir(top, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Type()&fs.ModeSymlink != 0 || name == top {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		path, err := filepath.Rel(top, name)
		if err != nil {
			return err
		}
		a := attributesOf(filepath.ToSlash(path), info)
		if err := out.Encode(a); err != nil || a.Type == 0 {
			return err
		}
		_ = os.Chmod(filepath.Dir(name), 0o700) //nolint:gosec // a folder, whose mode is recorded already
		return os.Remove(name)                  //nolint:gosec // nothing else runs that could change it
	})
}

// restoreAttributes sets the attributes of everything in dir/folder, which comes from
// storage: paths that leave the folder are refused, and links are not followed.
func restoreAttributes(dir string) error {
	data, err := readBounded(filepath.Join(dir, attributesName))
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(filepath.Join(dir, folderName))
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	var all []attributes
	for in := json.NewDecoder(bytes.NewReader(data)); ; {
		var a attributes
		if err := in.Decode(&a); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("%w: %s: %w", ErrDamaged, attributesName, err)
		}
		all = append(all, a)
	}
	for _, a := range slices.Backward(all) { // files first: a folder's mode may forbid changes in it
		name := a.path()
		if a.Type != 0 {
			if err := makeNode(root, name, a.Type); err != nil {
				return fmt.Errorf("%w: make %q: %w", ErrDamaged, name, err)
			}
		}
		info, err := root.Lstat(name)
		if err != nil || info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%w: %s names %q, which it does not have", ErrDamaged, attributesName, name)
		}
		at := time.Unix(0, a.Time)
		if err := errors.Join(root.Chtimes(name, at, at), root.Chmod(name, a.Mode.Perm())); err != nil {
			return err
		}
	}
	return nil
}

// maxImage bounds the images whose content is compared, in bytes. The larger ones are pages of
// memory, which the hash of the whole state covers.
const maxImage = 16 << 20

// imagesIn describes the images of a snapshot.
func imagesIn(dir string) ([]machine.File, error) {
	entries, err := os.ReadDir(filepath.Join(dir, imagesName))
	if err != nil {
		return nil, err
	}
	var all []machine.File
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return nil, err
		}
		image := machine.File{Path: entry.Name(), Size: info.Size()}
		if info.Mode().IsRegular() && info.Size() <= maxImage {
			data, err := os.ReadFile(filepath.Join(dir, imagesName, entry.Name()))
			if err != nil {
				return nil, err
			}
			sum := sha256.Sum256(data)
			image.SHA256 = hex.EncodeToString(sum[:])
		}
		all = append(all, image)
	}
	return all, nil
}

// CheckImages returns [ErrDamaged] if the images of a snapshot are not those that were written. A
// damaged image makes criu fail or hang, for a reason that nobody could tell from the machine's.
func (m *Meta) CheckImages(dir string) error {
	here, err := imagesIn(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	for _, image := range m.Images {
		i := slices.IndexFunc(here, func(other machine.File) bool { return other.Path == image.Path })
		if i < 0 {
			return fmt.Errorf("%w: the image %s is missing", ErrDamaged, image.Path)
		}
		if here[i] != image {
			return fmt.Errorf("%w: the image %s has other content than was written", ErrDamaged, image.Path)
		}
	}
	if len(here) != len(m.Images) {
		return fmt.Errorf("%w: it has %d images, and %d were written", ErrDamaged, len(here), len(m.Images))
	}
	return nil
}

// Unpack moves the files of a snapshot in dir to the job's folder, and leaves the images.
func Unpack(dir, folder string) error {
	if err := checkParts(filepath.Join(dir, folderName)); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err := restoreAttributes(dir); err != nil {
		return err
	}
	for _, name := range Parts {
		from, to := filepath.Join(dir, folderName, name), filepath.Join(folder, name)
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if err := move(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// move gives a file or folder another parent. For a folder the kernel wants the right to write
// to it, which the program may have taken away.
func move(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	const write = 0o200
	mode := info.Mode().Perm()
	if !info.IsDir() || mode&write != 0 {
		return os.Rename(from, to)
	}
	if err := os.Chmod(from, mode|write); err != nil {
		return err
	}
	if err := os.Rename(from, to); err != nil {
		return errors.Join(err, os.Chmod(from, mode))
	}
	return os.Chmod(to, mode)
}
