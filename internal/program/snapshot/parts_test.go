package snapshot

import "testing"

func TestStaysInside(t *testing.T) {
	for _, row := range []struct {
		name, target string
		want         bool
	}{
		{"work/a", "b", true}, {"work/a", "sub/b", true}, {"work/payload", "../payload", true}, {"work/a/b", "../../tmp/x", true},
		{"work/a", "missing", true}, {"work/a", "/usr/bin/python3", false}, {"work/a", "../../etc", false}, {"work/a", "sub/../b", false},
		{"work/a/b", "..", true}, {"work/a", "", false},
	} {
		if got := staysInside(row.name, row.target); got != row.want {
			t.Errorf("staysInside(%q, %q) = %v, want %v", row.name, row.target, got, row.want)
		}
	}
}
