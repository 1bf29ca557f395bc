package main

import (
	"strings"
	"testing"
)

func TestNotesOf(t *testing.T) {
	const changelog = "# Changelog\n\n## Unreleased\n\n- New.\n\n## v0.2.0 (2026-12-01)\n\n### Tools\n\n- Two.\n\n## v0.1.0\n\n- One.\n"
	for version, want := range map[string]string{"v0.2.0": "### Tools\n\n- Two.\n", "v0.1.0": "- One.\n"} {
		if got, err := notesOf(changelog, version); got != want || err != nil {
			t.Errorf("notes of %s = %q, %v, want %q", version, got, err, want)
		}
	}
	for _, version := range []string{"v0.3.0", "v0.1", ""} {
		if got, err := notesOf(changelog, version); err == nil || !strings.Contains(err.Error(), "no section") {
			t.Errorf("notes of %q = %q, %v, want an error", version, got, err)
		}
	}
}
