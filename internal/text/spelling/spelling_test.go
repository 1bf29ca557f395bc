package spelling

import "testing"

func TestNearest(t *testing.T) {
	known := []string{"compress", "digest", "go"}
	for name, want := range map[string]string{"compres": "compress", "digset": "digest", "render": "", "": "", "k": "", "ga": "go",
		"digest2": "digest"} {
		if got := Nearest(name, known); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", name, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, row := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"abc", "abc", 0}, {"abc", "abd", 1}, {"abc", "ac", 1}, {"ac", "abc", 1},
		{"kitten", "sitting", 3},
	} {
		if got := distance(row.a, row.b); got != row.want {
			t.Errorf("distance(%q, %q) = %d, want %d", row.a, row.b, got, row.want)
		}
	}
}
