//go:build integration && linux

package vmapp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/checkpoint"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestVMApplication installs, updates and removes the package on a VM. In full it does so with
// faults too, and with snapshots.
func TestVMApplication(t *testing.T) {
	t.Parallel()
	inContainer(t, prepare, func(t *testing.T) {
		put(t, "/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n")
		m := &machine{azure: startAzure(t, 5), extension: newExtension()}
		if proof.Full() {
			installCRIU(t)
		}
		m.before = inventory(t)
		m.run(t, "life", m.life)
		if !proof.Full() {
			return
		}
		m.run(t, "attacked", m.attacked)
		m.run(t, "control groups", m.controlGroups)
		m.run(t, "snapshots", m.snapshots)
		m.run(t, "several workers", m.severalWorkers)
		m.run(t, "frozen worker", m.frozenWorker)
		for _, trouble := range troubles {
			m.run(t, trouble.name, func(t *testing.T) { trouble.try(t, m) })
		}
	})
}

// machine is the VM.
type machine struct {
	azure     *localAzure
	extension *extension
	before    []string // all files, before anything was installed
}

// run runs a test, and cleans up after a failure. What a failed test leaves does not fail the
// next ones.
func (m *machine) run(t *testing.T, name string, test func(t *testing.T)) {
	t.Run(name, func(t *testing.T) {
		defer func() {
			if t.Failed() {
				t.Logf("log of the worker:\n%s", logged(workerLog))
				_ = m.extension.want(t)
				m.before = inventory(t)
			}
		}()
		test(t)
	})
}

// deploy lets the extension install a version, which must succeed.
func (m *machine) deploy(t *testing.T, wanted application) {
	t.Helper()
	if err := m.extension.want(t, wanted); err != nil {
		t.Fatal(err)
	}
}

// remove lets the extension remove the application, which must leave nothing.
func (m *machine) remove(t *testing.T) {
	t.Helper()
	if err := m.extension.want(t); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t, m.before)
}

// life: installed, running jobs, killed, updated in the middle of a job, evicted,
// removed.
func (m *machine) life(t *testing.T) {
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), m.azure.settings("spot_1", slowly)))
	health, stop := watchHealth(t, 8810, patientProbes)
	wantRunning(t, oldVersion)
	wantHardened(t)
	wantReadOnly(t)
	wantRotation(t)
	wantStatistics(t, m.azure.result(t, "first", shortFile), shortLines)

	killed := number(t, "spotworker.service", "MainPID")
	if err := syscall.Kill(killed, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "restart after SIGKILL", func() bool { return runsAfter(t, killed) })
	wantStatistics(t, m.azure.result(t, "second", shortFile), shortLines)

	m.azure.put(t, "long", longFile)
	awaitLogged(t, workerLog, 0, `"msg":"checkpoint saved"`, `"job_id":"long"`)
	seen := len(logged(workerLog))
	m.deploy(t, published("1.1.0", archiveOf(newVersion), m.azure.settings("spot_1")))
	wantRunning(t, newVersion)
	if line := awaitLogged(t, workerLog, seen, `"msg":"job started"`, `"job_id":"long"`); strings.Contains(line, `"resumed_at":0,`) ||
		strings.Contains(line, `"resumed_at":0}`) {
		t.Errorf("after the update the job started again: %s", line)
	}
	wantStatistics(t, m.azure.result(t, "long", longFile), longLines)
	if r := m.azure.record(t, "long"); r.Failures != 0 || r.Interruptions != 1 {
		t.Errorf("the update counts as %d failures and %d interruptions of the job, want 0 and 1", r.Failures, r.Interruptions)
	}

	m.deploy(t, published("1.1.1", archiveOf(newVersion), m.azure.settings("spot_1", slowly)))
	wantFewCopies(t, "1.1.1")
	m.azure.put(t, "evicted", longFile)
	awaitLogged(t, workerLog, 0, `"msg":"checkpoint saved"`, `"job_id":"evicted"`)
	seen = len(logged(workerLog))
	m.azure.evict(t, "spot_1")
	awaitLogged(t, workerLog, seen, `"msg":"drained"`, `"released":1`)
	if r := m.azure.record(t, "evicted"); r.Status != checkpoint.Open || r.Fraction == 0 || r.Failures != 0 {
		t.Errorf("the evicted job is %s at %g with %d failures, want open, with progress and none", r.Status, r.Fraction, r.Failures)
	}
	if got := property(t, "spotworker.service", "ActiveState"); got != "active" {
		t.Errorf("after the drain the unit is %s, want active: the worker waits for the end of its VM", got)
	}
	await(t, "Healthy, which takes the extension most of a minute", func() bool { return health.history() != "Initializing" })
	stop()
	if got, want := health.history(), "Initializing, Healthy"; got != want {
		t.Errorf("states in the eyes of the health extension = %s, want %s and nothing else", got, want)
	}
	m.remove(t)
}

// severalWorkers: the configuration sets their number, and an update changes it.
func (m *machine) severalWorkers(t *testing.T) {
	m.deploy(t, published("2.0.0", archiveOf(oldVersion), m.azure.settings("spot_2", "SPOTWORKER_INSTANCES=3")))
	for n := range 3 {
		unit := fmt.Sprintf("spotworker@%d.service", n)
		if state := property(t, unit, "ActiveState"); state != "active" {
			t.Errorf("%s is %s, want active", unit, state)
		}
		wantHealthy(t, 8810+n)
	}
	pid := number(t, "spotworker@0.service", "MainPID")
	m.deploy(t, published("2.0.1", archiveOf(oldVersion), m.azure.settings("spot_2", "SPOTWORKER_INSTANCES='2'")))
	if got := property(t, "spotworker@2.service", "ActiveState"); got != "inactive" {
		t.Errorf("spotworker@2.service is %s with SPOTWORKER_INSTANCES=2, want inactive", got)
	}
	if got := number(t, "spotworker@0.service", "MainPID"); got == pid {
		t.Errorf("spotworker@0.service still runs as process %d after a change of its configuration", pid)
	}
	m.deploy(t, published("2.0.2", archiveOf(oldVersion), m.azure.settings("spot_2")))
	wantRunning(t, oldVersion)
	if got := property(t, "spotworker@0.service", "ActiveState"); got != "inactive" {
		t.Errorf("spotworker@0.service is %s beside spotworker.service, want inactive", got)
	}
	wantStatistics(t, m.azure.result(t, "evicted", longFile), longLines)
	m.remove(t)
}

// frozenWorker: systemd restarts a worker that hangs. An operator's drop-in shortens
// the watchdog's minute to seconds; the package leaves the drop-in alone.
func (m *machine) frozenWorker(t *testing.T) {
	const dropIn = "/run/systemd/system/spotworker.service.d/impatient.conf"
	put(t, dropIn, "[Service]\nWatchdogSec=6s\nTimeoutAbortSec=1s\nRestartSec=100ms\n")
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), m.azure.settings("spot_2")))
	time.Sleep(13 * time.Second) // longer than a worker that tells nothing would live
	frozen := number(t, "spotworker.service", "MainPID")
	if got := number(t, "spotworker.service", "NRestarts"); got != 0 {
		t.Errorf("a healthy worker was started again %d times by the watchdog, want none", got)
	}
	if err := syscall.Kill(frozen, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await(t, "restart of a frozen worker", func() bool { return runsAfter(t, frozen) })
	m.remove(t)
	if _, err := os.Stat(dropIn); err != nil {
		t.Errorf("the operator's drop-in is gone: %v", err)
	}
	if err := os.RemoveAll(filepath.Dir(dropIn)); err != nil {
		t.Fatal(err)
	}
}

// runsAfter reports whether another process than the one before is the worker now. systemd may not have
// noticed the end of the one before yet, and then there is none.
func runsAfter(t *testing.T, before int) bool {
	t.Helper()
	pid := number(t, "spotworker.service", "MainPID")
	return pid != 0 && pid != before && property(t, "spotworker.service", "ActiveState") == "active"
}

// wantRunning demands that the VM's only worker runs in that version, now and after a
// boot.
func wantRunning(t *testing.T, version string) {
	t.Helper()
	if got := property(t, "spotworker.service", "ActiveState"); got != "active" {
		t.Fatalf("spotworker.service is %s, want active; its log:\n%s", got, logged(workerLog))
	}
	if got := command(t, "systemctl", "is-enabled", "spotworker.service"); got != "enabled" {
		t.Errorf("spotworker.service is %s, want enabled", got)
	}
	program, err := os.Readlink("/proc/" + strconv.Itoa(number(t, "spotworker.service", "MainPID")) + "/exe")
	if err != nil || !strings.HasPrefix(program, "/opt/spotworker/"+version+"-") {
		t.Errorf("the unit runs %s (%v), want a release of version %s", program, err, version)
	}
	if releases, _ := filepath.Glob("/opt/spotworker/*"); len(releases) != 3 {
		t.Errorf("in /opt/spotworker are %q, want one release and two links to it", releases)
	}
}

func wantHealthy(t *testing.T, port int) {
	t.Helper()
	p, stop := watchHealth(t, port, fewProbes)
	defer stop()
	await(t, "a verdict on port "+strconv.Itoa(port), func() bool { return p.history() != "Initializing" })
	if got := p.history(); got != "Initializing, Healthy" {
		t.Errorf("state on port %d = %s, want Healthy", port, got)
	}
}

// wantHardened demands a low exposure of the running unit, on the scale of
// systemd-analyze security: 0 is nothing, 10 anything.
func wantHardened(t *testing.T) {
	t.Helper()
	out := command(t, "systemd-analyze", "security", "--no-pager", "--threshold=25", "spotworker.service")
	t.Log(out[strings.LastIndex(out, "\n")+1:])
}

// wantReadOnly: only root can write to a release, and the worker runs as its own
// user, with the capabilities for that and no other.
func wantReadOnly(t *testing.T) {
	t.Helper()
	if out := command(t, "find", "/opt/spotworker/", "!", "-type", "l", "(", "-perm", "/222", "-o", "!", "-user", "root", ")", "!", "-path",
		"/opt/spotworker/"); out != "" {
		t.Errorf("files of the release that somebody can write to:\n%s", out)
	}
	status := read(t, "/proc/"+property(t, "spotworker.service", "MainPID")+"/status")
	// CAP_SETUID, CAP_SETGID and CAP_KILL, to run each job as a user of its own.
	if !strings.Contains(status, "CapEff:\t00000000000000e0\n") || strings.Contains(status, "Uid:\t0\t") ||
		!strings.Contains(status, "NoNewPrivs:\t1\n") {
		t.Errorf("the worker has rights:\n%s", status)
	}
	if info, err := os.Stat("/etc/spotworker/worker.env"); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("worker.env has mode %v (%v), want -rw-------", info.Mode(), err)
	}
}

// wantFewCopies: the VM holds the package and the release of this version, and of
// earlier ones only the output of their scripts.
func wantFewCopies(t *testing.T, version string) {
	t.Helper()
	out := command(t, "find", dataFolder, "/opt/spotworker/", "-type", "f", "-size", "+4M", "-printf", "%p\n")
	if got := len(strings.Fields(out)); got != 2 || !strings.Contains(out, "spotworker/"+version+"/spotworker.tar.gz") {
		t.Errorf("large files on the VM:\n%s\nwant the package of %s and its worker", out, version)
	}
}

// wantRotation: logrotate takes the settings that came with the package, and the
// worker writes on into the file that was emptied.
func wantRotation(t *testing.T) {
	t.Helper()
	awaitLogged(t, workerLog, 0, `"to":"process"`)
	if got := command(t, "systemctl", "is-active", "spotworker-logrotate.timer"); got != "active" {
		t.Errorf("spotworker-logrotate.timer is %s, want active", got)
	}
	command(t, "systemctl", "start", "spotworker-logrotate.service") // below 100 MB, so nothing happens
	if _, err := os.Stat(workerLog + ".1"); err == nil {
		t.Error("a small log was rotated")
	}
	command(t, "logrotate", "--force", "--state", filepath.Join(t.TempDir(), "state"), "/etc/logrotate.d/spotworker")
	if old := logged(workerLog + ".1"); !strings.Contains(old, `"to":"process"`) || strings.Contains(logged(workerLog), `"to":"process"`) {
		t.Errorf("after a rotation the old log has %d bytes and the new one is\n%s\nwant everything in the old one", len(old), logged(workerLog))
	}
}

// wantStatistics demands the Python example's result for one of the logs.
func wantStatistics(t *testing.T, result string, lines int) {
	t.Helper()
	if want := fmt.Sprintf(`"requests":{"200":%d}`, lines); !strings.Contains(strings.ReplaceAll(result, " ", ""), want) {
		t.Errorf("result of the job = %s, want %s in it", result, want)
	}
}

// failed demands that a command failed with that exit code, and with these words in
// its last line on stderr.
func failed(t *testing.T, err error, code int, words ...string) {
	t.Helper()
	e, ok := errors.AsType[*commandError](err)
	if !ok || e.code != code {
		t.Fatalf("the extension's status = %v, want exit status %d", err, code)
	}
	lines := strings.Split(strings.TrimSpace(e.stderr), "\n")
	for _, word := range words {
		if last := lines[len(lines)-1]; !strings.Contains(last, word) {
			t.Errorf("last line on stderr = %q, want %q in it", last, word)
		}
	}
}
