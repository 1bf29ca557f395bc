package queue

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/test/formats"
)

func TestFormatsAreDocumented(t *testing.T) {
	for heading, form := range map[string]any{
		"Fields of an envelope":         envelopeJSON{},
		"Fields of a payload reference": Ref{},
		"Fields of a poison message":    Poison{},
	} {
		if diff := cmp.Diff(formats.Documented(t, heading), fieldNames(form)); diff != "" {
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
