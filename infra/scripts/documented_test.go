package scripts

import (
	"strings"
	"testing"
)

// TestDryRunShowsEachCommand: a dry run calls no az and shows the commands of all steps.
func TestDryRunShowsEachCommand(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	a.pkg = ""
	said, calls, err := a.deploy("--dry-run")
	if err != nil {
		t.Fatalf("deploy --dry-run: %v\n%s", err, said)
	}
	if calls[0] != "" {
		t.Errorf("--dry-run called az: %q", calls)
	}
	const fewest = 18
	if commands := strings.Count(said, "\n$ ") + 1; commands < fewest {
		t.Errorf("a dry run shows %d commands, want at least %d", commands, fewest)
	}
}
