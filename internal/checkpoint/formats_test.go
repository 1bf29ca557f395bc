package checkpoint

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFormatIsDocumented(t *testing.T) {
	inCode := []string{"v"}
	for _, f := range fields {
		inCode = append(inCode, f.key)
	}
	slices.Sort(inCode)
	if diff := cmp.Diff(documented(t, "Keys of a record"), inCode); diff != "" {
		t.Errorf("keys of a record (-documented +in code)\n%s", diff)
	}
}

// documented returns the names in the first column of the table under a heading
// of docs/FORMATS.md.
func documented(t *testing.T, heading string) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/FORMATS.md")
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
		if name, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ = strings.Cut(name, "`")
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
