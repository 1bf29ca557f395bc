package snapshot

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// copyParts copies the parts of the job's folder to a snapshot.
func copyParts(dir string) error { return eachPart(dir, copyAny) }

// moveParts moves the parts of the job's folder to the last snapshot.
func moveParts(dir string) error { return eachPart(dir, move) }

// eachPart calls take for each part of the job's folder with its place in a snapshot. A part may
// be absent.
func eachPart(dir string, take func(from, to string) error) error {
	to := filepath.Join(dir, folderName)
	if err := os.Mkdir(to, 0o700); err != nil {
		return err
	}
	for _, name := range Parts {
		if err := take(filepath.Join(Place, name), filepath.Join(to, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// copyAny copies a file or folder with modes, times, symbolic and hard links. The program is
// frozen, so nothing changes.
func copyAny(from, to string) error {
	linked := map[uint64]string{}
	type stamp struct {
		name string
		info fs.FileInfo
	}
	var folders []stamp
	err := filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		within, err := filepath.Rel(from, name)
		if err != nil {
			return err
		}
		target := filepath.Join(to, within)
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			folders = append(folders, stamp{target, info})
			return os.Mkdir(target, 0o700)
		case info.Mode()&fs.ModeSymlink != 0:
			text, err := os.Readlink(name)
			if err != nil {
				return err
			}
			return os.Symlink(text, target) //nolint:gosec // nothing else runs that could change the copy
		case info.Mode()&specialTypes != 0:
			return errors.Join(unix.Mknod(target, nodeType(info.Mode()), 0), setAttributes(target, info))
		case !info.Mode().IsRegular():
			return fmt.Errorf("%s is no file, folder, link, pipe or socket", within) // [checkParts] has refused it
		}
		var stat unix.Stat_t
		if err := unix.Lstat(name, &stat); err != nil {
			return err
		}
		if stat.Nlink > 1 {
			if first := linked[stat.Ino]; first != "" {
				return os.Link(first, target)
			}
			linked[stat.Ino] = target
		}
		return copyFile(name, target, info)
	})
	for i := len(folders) - 1; i >= 0 && err == nil; i-- {
		err = setAttributes(folders[i].name, folders[i].info)
	}
	return err
}

// nodeType is a type of specialTypes as the kernel has it.
func nodeType(m fs.FileMode) uint32 {
	if m&fs.ModeSocket != 0 {
		return unix.S_IFSOCK
	}
	return unix.S_IFIFO
}

// makeNode makes a named pipe or a socket in a part of a folder that comes from storage. A socket has a name
// again; criu gives it to the program's socket.
func makeNode(root *os.Root, name string, of fs.FileMode) error {
	if path.Dir(name) == "." { // in the place of a part
		return fs.ErrInvalid
	}
	parent, err := root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer func() { _ = parent.Close() }()
	return unix.Mknodat(int(parent.Fd()), path.Base(name), nodeType(of), 0)
}

func setAttributes(name string, info fs.FileInfo) error {
	return errors.Join(os.Chtimes(name, info.ModTime(), info.ModTime()), os.Chmod(name, info.Mode().Perm()))
}

// copyFile copies a file: its blocks are shared where the file system can do that.
func copyFile(from, to string, info fs.FileInfo) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if unix.IoctlFileClone(int(out.Fd()), int(in.Fd())) != nil {
		_, err = io.Copy(out, in)
	}
	return errors.Join(err, out.Close(), setAttributes(to, info))
}
