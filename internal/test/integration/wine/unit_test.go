//go:build integration

package wine

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/repository"
)

// TestUnits runs tests of the packages that differ on Windows, or whose behaviour depends
// on files and sockets. It leaves out tests that Wine cannot run, that take long there or
// that measure time, such as removals and archives of very many or very deep folders.
func TestUnits(t *testing.T) {
	w := New(t)
	for _, row := range []struct{ pkg, run, skip string }{
		{"internal/program", ".", "^(TestReadKindsRefuses|TestStopIsHastened)$"},
		{"internal/program/printed", ".", ""},
		{"internal/program/scratch", "^TestDiskWatch$", ""},
		{"internal/program/tree", ".", ""},
		{"internal/fleet/vmshare", ".", "^(TestHeldFile|TestBeginAgainstAcknowledge|TestFourProcesses)$"},
		{"internal/host/sandbox", "^TestRemovalWaitsForAScanner$", ""},
		{"internal/program/archive", "^TestRoundTrip$", ""},
		{"internal/preempt", ".", ""},
		{"internal/cli", ".", ""},
	} {
		t.Run(row.pkg, func(t *testing.T) {
			program := BuildTest(t, "./"+row.pkg)
			var said []byte
			var err error
			for range 3 { // Wine now and then ends before it starts the program, which then says nothing
				cmd := w.Command(program, "-test.v", "-test.run", row.run, "-test.skip", row.skip)
				cmd.Dir = filepath.Join(repository.Root(t), row.pkg) // where its test data is
				if said, err = cmd.CombinedOutput(); strings.Contains(string(said), "=== RUN") {
					break
				}
				t.Logf("Wine did not start it: %v: %s", err, said)
			}
			if err != nil {
				t.Fatalf("%v\n%s", err, said)
			}
			passed := strings.Count(string(said), "\n--- PASS: ")
			if passed == 0 {
				t.Fatalf("no test passed:\n%s", said)
			}
			t.Logf("%d tests passed", passed)
			for line := range strings.Lines(string(said)) {
				if strings.HasPrefix(line, "--- SKIP: ") {
					t.Log(strings.TrimSpace(line))
				}
			}
		})
	}
}
