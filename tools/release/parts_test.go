package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestNotesOf(t *testing.T) {
	const changelog = "# Changelog\n\n## Unreleased\n\n- New.\n\n## v0.2.0 (2026-12-01)\n\n### Tools\n\n- Two.\n\n## v0.1.0 " +
		"(2026-11-30)\n\n- One.\n\n" +
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

// TestVersionsAgree: the newest section of the changelog is of the version that README and
// manifests name, so that a tag of it can be released. A file that names another one is noticed.
func TestVersionsAgree(t *testing.T) {
	root := filepath.Join("..", "..")
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## (v\S+) `).FindStringSubmatch(string(changelog))
	if newest == nil {
		t.Fatal("CHANGELOG.md has no section of a version")
	}
	if err := namesVersion(root, newest[1]); err != nil {
		t.Error(err)
	}
	if err := namesVersion(root, newest[1]+"1"); err == nil {
		t.Errorf("files name %s1 too", newest[1])
	}
}

func TestDebOf(t *testing.T) {
	for file, want := range map[string]string{
		"out/spotworker-0.1.0-1.x86_64.rpm":                         "out/spotworker_0.1.0_amd64.deb",
		"out/spotworker-tools-0.1.1~snapshot.0123abc-1.aarch64.rpm": "out/spotworker-tools_0.1.1~snapshot.0123abc_arm64.deb",
		"out/spotworker_0.1.0_linux_amd64.tar.gz":                   "out/spotworker_0.1.0_linux_amd64.tar.gz",
		"out/spotworker_0.1.0_amd64.deb":                            "out/spotworker_0.1.0_amd64.deb",
	} {
		if got := debOf(file); got != filepath.FromSlash(want) {
			t.Errorf("debOf(%s) = %s, want %s", file, got, want)
		}
	}
}
