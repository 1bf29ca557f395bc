// Package formats lets a test hold code to docs/FORMATS.md: every key and field
// that the code writes is documented, and the other way round.
package formats

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/repository"
)

// Documented returns, sorted, the names that the list under a heading of
// docs/FORMATS.md describes.
func Documented(t testing.TB, heading string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository.Root(t), "docs", "FORMATS.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n### "+heading+"\n")
	if !found {
		t.Fatalf("docs/FORMATS.md has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	var names []string
	for line := range strings.Lines(section) {
		if item, ok := strings.CutPrefix(line, "- `"); ok {
			item, _, _ = strings.Cut(item, "`:")
			names = append(names, strings.Split(item, "`, `")...)
		}
	}
	slices.Sort(names)
	return names
}
