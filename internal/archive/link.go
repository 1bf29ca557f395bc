package archive

import (
	"errors"
	"path"
	"path/filepath"
	"strings"
)

// maxTarget is the longest target of a link that systems take, in bytes.
const maxTarget = maxPath - 1

// checkTarget says why a link may not be kept: it must stay in the folder
// wherever that is, and whatever other links do.
//
// So the target is relative, and goes up only at its start and no further than
// to the folder. The start is the link's own parent, which is a real folder in an
// archive. What comes after goes down, through folders or through links for which
// the same holds. A target such as a/../b is refused: if a is a link, its .. is
// not where it seems to be.
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
