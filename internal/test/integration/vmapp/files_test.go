//go:build integration && linux

package vmapp

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/repository"
	commands "github.com/spotworker/spotworker/vmapp"
)

// TestScripts runs shellcheck over the scripts, and the scripts that make the package's
// surroundings.
func TestScripts(t *testing.T) {
	shellcheck := need.Command(t, "shellcheck")
	repository := repository.Root(t)
	for folder, scripts := range map[string][]string{
		"vmapp/scripts": {"install.sh", "update.sh", "remove.sh"},
		"tools":         {"azure-cli.sh", "debian-root.sh", "deploy-checks.sh", "deploy-sizes.sh", "deploy-workers.sh", "bicep.sh"},
		".": {"tools/deploy.sh", "tools/deploy-evict.sh", "tools/rehome.sh", "tools/release.sh", "tools/go-tool.sh", "infra/watch/watch.sh",
			"examples/ci/ci.sh", "examples/workflows/onworker", "examples/workflows/profile/submit.sh",
			"examples/workflows/profile/status.sh", "examples/workflows/profile/cancel.sh"},
		"vmapp/linux": {"preinstall.sh", "postinstall.sh", "preremove.sh", "postremove.sh"},
	} {
		cmd := exec.CommandContext(t.Context(), shellcheck, append([]string{"--external-sources"}, scripts...)...)
		cmd.Dir = filepath.Join(repository, folder)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("shellcheck in %s: %v\n%s", folder, err, out)
		}
	}
}

// TestCloudInitScript runs shellcheck over the script in cloud-init.yaml.
func TestCloudInitScript(t *testing.T) {
	shellcheck := need.Command(t, "shellcheck")
	path := filepath.Join(t.TempDir(), "script")
	put(t, path, cloudInitScript(t))
	if out, err := exec.CommandContext(t.Context(), shellcheck, path).CombinedOutput(); err != nil {
		t.Errorf("shellcheck: %v\n%s", err, out)
	}
}

// cloudInitScript returns the script in cloud-init.yaml.
func cloudInitScript(t *testing.T) string {
	t.Helper()
	_, rest, found := strings.Cut(commands.CloudInit, "    content: |\n")
	script, _, ended := strings.Cut(rest, "\nruncmd:\n")
	if !found || !ended {
		t.Fatal("cloud-init.yaml has no script where one is expected")
	}
	const indent = "      "
	var out strings.Builder
	for line := range strings.Lines(script + "\n") {
		out.WriteString(strings.TrimPrefix(line, indent))
	}
	return out.String()
}

// TestUnits has systemd read the units. The user and the programs are not there.
func TestUnits(t *testing.T) {
	analyze := need.Command(t, "systemd-analyze")
	source := filepath.Join(repository.Root(t), "vmapp", "units")
	folder := t.TempDir()
	verify := func(units ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), analyze, append([]string{"verify", "--man=no"}, units...)...)
		cmd.Dir, cmd.Env = folder, append(os.Environ(), "SYSTEMD_UNIT_PATH="+folder+":")
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("systemd-analyze verify %s: %v\n%s", units, err, out)
		}
	}
	put(t, filepath.Join(folder, "spotworker-logs.service"), read(t, filepath.Join(source, "spotworker-logs.service")))
	for file, unit := range map[string]string{"spotworker.service": "spotworker.service", "spotworker@.service": "spotworker@0.service"} {
		// /bin/sh stands for the worker, which the checker looks for.
		text := replaceOnce(t, read(t, filepath.Join(source, file)), "ExecStart=/opt/spotworker/current/bin/worker", "ExecStart=/bin/sh")
		put(t, filepath.Join(folder, file), text)
		verify("./" + unit)
	}
	watch := filepath.Join(repository.Root(t), "infra", "watch")
	text := replaceOnce(t, read(t, filepath.Join(watch, "spotworker-watch.service")), "/usr/bin/az", "/bin/sh")
	text = replaceOnce(t, text, "ExecStart=/opt/spotworker-watch/infra/watch/watch.sh", "ExecStart=/bin/sh")
	put(t, filepath.Join(folder, "spotworker-watch.service"), text)
	put(t, filepath.Join(folder, "spotworker-watch.timer"), read(t, filepath.Join(watch, "spotworker-watch.timer")))
	verify("./spotworker-watch.service", "./spotworker-watch.timer")
}
