package scripts

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
)

// azScript makes this test binary the Azure CLI of the folder in which the script is.
const azScript = "#!/bin/sh\n" + azFolder + `=$(cd "$(dirname "$0")" && pwd) exec '%s' "$@"` + "\n"

// subscription consists of notes.
type subscription struct {
	t           *testing.T
	folder, pkg string
	env         []string
}

func newSubscription(t *testing.T) *subscription {
	t.Helper()
	need.NotOn(t, "windows", "the script needs a POSIX shell")
	a := &subscription{t: t, folder: t.TempDir()}
	a.pkg = filepath.Join(a.folder, "package.tar.gz")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	a.write("az", fmt.Sprintf(azScript, program), 0o700)
	a.write("make", "#!/bin/sh\nexit 2\n", 0o700)
	a.pack("package.tar.gz", "RELEASE=1.2.3-0123456789ab\nARCHITECTURE=amd64\n")
	for name, content := range map[string]string{
		"capacity": "", "deployed": "", "grants": "", "version": "2.61.0", "bicep": "Bicep CLI version 0.36.1 (a727ed087a)",
		"group": "false", "location": "", "grouplocation": "westeurope",
		"usage": "2\t12", "program": "1.2.3", "state": "process", "vm": "",
		"regular": "0\t10", "family": "0\t1000", "otherfamily": "0\t0",
		"providers": "Microsoft.Compute\nMicrosoft.Storage\nMicrosoft.Network\nMicrosoft.ManagedIdentity\n" +
			"microsoft.insights\nMicrosoft.OperationalInsights\nMicrosoft.PolicyInsights\n",
	} {
		a.write(name, content, 0o600)
	}
	a.sizes(usualSize("Standard_D2as_v5"))
	return a
}

// pack makes a package that says this of itself.
func (a *subscription) pack(name, release string) {
	a.t.Helper()
	folder := a.t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "release"), []byte(release), 0o600); err != nil {
		a.t.Fatal(err)
	}
	out, err := exec.CommandContext(a.t.Context(), "tar", "-czf", filepath.Join(a.folder, name), "-C", folder, "release").CombinedOutput()
	if err != nil {
		a.t.Fatalf("tar: %v\n%s", err, out)
	}
}

func (a *subscription) write(name, content string, mode os.FileMode) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.folder, name), []byte(content), mode); err != nil {
		a.t.Fatal(err)
	}
}

// read returns a note.
func (a *subscription) read(name string) string { return notes(a.folder).read(name) }

// deploy runs tools/deploy.sh and returns its output and the calls of az.
func (a *subscription) deploy(arguments ...string) (said string, calls []string, err error) {
	a.t.Helper()
	return a.run("deploy.sh", arguments...)
}

func (a *subscription) run(script string, arguments ...string) (said string, calls []string, err error) {
	a.t.Helper()
	_ = os.Remove(filepath.Join(a.folder, "calls"))
	command := exec.CommandContext(a.t.Context(), filepath.Join("..", "..", "tools", script), arguments...)
	command.Env = []string{
		"PATH=" + a.folder + ":/usr/bin:/bin", "HOME=" + a.folder,
		"SSH_PUBLIC_KEY=ssh-ed25519 AAAA", "OPERATOR_ADDRESSES=203.0.113.7", "DEPLOY_RETRY=0", "WORKERS_WITHIN=1",
	}
	command.Env = append(command.Env, a.env...)
	if a.pkg != "" {
		command.Env = append(command.Env, "PACKAGE="+a.pkg)
	}
	out, err := command.CombinedOutput()
	noted, readErr := os.ReadFile(filepath.Join(a.folder, "calls"))
	if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
		a.t.Fatal(readErr)
	}
	return string(out), strings.Split(string(bytes.TrimSpace(noted)), "\n"), err
}

// changing returns the calls that change something, without their arguments.
func changing(calls []string) []string {
	var made []string
	for _, call := range calls {
		_, call, _ = strings.Cut(call, " ")
		for _, verb := range []string{
			"group create", "deployment group create", "storage blob upload", "role assignment delete", "resource delete",
			"storage account network-rule add", "monitor autoscale delete", "vmss scale",
		} {
			if !strings.HasPrefix(call, verb+" ") {
				continue
			}
			if _, stage, found := strings.Cut(call, "stage="); found {
				verb += " " + strings.Fields(stage)[0]
				if _, fails, found := strings.Cut(call, "failOnInstall="); found {
					verb += " " + fails
				}
			}
			made = append(made, verb)
		}
	}
	return made
}
