package vmapp

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
)

// TestCloudInitChecksThePackage runs the script of cloud-init.yaml in a folder, with a curl
// that brings a package: it is installed if its digest is the given one, and not otherwise.
func TestCloudInitChecksThePackage(t *testing.T) {
	need.NotOn(t, "windows", "the script needs a POSIX shell")
	for _, tool := range []string{"tar", "sha256sum"} {
		need.Command(t, tool)
	}
	for _, c := range []struct {
		name    string
		digest  func(archive []byte) string
		install bool
	}{
		{"its digest", func(archive []byte) string { return fmt.Sprintf("%x", sha256.Sum256(archive)) }, true},
		{"another digest", func([]byte) string { return strings.Repeat("0", 64) }, false},
		{"no digest", func([]byte) string { return "" }, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := t.TempDir()
			write(t, filepath.Join(folder, "install.sh"), "cp worker.env \"$0.ran\"\n", 0o600)
			archive := filepath.Join(folder, "made.tar.gz")
			run(t, folder, "tar", "-czf", archive, "install.sh")
			write(t, filepath.Join(folder, "curl"),
				"#!/bin/sh\nwhile [ $# -gt 1 ]; do [ \"$1\" = --output ] && out=$2; shift; done\ncp '"+archive+"' \"$out\"\n", 0o700)
			content, err := os.ReadFile(archive)
			if err != nil {
				t.Fatal(err)
			}
			work := filepath.Join(folder, "work")
			script := cloudInitScript(t)
			for name, value := range map[string]string{"PACKAGE_SHA256": c.digest(content), " *folder": work} {
				line := regexp.MustCompile(`(?m)^` + name + `=.*$`)
				if !line.MatchString(script) {
					t.Fatalf("cloud-init.yaml sets no %s", name)
				}
				script = line.ReplaceAllLiteralString(script, strings.TrimLeft(name, " *")+"="+value)
			}
			path := filepath.Join(folder, "script")
			write(t, path, script, 0o600)
			command := exec.CommandContext(t.Context(), "sh", path)
			command.Env = []string{"PATH=" + folder + ":/usr/bin:/bin"}
			out, err := command.CombinedOutput()
			settings, ran := os.ReadFile(filepath.Join(work, "install.sh.ran"))
			if (err == nil) != c.install || (ran == nil) != c.install {
				t.Errorf("the script = %v, installed %v, want %v:\n%s", err, ran == nil, c.install, out)
			}
			const want = "SPOTWORKER_ACCOUNT=account\nAZURE_CLIENT_ID=00000000-0000-0000-0000-000000000000\n" +
				"SPOTWORKER_LOG_FORMAT=json\n# end of worker.env\n"
			if c.install && string(settings) != want {
				t.Errorf("worker.env is\n%swant\n%s", settings, want)
			}
			for name, want := range map[string]os.FileMode{"worker.env": 0o600, ".": 0o700} {
				info, err := os.Stat(filepath.Join(work, name))
				if c.install && (err != nil || info.Mode().Perm() != want) {
					t.Errorf("%s: %v, %v, want mode %o", name, info, err, want)
				}
			}
		})
	}
}

// cloudInitScript returns the script in cloud-init.yaml.
func cloudInitScript(t *testing.T) string {
	t.Helper()
	_, rest, found := strings.Cut(CloudInit, "    content: |\n")
	script, _, ended := strings.Cut(rest, "\nruncmd:\n")
	if !found || !ended {
		t.Fatal("cloud-init.yaml has no script where one is expected")
	}
	return regexp.MustCompile(`(?m)^      `).ReplaceAllString(script+"\n", "")
}

func write(t *testing.T, name, content string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, folder string, words ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), words[0], words[1:]...)
	command.Dir = folder
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", words, err, out)
	}
}
