//go:build integration && linux

package vmapp

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// TestSameBytes builds the packages of this source twice with make package, each
// time from a copy in another folder, and compares what came out. What git does
// not know is left behind.
func TestSameBytes(t *testing.T) {
	proof.Only(t, "it builds for several systems")
	t.Parallel()
	maker, git := need.Command(t, "make"), need.Command(t, "git")
	repository := repository.Root(t)
	list := exec.CommandContext(t.Context(), git, "ls-files", "-z")
	list.Dir = repository
	names, err := list.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	var made []map[string]string
	for range 2 {
		folder := t.TempDir()
		for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
			copyFile(t, filepath.Join(repository, name), filepath.Join(folder, name))
		}
		build := exec.CommandContext(t.Context(), maker, "package", "VERSION=1.2.3", "SOURCE_DATE_EPOCH=1767225600")
		build.Dir = folder
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("make package: %v\n%s", err, out)
		}
		made = append(made, contents(t, filepath.Join(folder, "dist")))
	}
	const files = 7 // three packages, their bills of materials, and the sums
	if len(made[0]) != files || len(made[1]) != files {
		t.Errorf("make package made %d and %d files, want %d", len(made[0]), len(made[1]), files)
	}
	if bill := made[0]["spotworker-linux-arm64.cdx.json"]; !strings.Contains(bill,
		`"pkg:golang/github.com/Azure/azure-sdk-for-go/sdk/storage/azblob@v`) {
		t.Errorf("the bill of materials does not name azblob:\n%s", bill)
	}
	for name, data := range made[0] {
		if data != made[1][name] {
			t.Errorf("%s of the same source has other bytes when it is built again in another folder", name)
		}
	}
}

// TestOtherWorker packs a worker that is a module of its own, as docs/deploy.md
// says: here for this machine alone, to save time.
func TestOtherWorker(t *testing.T) {
	proof.Only(t, "it builds for several systems")
	t.Parallel()
	pack := exec.CommandContext(t.Context(), need.Command(t, "make"), "package",
		"WORKER=./examples/worker", "VERSION=2.3.0", "ARCHITECTURES="+runtime.GOARCH, "PACKAGES="+t.TempDir())
	pack.Dir = repository.Root(t)
	out, err := pack.CombinedOutput()
	if err != nil {
		t.Fatalf("make package: %v\n%s", err, out)
	}
	if want := "spotworker-linux-" + runtime.GOARCH + ".tar.gz: 2.3.0-"; strings.Count(string(out), ".tar.gz") != 1 ||
		!strings.Contains(string(out), want) {
		t.Errorf("make package says\n%s\nwant one package, %s", out, want)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	info, err := os.Stat(from)
	if err != nil {
		return // removed, and git was not told yet
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, []byte(read(t, from)), info.Mode()); err != nil {
		t.Fatal(err)
	}
}

// contents returns the files of a folder, by name.
func contents(t *testing.T, folder string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, entry := range entries {
		files[entry.Name()] = read(t, filepath.Join(folder, entry.Name()))
	}
	return files
}
