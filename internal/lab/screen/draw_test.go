package screen

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "update the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// styles are the sequences that change how text looks, and nothing else.
var styles = regexp.MustCompile("\x1b\\[[0-9;]*m")

func plain(text string) string { return styles.ReplaceAllString(text, "") }

const mib = 1 << 20

// busy is a fleet in which everything happens at once.
func busy() Scene {
	return Scene{
		Elapsed: 14200 * time.Millisecond, Jobs: 16, Committed: 4, Visible: 6, Hidden: 8, Poison: 3,
		VMs: []VM{
			{Name: "spot_1", State: "process", Jobs: []Job{
				{Name: "libpython3.11.a+2", Size: 40 * mib, Saved: 16 * mib, Hashed: 20 * mib},
				{Name: "a-name-that-does-not-fit-into-its-column", Size: 30 * mib, Saved: 30 * mib, Hashed: 30 * mib},
			}},
			{Name: "spot_2", State: "killed", Mood: Gone, Note: "3 s ago; 2 jobs wait for another worker"},
			{Name: "spot_3", State: "evicted", Mood: Leaving, Jobs: []Job{
				{Name: "fresh", Size: 40 * mib},
				{Name: "taken over", Size: 40 * mib, Saved: 12 * mib, Hashed: 8 * mib},
			}},
			{Name: "spot_4", State: "process", Note: "no job"},
		},
	}
}

func TestDraw(t *testing.T) {
	for name, size := range map[string]struct{ width, height int }{
		"wide": {200, 24}, "narrow": {60, 24}, "low": {80, 6}, "tiny": {10, 1}, "unknown": {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got := plain(Draw(busy(), size.width, size.height)) + "\n"
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("picture (-want +got):\n%s", diff)
			}
			lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
			if n := len(lines); n >= max(size.height, 4) {
				t.Errorf("%d lines for a terminal of %d", n, size.height)
			}
			for _, line := range lines {
				if n := len([]rune(line)); n > max(size.width, 1) {
					t.Errorf("line has %d columns, want at most %d: %s", n, size.width, line)
				}
			}
		})
	}
}

func TestCells(t *testing.T) {
	for _, test := range []struct {
		part, whole int64
		want        int
	}{
		{0, 10, 0}, {9, 10, 18}, {10, 10, 20}, {11, 10, 20}, {-1, 10, 0}, {1, 0, 0}, {99, 100, 19},
	} {
		if got := cellsOf(test.part, test.whole, 20); got != test.want {
			t.Errorf("cellsOf(%d, %d, 20) = %d, want %d", test.part, test.whole, got, test.want)
		}
	}
}
