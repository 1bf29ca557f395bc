package text

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWrap(t *testing.T) {
	got := Wrap("three words here and averyveryverylongone end", 11)
	want := []string{"three words", "here and", "averyveryverylongone", "end"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("wrapped (-want +got):\n%s", diff)
	}
}
