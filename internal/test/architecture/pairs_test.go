package architecture

import (
	"os"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/pairs"
)

// TestPairsNameRealTests: each pair of features has tests, which exist, or a reason.
func TestPairsNameRealTests(t *testing.T) {
	all, err := pairs.All()
	if err != nil {
		t.Fatal(err)
	}
	declared := declaredTests(t)
	for _, p := range all {
		if !p.Histories && len(p.Tests) == 0 && p.Reason == "" {
			t.Errorf("%s and %s: nothing tests them, and no reason is given", p.A, p.B)
		}
		for _, name := range p.Tests {
			checkTestName(t, p.A+" and "+p.B, name, declared)
		}
	}
}

// TestProofHasTheTableOfPairs: docs/proof.md has the table of package pairs.
func TestProofHasTheTableOfPairs(t *testing.T) {
	all, err := pairs.All()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../../docs/proof.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "```text\n" + pairs.Table(all) + "```\n"; !strings.Contains(string(text), want) {
		t.Errorf("docs/proof.md does not have the table of internal/test/pairs; it is\n%s", want)
	}
}
