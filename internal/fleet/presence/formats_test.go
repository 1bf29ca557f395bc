package presence

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/test/formats"
)

func TestFormatIsDocumented(t *testing.T) {
	inCode := slices.Sorted(maps.Keys(full().metadata()))
	if diff := cmp.Diff(formats.Documented(t, "Keys of a presence"), inCode); diff != "" {
		t.Errorf("keys of a presence (-documented +in code)\n%s", diff)
	}
}
