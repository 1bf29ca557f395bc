package archive

import (
	"os"
	"path"
	"path/filepath"
	"strings"
)

// maxOpen is how many folders [dirs] holds open.
const maxOpen = 16

// dirs opens the folders of files. It holds the folders on the way to the last file open,
// so that the next one, in the order of paths, takes one step and not one for each level.
// A link is followed only within the folder that it is in.
type dirs struct {
	top  *os.Root
	open []openDir // each in the one before
}

type openDir struct {
	path string
	root *os.Root
}

// of returns a folder that a file is in, and the file's name in it: the last part of its
// path, or several parts below maxOpen levels.
func (d *dirs) of(name string) (*os.Root, string, error) {
	parent := path.Dir(name)
	for len(d.open) > 0 && !within(parent, d.open[len(d.open)-1].path) {
		d.closeLast()
	}
	in := openDir{".", d.top}
	if n := len(d.open); n > 0 {
		in = d.open[n-1]
	}
	for in.path != parent && len(d.open) < maxOpen {
		step, _, _ := strings.Cut(below(parent, in.path), "/")
		// With a dot behind it anything but a folder is an error: opening a named pipe
		// would block.
		root, err := in.root.OpenRoot(step + "/.")
		if err != nil {
			return nil, "", err
		}
		in = openDir{path.Join(in.path, step), root}
		d.open = append(d.open, in)
	}
	return in.root, filepath.FromSlash(below(name, in.path)), nil
}

// within reports whether a path is a folder or in it.
func within(name, dir string) bool { return name == dir || strings.HasPrefix(name, dir+"/") }

// below returns the path from a folder to an entry in it.
func below(name, dir string) string {
	if dir == "." {
		return name
	}
	return name[len(dir)+1:]
}

func (d *dirs) closeLast() {
	last := len(d.open) - 1
	_ = d.open[last].root.Close() // nothing was written to it
	d.open = d.open[:last]
}

// Close implements [io.Closer].
func (d *dirs) Close() error {
	for len(d.open) > 0 {
		d.closeLast()
	}
	return d.top.Close()
}
