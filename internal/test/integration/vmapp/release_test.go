//go:build integration && linux

package vmapp

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/repository"
)

const (
	// releaseTag is the tag in a copy of the repository.
	releaseTag = "v0.1.0"

	repositoryURL = "https://github.com/spotworker/spotworker"
)

// snapshot is a release of a copy of the repository, for this machine's processor.
type snapshot struct{ folder string }

// file returns the only file whose name begins and ends so.
func (s snapshot) file(t *testing.T, prefix, suffix string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(s.folder, prefix+"*"+suffix))
	if err != nil || len(found) != 1 {
		t.Fatalf("files of the release that begin with %s and end in %s: %q, %v, want one", prefix, suffix, found, err)
	}
	return found[0]
}

// taggedCopy returns a copy of this repository, with one commit and a tag.
func taggedCopy(t *testing.T) string {
	t.Helper()
	git, root, folder := need.Command(t, "git"), repository.Root(t), t.TempDir()
	list := exec.CommandContext(t.Context(), git, "ls-files", "-z")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		copyFile(t, filepath.Join(root, name), filepath.Join(folder, name))
	}
	for _, arguments := range [][]string{
		{"init", "--quiet", "--initial-branch=main"}, {"add", "--all"}, {"commit", "--quiet", "--message=Release"}, {"tag", releaseTag},
		{"remote", "add", "origin", repositoryURL},
	} {
		cmd := exec.CommandContext(t.Context(), git, arguments...)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@example.com",
			"GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@example.com", "GIT_AUTHOR_DATE=2026-03-09T12:00:00Z",
			"GIT_COMMITTER_DATE=2026-03-09T12:00:00Z")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v: %s", arguments[0], err, out)
		}
	}
	return folder
}

// makeSnapshot makes a release with GoReleaser, in a folder with a repository.
func makeSnapshot(t *testing.T, folder string, environment ...string) snapshot {
	t.Helper()
	goreleaser := filepath.Join(repository.Root(t), ".tools", "bin", "goreleaser")
	if _, err := os.Stat(goreleaser); err != nil {
		need.Missing(t, "GoReleaser in .tools")
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "umask $UMASK && exec tools/release.sh snapshot")
	cmd.Dir = folder
	cmd.Env = slices.Concat(os.Environ(), environment, []string{"GORELEASER=" + goreleaser, "SYSTEMS=linux", "PROCESSORS=" + runtime.GOARCH})
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("tools/release.sh: %v\n%s", err, out)
	}
	vm, err := filepath.Glob(filepath.Join(folder, "out", "release-parts", "vm", "*"))
	if err != nil || len(vm) == 0 {
		t.Fatalf("packages for VMs: %q, %v", vm, err)
	}
	for _, path := range vm { // a release on GitHub has all in one place
		if err := os.Rename(path, filepath.Join(folder, "out", "release", filepath.Base(path))); err != nil {
			t.Fatal(err)
		}
	}
	return snapshot{folder: filepath.Join(folder, "out", "release")}
}

// TestRelease makes a release twice, in two folders, and installs it on a booted Debian:
// the archive, the Debian packages, and the package for VMs beside them.
func TestRelease(t *testing.T) {
	proof.Only(t, "it builds for several systems")
	t.Parallel()
	inContainer(t, prepareRelease, installRelease)
}

// prepareRelease makes the release twice, checks it, and puts it into the folder.
func prepareRelease(t *testing.T, folder string) {
	source, again := taggedCopy(t), t.TempDir()
	command(t, "git", "clone", "--quiet", source, again)
	command(t, "git", "-C", again, "remote", "set-url", "origin", repositoryURL)
	first, second := makeSnapshot(t, source, "UMASK=022", "TZ=UTC"), makeSnapshot(t, again, "UMASK=077", "TZ=Asia/Tokyo")
	sums := read(t, filepath.Join(first.folder, "SHA256SUMS"))
	if other := read(t, filepath.Join(second.folder, "SHA256SUMS")); sums != other {
		t.Errorf("a release of the same source in another folder has other bytes:\n%s\n%s", sums, other)
	}
	const files = 14 // an archive, a package for VMs, an image, two Debian and two RPM packages, a bill of each
	if strings.Count(sums, "\n") != files {
		t.Errorf("the release has\n%s\nwant %d files", sums, files)
	}
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--quiet", "SHA256SUMS")
	check.Dir = first.folder
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("sha256sum --check: %v\n%s", err, out)
	}
	if err := os.Rename(first.folder, filepath.Join(folder, "release")); err != nil {
		t.Fatal(err)
	}
	first.folder = filepath.Join(folder, "release")
	wantManuals(t, first)
	wantRPM(t, first)
	wantImage(t, first)
	put(t, filepath.Join(folder, "kinds.json"), releaseKinds)
}

// wantManuals demands manual pages that groff formats without a warning, and licences of all
// modules.
func wantManuals(t *testing.T, s snapshot) {
	t.Helper()
	folder := t.TempDir()
	command(t, "tar", "-xzf", s.file(t, "spotworker_", ".tar.gz"), "--strip-components=1", "-C", folder)
	for _, name := range []string{"worker", "producer", "spotctl", "lab"} {
		cmd := exec.CommandContext(t.Context(), need.Command(t, "groff"), "-man", "-ww", "-Wbreak", "-Tutf8", "-P-cbou",
			filepath.Join(folder, "man", name+".1"))
		var warnings bytes.Buffer
		cmd.Stderr = &warnings
		text, err := cmd.Output()
		if err != nil || warnings.Len() > 0 || !strings.Contains(string(text), "--version") {
			t.Errorf("groff of %s.1: %v\n%s\n%s", name, err, &warnings, text)
		}
		if got := command(t, filepath.Join(folder, name), "--version"); !strings.HasPrefix(got, name+" v0.1.1-snapshot.") {
			t.Errorf("%s --version = %q, want a snapshot after %s", name, got, releaseTag)
		}
	}
	licenses := read(t, filepath.Join(folder, "licenses.txt"))
	for _, want := range []string{"Go's standard library", "sdk/storage/azqueue/v2 v2.1.0", "MIT License", "The Go Authors"} {
		if !strings.Contains(licenses, want) {
			t.Errorf("licenses.txt lacks %q", want)
		}
	}
	if strings.Contains(licenses, "no file with a licence") {
		t.Error("licenses.txt lacks the licence of a module")
	}
}

// wantImage demands an image with the tag of the release, and a bill of its modules and files.
func wantImage(t *testing.T, s snapshot) {
	t.Helper()
	index := command(t, "tar", "-xOf", s.file(t, "spotworker-image_", ".tar"), "index.json")
	if !strings.Contains(index, `"org.opencontainers.image.ref.name":"spotworker:v0.1.1-snapshot.`) {
		t.Errorf("index.json of the image = %s, want the tag of the snapshot", index)
	}
	bill := read(t, s.file(t, "spotworker-image_", "_linux_"+runtime.GOARCH+".cdx.json"))
	for _, want := range []string{`"CycloneDX"`, "sdk/storage/azqueue/v2", "etc/ssl/certs/ca-certificates.crt", "v0.1.1-snapshot."} {
		if !strings.Contains(bill, want) {
			t.Errorf("the bill of the image lacks %q", want)
		}
	}
}

// wantRPM demands that the RPM packages have the same files as the Debian packages.
func wantRPM(t *testing.T, s snapshot) {
	t.Helper()
	for _, prefix := range []string{"spotworker", "spotworker-tools"} {
		rpm, deb := s.file(t, prefix+"-0", ".rpm"), s.file(t, prefix+"_0", ".deb")
		if got := command(t, need.Command(t, "rpm"), "--checksig", "--nosignature", rpm); !strings.Contains(got, "digests OK") {
			t.Errorf("rpm --checksig %s: %s", rpm, got)
		}
		inRPM := strings.Fields(command(t, "rpm", "--query", "--list", "--package", rpm))
		var inDeb []string
		for line := range strings.Lines(command(t, "dpkg-deb", "--contents", deb)) {
			if fields := strings.Fields(line); !strings.HasPrefix(line, "d") {
				inDeb = append(inDeb, strings.TrimPrefix(fields[5], "."))
			}
		}
		slices.Sort(inRPM)
		slices.Sort(inDeb)
		if !slices.Equal(inRPM, inDeb) {
			t.Errorf("%s has\n%s\nand the Debian package\n%s", rpm, strings.Join(inRPM, "\n"), strings.Join(inDeb, "\n"))
		}
		scripts := command(t, "rpm", "--query", "--scripts", "--package", rpm)
		if got := strings.Count(scripts, "scriptlet (using /bin/sh)"); prefix == "spotworker" && got != 4 {
			t.Errorf("the RPM package has %d scripts, want 4:\n%s", got, scripts)
		}
	}
}

// TestGoInstall installs the commands from a module proxy, which is a folder, outside of any
// module. The go command itself makes the proxy's files from the tag.
func TestGoInstall(t *testing.T) {
	proof.Only(t, "it builds for several systems")
	t.Parallel()
	source, proxy, cache, bin := taggedCopy(t), t.TempDir(), t.TempDir(), t.TempDir()
	// As packages are built, so that the build cache has the modules of others.
	own := []string{"GOFLAGS=-modcacherw -trimpath", "CGO_ENABLED=0", "GOSUMDB=off", "GOWORK=off", "GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=url." + source + ".insteadOf", "GIT_CONFIG_VALUE_0=" + repositoryURL}
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", "github.com/spotworker/spotworker@"+releaseTag)
	download.Dir, download.Env = t.TempDir(), append(os.Environ(), append(own, "GOPROXY=direct", "GOMODCACHE="+proxy)...)
	if out, err := download.CombinedOutput(); err != nil {
		t.Fatalf("go mod download: %v\n%s", err, out)
	}
	machine := command(t, "go", "env", "GOMODCACHE")
	install := exec.CommandContext(t.Context(), "go", "install", "github.com/spotworker/spotworker/cmd/...@"+releaseTag)
	install.Dir = t.TempDir()
	install.Env = append(os.Environ(), append(own, "GOMODCACHE="+cache, "GOBIN="+bin,
		"GOPROXY=file://"+proxy+"/cache/download,file://"+machine+"/cache/download")...)
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("go install: %v\n%s", err, out)
	}
	for _, name := range []string{"worker", "producer", "spotctl", "lab"} {
		if got, want := command(t, filepath.Join(bin, name), "--version"), name+" "+releaseTag; got != want {
			t.Errorf("%s --version = %q, want %q", name, got, want)
		}
	}
	if out := command(t, filepath.Join(bin, "lab"), "imds", "--help"); !strings.Contains(out, "metadata") {
		t.Errorf("lab imds --help = %q", out)
	}
	zip, err := os.Stat(filepath.Join(proxy, "cache", "download", "github.com", "spotworker", "spotworker", "@v", releaseTag+".zip"))
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the module has %.1f MiB", float64(zip.Size())/(1<<20))
	if _, err := os.Stat(filepath.Join(cache, "github.com", "spotworker", "spotworker@"+releaseTag, "examples", "worker")); err == nil {
		t.Error("the module contains the module examples/worker")
	}
}
