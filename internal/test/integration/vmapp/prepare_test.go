//go:build integration && linux

package vmapp

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/repository"
	"github.com/spotworker/spotworker/internal/vmpackage"
)

// Files of the handlers' data. The program rests after each 1,000 lines for as
// long as worker.env says.
const (
	shortFile, shortLines = "short.log", 1_000
	longFile, longLines   = "long.log", 40_000

	// slowly makes the long file take some minutes: longer than an update of a slow machine.
	slowly = "PAUSE=4"
)

// versions are the packages for this machine, and one package for another architecture.
const (
	oldVersion, newVersion = "1.0.0", "1.1.0"
	foreignArchive         = "foreign.tar.gz"
)

func archiveOf(version string) string { return filepath.Join(shared, version+".tar.gz") }

// prepare builds the packages, with the example in Python in them, and the
// programs that the local Azure needs.
func prepare(t *testing.T, folder string) {
	repository := repository.Root(t)
	build := exec.CommandContext(t.Context(), "go", "build", "-o", folder+"/", "./cmd/lab", "./cmd/producer",
		"./internal/test/integration/vmapp/testdata/count")
	build.Dir, build.Env = repository, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v: %s", err, out)
	}
	handlers := example(t, repository)
	for _, version := range []string{oldVersion, newVersion} {
		pack(t, folder, version+".tar.gz", version, runtime.GOARCH, handlers)
	}
	if !proof.Full() {
		return
	}
	copyCRIU(t, filepath.Join(repository, ".tools", "criu"), filepath.Join(folder, "criu"))
	foreign := "arm64"
	if runtime.GOARCH == foreign {
		foreign = "amd64"
	}
	pack(t, folder, foreignArchive, oldVersion, foreign, "")
}

// pack makes one package.
func pack(t *testing.T, folder, name, version, architecture, handlers string) {
	t.Helper()
	made, err := vmpackage.Make(t.Context(), vmpackage.Config{
		Worker: filepath.Join(repository.Root(t), "cmd", "worker"), Handlers: handlers,
		Version: version, Time: time.Unix(1_767_225_600, 0), Architectures: []string{architecture}, Out: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(made[0].Path, filepath.Join(folder, name)); err != nil {
		t.Fatal(err)
	}
}

// example is a copy of examples/logstats with logs to read, as slow as the worker's
// environment has it.
func example(t *testing.T, repository string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "handlers")
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(repository, "examples", "logstats"))); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(filepath.Join(folder, "spotworker"), os.DirFS(filepath.Join(repository, "python", "spotworker"))); err != nil {
		t.Fatal(err)
	}
	const environment = `"environment": {`
	kinds := filepath.Join(folder, "kinds.json")
	put(t, kinds, replaceOnce(t, read(t, kinds), environment, environment+`"PAUSE": null, `))
	put(t, kinds, replaceOnce(t, read(t, kinds), `"logstats": {`, attackKind+leaverKind+`"logstats": {`))
	put(t, filepath.Join(folder, "attack.py"), attackProgram)
	for name, lines := range map[string]int{shortFile: shortLines, longFile: longLines} {
		var log strings.Builder
		for i := range lines {
			fmt.Fprintf(&log, "10.0.0.1 - - [01/Jan/2026:00:00:00 +0000] \"GET /%d HTTP/1.1\" 200 1\n", i)
		}
		put(t, filepath.Join(folder, "data", name), log.String())
	}
	return folder
}

// replaceOnce replaces a text that must be there once.
func replaceOnce(t *testing.T, text, old, by string) string {
	t.Helper()
	if n := strings.Count(text, old); n != 1 {
		t.Fatalf("%q is there %d times, want once", old, n)
	}
	return strings.Replace(text, old, by, 1)
}
