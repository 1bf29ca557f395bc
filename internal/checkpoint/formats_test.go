package checkpoint

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/test/formats"
)

func TestFormatIsDocumented(t *testing.T) {
	inCode := []string{"v"}
	for _, f := range fields {
		inCode = append(inCode, f.key)
	}
	slices.Sort(inCode)
	if diff := cmp.Diff(formats.Documented(t, "Keys of a record"), inCode); diff != "" {
		t.Errorf("keys of a record (-documented +in code)\n%s", diff)
	}
}
