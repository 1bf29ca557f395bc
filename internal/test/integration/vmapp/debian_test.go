//go:build integration && linux

package vmapp

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/lab/labtest"
)

// releaseKinds are kinds of programs that the machine has. The second runs until it is stopped.
const releaseKinds = `{"kinds": {
  "hello": {"command": ["sh", "-c", "cat \"$SPOTWORKER_PAYLOAD\" >\"$TMPDIR/r\" && mv \"$TMPDIR/r\" \"$SPOTWORKER_RESULT\""]},
  "forever": {"command": ["sh", "-c", "trap 'exit 75' TERM; while :; do sleep 0.1; done"]}
}}
`

// installRelease installs the files of a release on the machine.
func installRelease(t *testing.T) {
	put(t, "/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")
	release := snapshot{folder: filepath.Join(shared, "release")}
	// The archive's programs take the place of the programs that startAzure expects.
	command(t, "tar", "-xzf", release.file(t, "spotworker_", ".tar.gz"), "--strip-components=1", "-C", shared)
	d := &debianMachine{azure: startAzure(t, 1), release: release}
	d.before = inventory(t)
	for _, step := range []struct {
		name string
		run  func(t *testing.T)
	}{
		{"archive", d.archive},
		{"packages", d.packages},
		{"tools", d.tools},
		{"update in the middle of a job", d.update},
		{"VM application beside the package", d.besideVMApplication},
		{"remove and purge", d.purge},
		{"package beside the VM application", d.besidePackage},
	} {
		if !t.Run(step.name, step.run) {
			units, _ := exec.CommandContext(t.Context(), "systemctl", "--no-pager", "status", "spotworker*").CombinedOutput()
			t.Fatalf("units:\n%s\nlog of the worker:\n%s", units, logged(workerLog))
		}
	}
}

// debianMachine is a machine with Debian on which a release is installed.
type debianMachine struct {
	azure   *localAzure
	release snapshot
	before  []string
}

// hello puts a job and demands its result.
func (d *debianMachine) hello(t *testing.T, producer, id string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), producer, "--wait", "put", "--kind", "hello", "--id", id, "--payload", `"of `+id+`"`)
	cmd.Env = append(os.Environ(), "AZURE_STORAGE_CONNECTION_STRING="+d.azure.connection)
	if out, err := cmd.Output(); err != nil || !strings.Contains(string(out), id+"\t\"of "+id+"\"") {
		t.Fatalf("%s put: %v: %s, want the result of %s", producer, err, out, id)
	}
}

// archive runs the programs where the archive was unpacked.
func (d *debianMachine) archive(t *testing.T) {
	worker := exec.CommandContext(t.Context(), filepath.Join(shared, "worker"), "--kinds-file", filepath.Join(shared, "kinds.json"),
		"--listen=none", "--runtime-dir", t.TempDir())
	worker.Env = append(os.Environ(), "AZURE_STORAGE_CONNECTION_STRING="+d.azure.connection,
		"SPOTWORKER_METADATA_ENDPOINT="+d.azure.endpoints["spot_1"], "SPOTWORKER_SCRATCH="+t.TempDir())
	var log labtest.Output
	worker.Stdout, worker.Stderr = &log, &log
	worker.Cancel = func() error { return worker.Process.Signal(os.Interrupt) }
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	d.hello(t, filepath.Join(shared, "producer"), "archive")
	if err := worker.Cancel(); err != nil {
		t.Fatal(err)
	}
	if err := worker.Wait(); err != nil {
		t.Errorf("the worker ends with %v, want success\n%s", err, log.String())
	}
}

// install installs both Debian packages, as an update if they are there.
func (d *debianMachine) install(t *testing.T) {
	t.Helper()
	command(t, "dpkg", "--install", d.release.file(t, "spotworker_", ".deb"), d.release.file(t, "spotworker-tools_", ".deb"))
}

// packages: nothing runs until worker.env is filled in; then the unit runs a job.
func (d *debianMachine) packages(t *testing.T) {
	d.install(t)
	if state := property(t, "spotworker.service", "ActiveState"); state != "inactive" {
		t.Errorf("spotworker.service is %s after the installation, want inactive", state)
	}
	if out, err := exec.CommandContext(t.Context(), "systemctl", "is-enabled", "spotworker.service").Output(); err == nil {
		t.Errorf("spotworker.service is %s after the installation, want disabled", out)
	}
	if info, err := os.Stat("/etc/spotworker/worker.env"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("worker.env: %v, %v, want 0600: it may hold a key of an emulator", info, err)
	}
	put(t, "/etc/spotworker/kinds.json", releaseKinds)
	put(t, "/etc/spotworker/worker.env", d.azure.settings("spot_1", "SPOTWORKER_KINDS_FILE=/etc/spotworker/kinds.json"))
	command(t, "systemctl", "enable", "--now", "spotworker")
	d.hello(t, "/usr/bin/producer", "packages")
	wantHealthy(t, 8810)
	wantHardened(t)
	wantRotation(t)
}

// tools: the other programs are in PATH, and bash completes them.
func (d *debianMachine) tools(t *testing.T) {
	for _, name := range []string{"worker", "producer", "spotctl", "lab"} {
		if got, want := command(t, name, "--version"), command(t, filepath.Join(shared, name), "--version"); got != want {
			t.Errorf("%s of the package is %q, and of the archive %q", name, got, want)
		}
		const script = `. /usr/share/bash-completion/completions/"$1" && complete -p "$1"`
		if got, want := command(t, "bash", "-c", script, "bash", name), "complete -o bashdefault -o default -F _"+name+" "+name; got != want {
			t.Errorf("bash completes %s by %q, want %q", name, got, want)
		}
		if _, err := os.Stat("/usr/share/man/man1/" + name + ".1"); err != nil {
			t.Error(err)
		}
	}
}

// update: the worker hands its jobs over, and the new one has them.
func (d *debianMachine) update(t *testing.T) {
	d.azure.produce(t, "put", "--kind", "forever", "--id", "long", "--payload", "1")
	awaitLogged(t, workerLog, 0, `"msg":"job started"`, `"job_id":"long"`)
	seen, pid := len(logged(workerLog)), number(t, "spotworker.service", "MainPID")
	settings := read(t, "/etc/spotworker/worker.env")
	d.install(t)
	awaitLogged(t, workerLog, seen, `"msg":"job started"`, `"job_id":"long"`)
	if got := number(t, "spotworker.service", "MainPID"); got == pid {
		t.Errorf("the worker is still process %d after the update", pid)
	}
	if r := d.azure.record(t, "long"); r.Failures != 0 || r.Interruptions != 1 {
		t.Errorf("the update counts as %d failures and %d interruptions, want 0 and 1", r.Failures, r.Interruptions)
	}
	if read(t, "/etc/spotworker/worker.env") != settings {
		t.Error("the update changed worker.env")
	}
	if got := command(t, "systemctl", "is-enabled", "spotworker.service"); got != "enabled" {
		t.Errorf("spotworker.service is %s after the update, want enabled", got)
	}
}

// besideVMApplication: the VM application is not installed on top of the package.
func (d *debianMachine) besideVMApplication(t *testing.T) {
	folder := t.TempDir()
	command(t, "tar", "-xzf", d.release.file(t, "spotworker-vm_", ".tar.gz"), "-C", folder)
	out, err := exec.CommandContext(t.Context(), "sh", filepath.Join(folder, "install.sh")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "remove it first") {
		t.Errorf("the VM application beside the package: %v: %s, want it to refuse", err, out)
	}
	d.hello(t, "/usr/bin/producer", "beside")
}

// byDpkg are folders that dpkg writes.
var byDpkg = []string{"/var/lib/dpkg/", "/var/log/dpkg.log", "/var/log/alternatives.log", "/var/cache/man"}

// purge: a removal hands the jobs over and keeps the settings; a purge leaves nothing.
func (d *debianMachine) purge(t *testing.T) {
	command(t, "dpkg", "--remove", "spotworker", "spotworker-tools")
	if r := d.azure.record(t, "long"); r.Status != checkpoint.Open || r.Failures != 0 || r.Interruptions != 2 {
		t.Errorf("the job is %s with %d failures and %d interruptions, want open, 0 and 2", r.Status, r.Failures, r.Interruptions)
	}
	if _, err := os.Stat("/etc/spotworker/worker.env"); err != nil {
		t.Errorf("settings after the removal: %v, want them kept", err)
	}
	if out, err := exec.CommandContext(t.Context(), "nft", "list", "table", "inet", "spotworker").CombinedOutput(); err == nil {
		t.Errorf("rules of the firewall are left: %s", out)
	}
	command(t, "dpkg", "--purge", "spotworker", "spotworker-tools")
	d.before = append(d.before, slices.DeleteFunc(inventory(t), func(path string) bool {
		return !slices.ContainsFunc(byDpkg, func(prefix string) bool { return strings.HasPrefix(path, prefix) })
	})...)
	wantNothingLeft(t, d.before)
}

// besidePackage: the package is not installed on top of the VM application.
func (d *debianMachine) besidePackage(t *testing.T) {
	if err := os.MkdirAll("/opt/spotworker", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("1.0.0-0123456789ab", "/opt/spotworker/current"); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "dpkg", "--install", d.release.file(t, "spotworker_", ".deb")).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "remove it first") {
		t.Errorf("the package beside the VM application: %v: %s, want it to refuse", err, out)
	}
}
