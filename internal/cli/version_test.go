package cli

import "testing"

// A version of the linker or of the program's owner counts. The tests' own module has none.
func TestVersion(t *testing.T) {
	for _, c := range []struct {
		known []string
		want  string
	}{
		{[]string{"v1.2.3"}, "v1.2.3"},
		{[]string{"", "v1.2.3"}, "v1.2.3"},
		{[]string{Devel, "v1.2.3"}, "v1.2.3"},
		{[]string{"mine", "v1.2.3"}, "mine"},
	} {
		if got := Version(c.known...); got != c.want {
			t.Errorf("Version(%q) = %q, want %q", c.known, got, c.want)
		}
	}
	if Version() == "" || Version(Devel) != Version() {
		t.Errorf("Version() = %q and of %q %q, want the same, and not empty", Version(), Devel, Version(Devel))
	}
}
