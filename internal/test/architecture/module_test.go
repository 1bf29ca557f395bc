package architecture

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// readThis reads the module that this package is part of.
func readThis(t *testing.T) []source {
	t.Helper()
	files, err := readModule(os.DirFS("../../.."))
	if err != nil {
		t.Fatalf("read the module: %v", err)
	}
	return files
}

func TestModuleKeepsTheRules(t *testing.T) {
	for _, v := range check(readThis(t)) {
		t.Error(v)
	}
}

// TestRulesNameRealPackages finds rules that lost their object, for instance
// because a package was renamed: they would hold for ever and check nothing.
func TestRulesNameRealPackages(t *testing.T) {
	files := readThis(t)
	for _, rule := range importRules {
		for _, pattern := range slices.Concat(rule.in, rule.forbids) {
			local := strings.HasPrefix(pattern, ".")
			written := func(f source) bool { return matches(pattern, f.dir) }
			if local && !slices.ContainsFunc(files, written) {
				t.Errorf("rule %q names %s, and there is no such package", rule.name, pattern)
			}
		}
	}
}
