//go:build integration && linux

package vmapp

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// trouble is bad input, or a bad moment. Each begins on a clean machine, and the
// removal afterwards has to leave one.
type trouble struct {
	name string
	try  func(t *testing.T, m *machine)
}

var troubles = []trouble{
	{"another architecture", anotherArchitecture},
	{"no configuration", noConfiguration},
	{"configuration that is none", configurationThatIsNone},
	{"configuration that the worker refuses", refusedConfiguration},
	{"update that does not start", updateThatDoesNotStart},
	{"port taken", portTaken},
	{"no network, no identity", noNetwork},
	{"storage refuses", storageRefuses},
	{"disk full", diskFull},
	{"units that cannot be written", unitsThatCannotBeWritten},
	{"half-finished installation", halfFinished},
	{"damaged package", damagedPackage},
	{"older version", olderVersion},
}

func anotherArchitecture(t *testing.T, m *machine) {
	err := m.extension.want(t, published("1.0.0", filepath.Join(shared, foreignArchive), m.azure.settings("spot_2")))
	failed(t, err, 1, "this package is for", "publish the package for")
	m.remove(t)
}

func noConfiguration(t *testing.T, m *machine) {
	err := m.extension.want(t, published("1.0.0", archiveOf(oldVersion), ""))
	failed(t, err, 78, "no worker.env came with this version")
	m.remove(t)
}

func configurationThatIsNone(t *testing.T, m *machine) {
	err := m.extension.want(t, published("1.0.0", archiveOf(oldVersion), m.azure.settings("spot_2", "what is this?")))
	failed(t, err, 78, "line 7 of worker.env is not NAME=VALUE")
	err = m.extension.want(t, published("1.0.1", archiveOf(oldVersion), m.azure.settings("spot_2", "SPOTWORKER_INSTANCES=5")))
	failed(t, err, 78, "SPOTWORKER_INSTANCES in worker.env is 5: give 1 to 4")
	m.remove(t)
}

// A value that only the worker can judge: the unit stays failed, since a restart
// would mend nothing.
func refusedConfiguration(t *testing.T, m *machine) {
	err := m.extension.want(t, published("1.0.0", archiveOf(oldVersion), m.azure.settings("spot_2", "SPOTWORKER_CONCURRENCY=many")))
	failed(t, err, 78, "spotworker.service does not start (exit code 78)", "CONCURRENCY", "publish it as a new version")
	time.Sleep(6 * time.Second) // more than RestartSec
	if state, restarts := property(t, "spotworker.service", "ActiveState"), number(t, "spotworker.service", "NRestarts"); state != "failed" || restarts != 0 {
		t.Errorf("spotworker.service is %s after %d restarts, want failed and none", state, restarts)
	}
	// A version that did not run is none to go back to.
	err = m.extension.want(t, published("1.0.1", archiveOf(newVersion), m.azure.settings("spot_2", "SPOTWORKER_CONCURRENCY=more")))
	failed(t, err, 78, `"more"`, "publish it as a new version")
	m.deploy(t, published("1.0.2", archiveOf(oldVersion), m.azure.settings("spot_2")))
	wantRunning(t, oldVersion)
	m.remove(t)
}

func updateThatDoesNotStart(t *testing.T, m *machine) {
	good := m.azure.settings("spot_2")
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), good))
	err := m.extension.want(t, published("1.1.0", archiveOf(newVersion), m.azure.settings("spot_2", "SPOTWORKER_CONCURRENCY=many")))
	failed(t, err, 78, "CONCURRENCY", "was put back, and runs")
	wantRunning(t, oldVersion)
	if got := read(t, "/etc/spotworker/worker.env"); got != good {
		t.Errorf("worker.env after the failed update is\n%s\nwant that of the version before", got)
	}
	m.remove(t)
}

// The unit goes on trying, and succeeds once the port is free.
func portTaken(t *testing.T, m *machine) {
	listener, err := net.Listen("tcp", "127.0.0.1:8810")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err = m.extension.want(t, published("1.0.0", archiveOf(oldVersion), m.azure.settings("spot_2")))
	failed(t, err, 1, "spotworker.service does not start (exit code 1)", "the port is taken", "systemd goes on trying")
	_ = listener.Close()
	await(t, "start after the port was freed", func() bool { return property(t, "spotworker.service", "ActiveState") == "active" })
	m.remove(t)
}

// In this network there is neither a storage account nor a metadata service, as
// on a VM whose network is not there yet. The worker waits for them, and says so.
func noNetwork(t *testing.T, m *machine) {
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), strings.Join([]string{
		"SPOTWORKER_ACCOUNT=nowhere", "AZURE_CLIENT_ID=00000000-0000-0000-0000-000000000000",
		"SPOTWORKER_METADATA_ENDPOINT=" + m.azure.endpoints["spot_2"],
	}, "\n")))
	wantRunning(t, oldVersion)
	awaitLogged(t, workerLog, 0, `"level":"ERROR"`, "storage is not ready")
	wantHealthy(t, 8810)
	m.remove(t)
}

func storageRefuses(t *testing.T, m *machine) {
	settings := m.azure.settings("spot_2")
	wrong := replaceOnce(t, settings, "AccountKey=", "AccountKey=AAAA")
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), wrong))
	wantRunning(t, oldVersion)
	line := awaitLogged(t, workerLog, 0, `"level":"ERROR"`, "storage is not ready")
	if strings.Contains(line, "AccountKey") {
		t.Errorf("the log has a key in it: %s", line)
	}
	wantHealthy(t, 8810)
	m.remove(t)
}

// A full disk ends an installation before anything is changed. An update leaves
// the worker of the version before at work.
func diskFull(t *testing.T, m *machine) {
	if err := os.MkdirAll("/opt", 0o755); err != nil {
		t.Fatal(err)
	}
	command(t, "mount", "-t", "tmpfs", "-o", "size=30m", "tmpfs", "/opt")
	defer func() { command(t, "umount", "/opt") }()
	settings := m.azure.settings("spot_2")
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), settings))
	err := m.extension.want(t, published("1.1.0", archiveOf(newVersion), settings))
	failed(t, err, 1, "cannot unpack into /opt/spotworker", "nothing was changed")
	wantRunning(t, oldVersion)
	if found, _ := filepath.Glob("/opt/spotworker/.unfinished.*"); len(found) > 0 {
		t.Errorf("%q are left of the update that failed", found)
	}
	m.remove(t)
}

// An update that cannot be switched to leaves worker and configuration as they
// were.
func unitsThatCannotBeWritten(t *testing.T, m *machine) {
	const units = "/etc/systemd/system"
	good := m.azure.settings("spot_2")
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), good))
	pid := number(t, "spotworker.service", "MainPID")
	command(t, "mount", "--bind", "-o", "ro", units, units)
	err := m.extension.want(t, published("1.1.0", archiveOf(newVersion), m.azure.settings("spot_2", "SPOTWORKER_CONCURRENCY=1")))
	command(t, "umount", units)
	failed(t, err, 1, "cannot switch to "+newVersion+"-", "no worker was stopped")
	if got := number(t, "spotworker.service", "MainPID"); got != pid {
		t.Errorf("the worker is process %d, want %d as before", got, pid)
	}
	if got := read(t, "/etc/spotworker/worker.env"); got != good {
		t.Errorf("worker.env after the failed update is\n%s\nwant that of the version before", got)
	}
	m.deploy(t, published("1.1.1", archiveOf(newVersion), good))
	wantRunning(t, newVersion)
	m.remove(t)
}

// What an installation that was cut off left is not taken for a release.
func halfFinished(t *testing.T, m *machine) {
	put(t, "/opt/spotworker/.unfinished.1/bin/worker", "half of a wor")
	put(t, "/etc/spotworker/worker.env.new", "AZURE_STORAGE_CONN")
	if err := os.Symlink("nowhere", "/opt/spotworker/current.new"); err != nil {
		t.Fatal(err)
	}
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), m.azure.settings("spot_2")))
	wantRunning(t, oldVersion)
	if _, err := os.Stat("/opt/spotworker/.unfinished.1"); err == nil {
		t.Error("/opt/spotworker/.unfinished.1 is still there")
	}

	// An update that is cut off between the switch and the restart.
	cutOff := published("1.1.0", archiveOf(newVersion), m.azure.settings("spot_2"))
	cutOff.update = "tar -xzf spotworker.tar.gz && . ./lib.sh && . ./check.sh && . ./deploy.sh && check_configuration && place && configure && switch_to $RELEASE"
	m.deploy(t, cutOff)
	m.deploy(t, published("1.1.1", archiveOf(newVersion), m.azure.settings("spot_2")))
	wantRunning(t, newVersion)

	pid := number(t, "spotworker.service", "MainPID")
	m.extension = newExtension() // one that has lost its memory
	m.deploy(t, published("1.1.1", archiveOf(newVersion), m.azure.settings("spot_2")))
	if got := number(t, "spotworker.service", "MainPID"); got != pid {
		t.Errorf("the same version again made process %d of %d, want the worker left alone", got, pid)
	}
	m.remove(t)
}

func damagedPackage(t *testing.T, m *machine) {
	settings := m.azure.settings("spot_2")
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), settings))
	whole := read(t, archiveOf(newVersion))
	cut := filepath.Join(t.TempDir(), "cut.tar.gz")
	put(t, cut, whole[:len(whole)/2])
	if err := m.extension.want(t, published("1.1.0", cut, settings)); err == nil {
		t.Error("half a package was installed")
	}
	wantRunning(t, oldVersion)
	m.remove(t) // with the scripts of the version that runs
}

// Back to an older version; and on from there without an update command, which
// means removal and installation.
func olderVersion(t *testing.T, m *machine) {
	settings := m.azure.settings("spot_2")
	m.deploy(t, published("1.1.0", archiveOf(newVersion), settings))
	wantRunning(t, newVersion)
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), settings))
	wantRunning(t, oldVersion)
	without := published("1.2.0", archiveOf(newVersion), settings)
	without.update = ""
	m.deploy(t, without)
	wantRunning(t, newVersion)
	m.remove(t)
}
