package queue

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFormatsAreDocumented(t *testing.T) {
	for heading, form := range map[string]any{
		"Fields of an envelope":         envelopeJSON{},
		"Fields of a payload reference": Ref{},
		"Fields of a poison message":    Poison{},
	} {
		if diff := cmp.Diff(documented(t, heading), fieldNames(form)); diff != "" {
			t.Errorf("%s (-documented +in code)\n%s", heading, diff)
		}
	}
}

// fieldNames returns the JSON names of a struct's fields.
func fieldNames(form any) []string {
	var names []string
	for _, f := range reflect.VisibleFields(reflect.TypeOf(form)) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
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
