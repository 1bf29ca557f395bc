package vmpackage

import (
	"io"
	"strings"
	"time"
)

const (
	linux   = "linux"
	windows = "windows"
)

// target is the system and architecture of a package, as Go calls them.
type target struct{ system, architecture string }

// targetFor returns the target that one of [Architectures] names.
func targetFor(name string) target {
	if architecture, found := strings.CutPrefix(name, windows+"-"); found {
		return target{windows, architecture}
	}
	return target{linux, name}
}

// magic is how the target's programs begin.
func (t target) magic() string {
	if t.system == windows {
		return "MZ"
	}
	return "\x7fELF"
}

// payload is the folder of a package with the files of a release.
func (t target) payload() string {
	if t.system == windows {
		return "." // the worker installs itself, so there is nothing else
	}
	return "payload"
}

// binary is the worker's name in there.
func (t target) binary() string {
	if t.system == windows {
		return "worker.exe"
	}
	return "bin/worker"
}

// suffix ends the package's name.
func (t target) suffix() string {
	if t.system == windows {
		return ".zip"
	}
	return ".tar.gz"
}

func (t target) writeArchive(out io.Writer, files []file, at time.Time) error {
	if t.system == windows {
		return writeZip(out, files, at)
	}
	return writeArchive(out, files, at)
}
