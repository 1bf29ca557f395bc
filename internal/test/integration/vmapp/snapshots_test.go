//go:build integration && linux

package vmapp

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/checkpoint"
	criu "github.com/spotworker/spotworker/internal/program/snapshot"
	"github.com/spotworker/spotworker/internal/test/need"
)

// copyCRIU copies the CRIU of .tools, if it is there.
func copyCRIU(t *testing.T, from, to string) {
	t.Helper()
	from, err := filepath.EvalSymlinks(from)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = os.CopyFS(to, os.DirFS(from))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// criuPath is where the VM finds criu.
const criuPath = "/usr/local/bin/criu"

// installCRIU installs it as a package of the distribution would.
func installCRIU(t *testing.T) {
	t.Helper()
	path := filepath.Join(shared, "criu", "bin", "criu")
	if _, err := os.Stat(path); err != nil {
		return
	}
	if err := os.Symlink(path, criuPath); err != nil {
		t.Fatal(err)
	}
}

const aptGetPath = "/usr/local/bin/apt-get" // before the distribution's

// aptGet stands in for apt-get, which needs a mirror: it has one package.
const aptGet = `#!/bin/sh
for word in "$@"; do [ "$word" != criu ] || ln -s ` + shared + `/criu/bin/criu ` + criuPath + `; done
`

// fakeMirror removes criu, which the package has to install.
func fakeMirror(t *testing.T) {
	t.Helper()
	put(t, aptGetPath, aptGet)
	if err := errors.Join(os.Chmod(aptGetPath, 0o755), os.Remove(criuPath)); err != nil {
		t.Fatal(err)
	}
}

// countKind is an unchanged program. It ends when the test has made the file finish.
const countKind = `{"kinds": {"count": {"command": ["` + shared + `/count"], "snapshot": "criu"}}}
`

// onOverlay is why a program is not frozen on a machine whose temporary files are on an overlay.
const onOverlay = "is on a file system such as an overlay"

// snapshots: with SPOTWORKER_SNAPSHOTS the unit lets CRIU freeze a program, which continues
// after an eviction. Without it the worker names the setting and does not start.
func (m *machine) snapshots(t *testing.T) {
	if _, err := os.Lstat(criuPath); err != nil {
		need.Missing(t, "CRIU in .tools")
	}
	const kinds = "/etc/count.json"
	put(t, kinds, countKind)
	remove := func() {
		_, _ = os.Remove(kinds), os.Remove(aptGetPath)
		m.remove(t)
	}
	settings := func(vm string, more ...string) string {
		return m.azure.settings(vm, append(more, "SPOTWORKER_KINDS_FILE="+kinds)...)
	}
	err := m.extension.want(t, published("1.4.0", archiveOf(newVersion), settings("spot_5")))
	failed(t, err, 78, "system call filter", "set SPOTWORKER_SNAPSHOTS=criu in worker.env")
	err = m.extension.want(t, published("1.4.1", archiveOf(newVersion), settings("spot_5", "SPOTWORKER_SNAPSHOTS=yes")))
	failed(t, err, 78, "SPOTWORKER_SNAPSHOTS in worker.env is yes: give criu")
	if _, err := criu.Check(t.Context(), criuPath, t.TempDir(), nil); err != nil {
		remove()
		need.Absent(t, need.Snapshots, err.Error())
	}

	fakeMirror(t)
	m.deploy(t, published("1.4.2", archiveOf(newVersion), settings("spot_5", "SPOTWORKER_SNAPSHOTS=criu")))
	wantRunning(t, newVersion)
	wantReadOnly(t)
	status := read(t, "/proc/"+property(t, "spotworker.service", "MainPID")+"/status")
	if !strings.Contains(status, "Seccomp:\t0\n") {
		t.Errorf("the worker has a system call filter, which forbids CRIU:\n%s", status)
	}
	m.azure.produce(t, "put", "--kind", "count", "--id", "count", "--payload", "{}")
	await(t, "a snapshot", func() bool {
		return strings.Contains(logged(workerLog), `"msg":"checkpoint saved"`) || strings.Contains(logged(workerLog), onOverlay)
	})
	if strings.Contains(logged(workerLog), onOverlay) {
		m.azure.cancel(t, "count")
		remove()
		need.Absent(t, need.Snapshots, onOverlay)
	}
	m.wantNoMetadata(t, "spot_5")
	m.azure.evict(t, "spot_5")
	awaitLogged(t, workerLog, 0, `"msg":"drained"`, `"released":1`)
	if r := m.azure.record(t, "count"); r.Status != checkpoint.Open || r.StateVersion != 16 || r.Failures != 0 {
		t.Errorf("the evicted job is %s with a state of version %d and %d failures, want open with a snapshot", r.Status, r.StateVersion,
			r.Failures)
	}
	seen := len(logged(workerLog))
	m.deploy(t, published("1.4.3", archiveOf(oldVersion), settings("spot_2", "SPOTWORKER_SNAPSHOTS=criu")))
	awaitLogged(t, workerLog, seen, `"msg":"program continues from its snapshot"`)
	m.wantNoMetadata(t, "spot_2")
	put(t, filepath.Join(workingFolder(t), "finish"), "")
	await(t, "the end of the job", func() bool { return m.azure.record(t, "count").Status == checkpoint.Done })
	if r := m.azure.record(t, "count"); r.Interruptions != 1 || r.Failures != 0 {
		t.Errorf("the job has %d interruptions and %d failures, want 1 and none", r.Interruptions, r.Failures)
	}

	m.deploy(t, published("1.4.4", archiveOf(oldVersion), m.azure.settings("spot_2")))
	wantHardened(t) // the drop-in is gone
	remove()
}

// workingFolder returns the working folder of the only job.
func workingFolder(t *testing.T) string {
	t.Helper()
	works, err := filepath.Glob("/var/cache/spotworker/*/job-*/work")
	if err != nil || len(works) != 1 {
		t.Fatalf("working folders = %q, %v, want one", works, err)
	}
	return works[0]
}

// wantNoMetadata lets the program connect to the metadata service of a VM, which it must not
// reach, although the test does.
func (m *machine) wantNoMetadata(t *testing.T, vm string) {
	t.Helper()
	address := m.azure.metadata(t, vm).Host
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatalf("the metadata service of %s: %v", vm, err)
	}
	_ = conn.Close()
	work := workingFolder(t)
	put(t, filepath.Join(work, "asked"), address)
	if err := os.Rename(filepath.Join(work, "asked"), filepath.Join(work, "attack")); err != nil {
		t.Fatal(err)
	}
	answer := filepath.Join(work, "answer")
	await(t, "an answer of the program", func() bool { _, err := os.Stat(answer); return err == nil })
	if got := read(t, answer); got == "reached" {
		t.Errorf("a program of a snapshot kind reaches the metadata service of %s", vm)
	} else {
		t.Logf("connection of the program to the metadata service: %s", got)
	}
	if err := os.Remove(answer); err != nil {
		t.Fatal(err)
	}
}
