package main

import (
	"strings"
	"testing"
)

func TestNotesOf(t *testing.T) {
	const changelog = "# Changelog\n\n## Unreleased\n\n- New.\n\n## v0.2.0 (2026-12-01)\n\n### Tools\n\n- Two.\n\n## v0.1.0 (2026-11-30)\n\n- One.\n\n" +
		"## v0.0.1 (not published yet)\n"
	for version, want := range map[string]string{"v0.2.0": "### Tools\n\n- Two.\n", "v0.1.0": "- One.\n"} {
		if got, err := notesOf(changelog, version); got != want || err != nil {
			t.Errorf("notes of %s = %q, %v, want %q", version, got, err, want)
		}
	}
	for version, want := range map[string]string{"v0.3.0": "no section", "v0.1": "no section", "": "no section", "v0.0.1": "no date"} {
		if got, err := notesOf(changelog, version); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("notes of %q = %q, %v, want an error", version, got, err)
		}
	}
}
