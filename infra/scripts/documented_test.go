package scripts

import (
	"os"
	"path/filepath"
	"regexp"
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

// TestListsAreWhole: az lists the first 5,000 blobs without --num-results '*'. Whatever lists
// the blobs of a growing container asks for all.
func TestListsAreWhole(t *testing.T) {
	var files []string
	for _, pattern := range []string{"docs/*.md", "README.md", "tools/*.sh", "examples/*/README.md"} {
		found, err := filepath.Glob(filepath.Join("..", "..", pattern))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	// Packages are few, and one list asks for the packages of a version.
	few := regexp.MustCompile(`-packages\b|--prefix "\$folder/`)
	list := regexp.MustCompile("az storage blob list (?:[^\\\\\n`]|\\\\\n)*")
	lists := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, command := range list.FindAllString(string(text), -1) {
			lists++
			if !few.MatchString(command) && !strings.Contains(command, "--num-results '*'") {
				t.Errorf("%s shows the first 5,000 only, without --num-results '*': %s", file, command)
			}
		}
	}
	const fewest = 3
	if lists < fewest {
		t.Errorf("%d lists found, want at least %d", lists, fewest)
	}
}
