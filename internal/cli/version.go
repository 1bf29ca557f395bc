package cli

import (
	"cmp"
	"runtime/debug"
	"strings"
)

// Devel is the version of a program that no release was made of.
const Devel = "devel"

// Version returns the first of the known versions that is neither empty nor [Devel]. Without
// one it returns the version of the program's module, which the go command records: the
// tag after go install with a version, otherwise devel or a version of the commit.
func Version(known ...string) string {
	for _, version := range known {
		if version != "" && version != Devel {
			return version
		}
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return Devel
	}
	return cmp.Or(strings.Trim(info.Main.Version, "()"), Devel)
}
