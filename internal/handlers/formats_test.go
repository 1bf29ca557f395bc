package handlers

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spotworker/spotworker/internal/testing/formats"
)

func TestLabelIsDocumented(t *testing.T) {
	l := label{Key: "k", ETag: `"1"`, Bytes: 1, SourceSHA256: "s", SHA256: "t"}
	inCode := slices.Sorted(maps.Keys(l.metadata()))
	if diff := cmp.Diff(formats.Documented(t, "Keys of a compressed blob"), inCode); diff != "" {
		t.Errorf("keys of a compressed blob (-documented +in code)\n%s", diff)
	}
}
