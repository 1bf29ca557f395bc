package scripts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDryRunIsTheDocumentation: a dry run shows the commands of docs/deploy.md,
// one by one and in the same order.
func TestDryRunIsTheDocumentation(t *testing.T) {
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
	source, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy.md"))
	if err != nil {
		t.Fatal(err)
	}
	rest, commands := string(source), 0
	for line := range strings.Lines(said) {
		command, found := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !found || strings.HasPrefix(command, "make ") {
			continue
		}
		commands++
		_, after, found := strings.Cut(rest, command+"\n")
		if !found {
			t.Errorf("docs/deploy.md does not have, after the one before it, the command\n\t%s", command)
			continue
		}
		rest = after
	}
	const fewest = 14
	if commands < fewest {
		t.Errorf("a dry run shows %d commands, want at least %d", commands, fewest)
	}
}
