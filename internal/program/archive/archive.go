package archive

import (
	"errors"
	"path"
	"path/filepath"
	"strings"
)

// Limits are the limits on a stream and its folder.
type Limits struct {
	Bytes   int64 // of the stream, and of all files together
	Entries int   // files, folders and links
	Names   int64 // bytes of all paths and of the targets of links
}

// Errors. They are wrapped with details.
var (
	// ErrTooLarge is the error of a folder that exceeds its [Limits].
	ErrTooLarge = errors.New("too large")

	// ErrUnfit is the error of a folder with something that cannot be stored, such as a
	// device.
	ErrUnfit = errors.New("unsuitable")

	// ErrDamaged is the error of a stream that [Index.Open] did not write.
	ErrDamaged = errors.New("archive is damaged")

	// ErrChanged is the error of a folder or file that something wrote to while it was read.
	ErrChanged = errors.New("changed while it was read")
)

const (
	maxPath   = 4096        // bytes
	maxTarget = maxPath - 1 // bytes; systems take no longer target of a link
)

// isPath reports whether a name is a path of something below the folder.
func isPath(name string) bool {
	return len(name) <= maxPath && name != "." && path.Clean(name) == name && filepath.IsLocal(filepath.FromSlash(name))
}

// checkTarget returns an error for a link that may lead out of the folder, for any place
// of the folder and any other links.
//
// The target must be relative. It may go up only at its start, and at most to the folder:
// the start is the link's parent, which is a real folder in an archive. The rest goes down,
// through folders or through links for which the same holds. A target such as a/../b is
// rejected, because .. leads elsewhere if a is a link.
func checkTarget(name, target string) error {
	if target == "" || len(target) > maxTarget || strings.ContainsRune(target, 0) {
		return errors.New("its target is empty or too long, or has a zero in it")
	}
	slashed := filepath.ToSlash(target)
	if path.IsAbs(slashed) || filepath.VolumeName(target) != "" {
		return errors.New("its target is absolute")
	}
	down := false
	for part := range strings.SplitSeq(slashed, "/") {
		switch {
		case part == "..":
			if down {
				return errors.New("its target goes up behind a name")
			}
		case part != "" && part != ".":
			down = true
		}
	}
	if to := path.Join(path.Dir(name), slashed); !filepath.IsLocal(filepath.FromSlash(to)) {
		return errors.New("its target is outside")
	}
	return nil
}
