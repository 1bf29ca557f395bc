package formats

import (
	"slices"
	"testing"
)

func TestDocumented(t *testing.T) {
	t.Chdir("..") // two folders below the root, where callers are
	names := Documented(t, "Keys of a record")
	if !slices.Contains(names, "status") || !slices.IsSorted(names) {
		t.Errorf("Documented = %q, want the sorted keys of a record", names)
	}
}
