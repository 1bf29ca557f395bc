//go:build integration && linux

package vmapp

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	commands "github.com/spotworker/spotworker/vmapp"
)

// dataFolder is where the VM application extension keeps its downloads.
const dataFolder = "/var/lib/waagent/Microsoft.CPlat.Core.VMApplicationManagerLinux"

// application is one version of a VM application, as its owner published it.
type application struct {
	name, version           string
	archive                 string // file
	configuration           string // content; empty for none
	install, update, remove string

	// The extension could not fetch them.
	packageLost, configurationLost bool
}

// published is the package as docs/deploy.md has it published.
func published(version, archive, configuration string) application {
	return application{
		name: "spotworker", version: version, archive: archive, configuration: configuration,
		install: commands.Install, update: commands.Update, remove: commands.Remove,
	}
}

// extension stands in for the VM application extension. It does what
// Azure/VMApplication-Extension (internal/actionplan, internal/packageregistry)
// and its command handler (azure-extension-platform, pkg/commandhandler) do, in
// their order:
//
//   - Applications that are no longer wanted come first: the remove command
//     that came with the version there is runs in that version's folder, which is
//     then deleted, whether or not the command succeeded.
//   - A wanted application that is not there: package and configuration are put
//     into NAME/VERSION (folders and files 0700) under the file names of the
//     version, and the install command runs there. It also runs where one of them
//     could not be fetched within 75 to 80 seconds, and then finds an empty file.
//   - An application with another version there, older or newer: the same in the new
//     version's folder, with its update command; without one the old version's
//     remove command, and if that succeeds the new one's install command.
//   - An application that is there in this version: nothing, and success, even if it failed or
//     a reboot ended it.
//
// A command runs under /bin/sh -c with its output in the files stdout and stderr
// of its folder. Not stood in for: how applications are fetched, several of them
// in an order, and the retry after a reboot, which depends on who is killed first.
type extension struct {
	there map[string]*application
}

func newExtension() *extension { return &extension{there: map[string]*application{}} }

// want sets the applications of the VM's model. The error is the extension's status
// of the commands that failed.
func (e *extension) want(t *testing.T, wanted ...application) error {
	t.Helper()
	var failures []error
	for name, current := range e.there {
		if !slices.ContainsFunc(wanted, func(a application) bool { return a.name == name }) {
			failures = append(failures, e.takeAway(t, current))
		}
	}
	for _, a := range wanted {
		failures = append(failures, e.bring(t, &a))
	}
	return errors.Join(failures...)
}

func (e *extension) takeAway(t *testing.T, a *application) error {
	t.Helper()
	err := run(t, a, a.remove)
	delete(e.there, a.name)
	return errors.Join(err, os.RemoveAll(folderOf(a)))
}

func (e *extension) bring(t *testing.T, a *application) error {
	t.Helper()
	current, ok := e.there[a.name]
	command := a.install
	switch {
	case ok && current.version == a.version:
		return nil
	case ok && a.update != "":
		command = a.update
	case ok:
		if err := run(t, current, current.remove); err != nil {
			return err
		}
	}
	e.there[a.name] = a
	lost := e.fetch(t, a)
	return errors.Join(run(t, a, command), lost)
}

// fetch stores package and configuration where the commands find them. The error is the
// status of a file that could not be fetched.
func (e *extension) fetch(t *testing.T, a *application) error {
	t.Helper()
	folder := folderOf(a)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	archive, configuration := read(t, a.archive), a.configuration
	var lost error
	if a.packageLost {
		archive, lost = "", errors.New("failed to download package file")
	}
	if a.configurationLost {
		configuration, lost = "", errors.Join(lost, errors.New("failed to download config file"))
	}
	if err := os.WriteFile(filepath.Join(folder, commands.PackageFile), []byte(archive), 0o700); err != nil {
		t.Fatal(err)
	}
	if configuration != "" || a.configurationLost {
		if err := os.WriteFile(filepath.Join(folder, commands.ConfigurationFile), []byte(configuration), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return lost
}

func folderOf(a *application) string { return filepath.Join(dataFolder, a.name, a.version) }

// commandError is the status of a command that failed, with its output files.
type commandError struct {
	command        string
	code           int
	stdout, stderr string
}

func (e *commandError) Error() string {
	return fmt.Sprintf("Error executing command '%s': command terminated with exit status=%d\nstdout: %s\nstderr: %s", e.command, e.code,
		e.stdout, e.stderr)
}

func run(t *testing.T, a *application, command string) error {
	t.Helper()
	folder := folderOf(a)
	said := map[string]*os.File{}
	for _, name := range []string{"stdout", "stderr"} {
		file, err := os.Create(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		said[name] = file
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh", "-c", command)
	cmd.Dir, cmd.Stdout, cmd.Stderr = folder, said["stdout"], said["stderr"]
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	err := cmd.Run()
	stdout, stderr := read(t, said["stdout"].Name()), read(t, said["stderr"].Name())
	t.Logf("%s %s: %s: %v\n%s%s", a.name, a.version, command, cmd.ProcessState, stdout, stderr)
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return &commandError{command, cmd.ProcessState.ExitCode(), stdout, stderr}
	}
	return err
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
