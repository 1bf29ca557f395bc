//go:build integration

package wine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/repository"
	"github.com/spotworker/spotworker/internal/vmpackage"
	"github.com/spotworker/spotworker/vmapp"
)

// anyFailure stands for any exit code but 0.
const anyFailure = -1

// downloads is where the extension puts fetched files.
const downloads = `Packages\Plugins\Microsoft.CPlat.Core.VMApplicationManagerWindows\1.0.16\Downloads\spotworker`

// vm is a Windows with the VM application extension.
type vm struct {
	*Windows
	cloud     *cloud
	extension string // the program in its place
	tar       string
}

func newVM(t *testing.T, c *cloud) *vm {
	t.Helper()
	bin := Build(t, "./internal/test/integration/wine/extension")
	v := &vm{Windows: New(t), cloud: c, extension: filepath.Join(bin, "extension.exe"), tar: filepath.Join(bin, "tar.exe")}
	program, err := os.ReadFile(v.extension)
	v.check(err)
	v.check(os.WriteFile(v.tar, program, 0o600))
	t.Cleanup(func() {
		if log, err := os.ReadFile(v.DriveC(`ProgramData\spotworker\logs\worker.log`)); t.Failed() && err == nil {
			t.Logf("worker.log:\n%s", log)
		}
	})
	return v
}

// fetch puts a package and its settings into the folder of a version, as the
// extension does, and returns the folder.
func (v *vm) fetch(version, pack string, lines ...string) string {
	v.t.Helper()
	folder := v.DriveC(downloads + `\` + version)
	v.check(os.MkdirAll(folder, 0o700))
	if pack != "" {
		data, err := os.ReadFile(pack)
		v.check(err)
		v.check(os.WriteFile(filepath.Join(folder, vmapp.WindowsPackageFile), data, 0o600))
	}
	v.cloud.settings(filepath.Join(folder, vmapp.ConfigurationFile), lines...)
	return folder
}

// run runs a command of a version and checks its exit code and its output.
func (v *vm) run(folder, command string, code int, text string) {
	v.t.Helper()
	command = strings.Replace(command, `%SystemRoot%\System32\tar.exe`, v.Path(v.tar), 1)
	_, got := v.outcome(v.extension, v.Path(folder), command)
	var said strings.Builder
	for _, name := range []string{"stdout", "stderr"} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		v.check(err)
		said.Write(data)
	}
	if got != code && (code != anyFailure || got == 0) || !strings.Contains(said.String(), text) {
		v.t.Fatalf("%s = exit code %d, want %d, and %q in:\n%s", command, got, code, text, &said)
	}
}

// pack makes packages of two versions, whose handler counts.
func pack(t *testing.T, versions ...string) (paths []string) {
	t.Helper()
	handlers := Build(t, "./internal/test/integration/wine/program")
	kindsFile(t, handlers, map[string]any{"count": map[string]any{"command": []string{"./program.exe", "count"}}})
	for _, version := range versions {
		made, err := vmpackage.Make(t.Context(), vmpackage.Config{
			Worker: filepath.Join(repository.Root(t), "cmd", "worker"), Handlers: handlers, Version: version,
			Time: time.Unix(1_767_225_600, 0), Architectures: []string{"windows-amd64"}, Out: t.TempDir(),
		})
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, made[0].Path)
	}
	return paths
}

// TestPackage installs a version, updates it in the middle of a job, has an update
// that does not start undone, and removes everything.
func TestPackage(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	v, packs := newVM(t, c), pack(t, "1.0.0", "1.0.1")

	first := v.fetch("1.0.0", packs[0])
	v.run(first, vmapp.WindowsInstall, 0, "spotworker: installed 1.0.0-")
	v.run(first, vmapp.WindowsInstall, 0, "spotworker: installed 1.0.0-") // again
	c.put("short", "count", "3")
	await(t, "the short job done", func() bool { return c.record("short").Status == checkpoint.Done })

	c.put("long", "count", "[100,50]")
	await(t, "a checkpoint of the long job", func() bool { return c.record("long").HasState() })
	second := v.fetch("1.0.1", packs[1])
	v.run(second, vmapp.WindowsUpdate, 0, " in the place of 1.0.0-")
	await(t, "the long job done", func() bool { return c.record("long").Status == checkpoint.Done })
	if r := c.record("long"); c.result("long") == "0 to 100" || r.Interruptions != 1 || r.Failures != 0 {
		t.Errorf("the job counted %s with %d interruptions and %d failures, want it resumed, 1 and 0", c.result("long"), r.Interruptions,
			r.Failures)
	}
	v.checkReleases("1.0.1")

	broken := v.fetch("1.0.2", packs[0], "SPOTWORKER_MOVE_AFTER=soon")
	v.run(broken, vmapp.WindowsUpdate, 78, "was restored, and runs")
	v.checkReleases("1.0.1")
	c.put("after", "count", "1")
	await(t, "a job of the restored version", func() bool { return c.record("after").Status == checkpoint.Done })

	v.run(v.fetch("1.0.3", ""), vmapp.WindowsUpdate, anyFailure, "") // the package did not arrive
	v.run(v.fetch("1.0.3", ""), vmapp.WindowsRemove, 0, "removed")   // so another version's worker removes itself
	for _, folder := range []string{`Program Files\spotworker`, `ProgramData\spotworker`} {
		if _, err := os.Stat(v.DriveC(folder)); err == nil {
			t.Errorf("%s is left", folder)
		}
	}
	for _, key := range []string{"spotworker", "spotworker-install", `EventLog\Application\spotworker`,
		`EventLog\Application\spotworker-install`} {
		if v.registryHas(key) {
			t.Errorf("%s is left in the registry", key)
		}
	}
}

// checkReleases checks that one release is on the VM, and is of this version.
func (v *vm) checkReleases(version string) {
	v.t.Helper()
	entries, err := os.ReadDir(v.DriveC(`Program Files\spotworker`))
	v.check(err)
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	if len(names) != 2 || !strings.HasPrefix(names[0], version+"-") {
		v.t.Errorf("releases %q, want one of %s, and the name of the one that was started", names, version)
	}
}
