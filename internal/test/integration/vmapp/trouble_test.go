//go:build integration && linux

package vmapp

import (
	"crypto/sha256"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// trouble is a fault: bad input, or a cut at a bad moment. Each starts on a clean
// machine, and the removal afterwards has to leave one.
type trouble struct {
	name string
	try  func(t *testing.T, m *machine)
}

var troubles = []trouble{
	{"another architecture", anotherArchitecture},
	{"no configuration", noConfiguration},
	{"configuration that is none", configurationThatIsNone},
	{"configuration that was cut off", configurationCutOff},
	{"package that never came", packageThatNeverCame},
	{"reboot in the middle", rebootInTheMiddle},
	{"folder of the logs gone", logFolderGone},
	{"removal during a rotation", removalDuringRotation},
	{"cloud-init", cloudInit},
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

// The extension runs the command although the configuration could not be fetched,
// or only its beginning.
func configurationCutOff(t *testing.T, m *machine) {
	good := m.azure.settings("spot_2")
	cut := published("1.0.0", archiveOf(oldVersion), good[:len(good)/2])
	failed(t, m.extension.want(t, cut), 78, "worker.env is cut off", lastLine)
	if err := m.extension.want(t, cut); err != nil {
		t.Errorf("the extension says of a version that failed before: %v, want success, as the real one does", err)
	}
	empty := published("1.0.1", archiveOf(oldVersion), good)
	empty.configurationLost = true
	failed(t, m.extension.want(t, empty), 78, "worker.env arrived empty")

	m.deploy(t, published("1.0.2", archiveOf(oldVersion), good))
	cut.version = "1.0.3"
	failed(t, m.extension.want(t, cut), 78, "worker.env is cut off")
	wantRunning(t, oldVersion)
	if got := read(t, "/etc/spotworker/worker.env"); got != good {
		t.Errorf("worker.env after half of one arrived is\n%s\nwant the one before", got)
	}
	m.remove(t)
}

// After a minute and more without the package the extension runs the command with
// an empty file.
func packageThatNeverCame(t *testing.T, m *machine) {
	settings := m.azure.settings("spot_2")
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), settings))
	lost := published("1.1.0", archiveOf(newVersion), settings)
	lost.packageLost = true
	if err := m.extension.want(t, lost); err == nil {
		t.Error("an empty package was installed")
	}
	wantRunning(t, oldVersion)
	m.remove(t)
}

// A reboot or a power cut ends the script where it is. The extension takes the
// version for done; the next boot runs the installation again.
func rebootInTheMiddle(t *testing.T, m *machine) {
	for i, step := range []string{"place", "configure", "switch_to \"$RELEASE\"", "tidy"} {
		version := fmt.Sprintf("1.0.%d", i)
		cut := published(version, archiveOf(oldVersion), m.azure.settings("spot_2"))
		cut.install = "tar -xzf spotworker.tar.gz && sed -i -e 's/^  check_package$/  :/' -e 's/^  " + step +
			"/  kill -KILL $$; &/' deploy.sh && sh ./install.sh"
		if err := m.extension.want(t, cut); err == nil {
			t.Fatalf("the installation was not cut off before %s", step)
		}
		if err := m.extension.want(t, cut); err != nil {
			t.Errorf("the extension says of an installation that was cut off: %v, want nothing to do", err)
		}
		if got := command(t, "systemctl", "is-enabled", "spotworker-install.service"); got != "enabled" {
			t.Fatalf("spotworker-install.service is %s after a reboot before %s, want enabled", got, step)
		}
		command(t, "systemctl", "start", "spotworker-install.service") // as a boot does
		wantRunning(t, oldVersion)
		m.remove(t)
	}
}

// logFolderGone: the folder of the logs is made again at each start, also after starts that
// could not make it.
func logFolderGone(t *testing.T, m *machine) {
	const folder = "/var/log/spotworker"
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), m.azure.settings("spot_2")))
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	put(t, folder, "a file in its place\n")
	pid := number(t, "spotworker.service", "MainPID")
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "a start that fails without a folder for the log", func() bool {
		return property(t, "spotworker-logs.service", "Result") == "exit-code" && property(t, "spotworker.service", "ActiveState") != "active"
	})
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	await(t, "restart without a folder for the log", func() bool { return runsAfter(t, pid) })
	awaitLogged(t, workerLog, 0, `"to":"process"`)
	m.remove(t)
}

// removalDuringRotation: a rotation that the timer has just started ends with the removal, and
// writes nothing afterwards.
func removalDuringRotation(t *testing.T, m *machine) {
	const unit, slow = "spotworker-logrotate.service", "/run/systemd/system/spotworker-logrotate.service.d/slow.conf"
	put(t, slow, "[Service]\nExecStartPre=/bin/sleep 30\n")
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), m.azure.settings("spot_2")))
	command(t, "systemctl", "start", "--no-block", unit)
	await(t, "a rotation under way", func() bool { return property(t, unit, "ActiveState") == "activating" })
	if err := m.extension.want(t); err != nil {
		t.Fatal(err)
	}
	await(t, "the end of the rotation", func() bool { return property(t, unit, "ActiveState") != "activating" })
	wantNothingLeft(t, m.before)
	if err := os.RemoveAll(filepath.Dir(slow)); err != nil {
		t.Fatal(err)
	}
}

// cloudInit runs the script of cloud-init.yaml, with a curl that takes the package
// from a folder.
func cloudInit(t *testing.T, m *machine) {
	const curl = "/usr/local/bin/curl"
	put(t, curl, "#!/bin/sh\nwhile [ $# -gt 1 ]; do [ \"$1\" = --output ] && out=$2; shift; done\ncp \"$1\" \"$out\"\n")
	if err := os.Chmod(curl, 0o755); err != nil {
		t.Fatal(err)
	}
	script := cloudInitScript(t)
	for name, value := range map[string]string{
		"PACKAGE_URL": archiveOf(oldVersion), "PACKAGE_SHA256": fmt.Sprintf("%x", sha256.Sum256([]byte(read(t, archiveOf(oldVersion))))),
	} {
		script = regexp.MustCompile(`(?m)^`+name+`=.*$`).ReplaceAllLiteralString(script, name+"="+value)
	}
	path := filepath.Join(t.TempDir(), "install")
	put(t, path, script)
	for range 2 {
		command(t, "sh", path)
		wantRunning(t, oldVersion)
	}
	command(t, "sh", "-c", "cd /opt/spotworker/current && sh ./remove.sh")
	for _, path := range []string{"/var/lib/spotworker-package", curl} {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	wantNothingLeft(t, m.before)
}

// A value that only the worker can check: the unit stays failed, since a restart
// would fix nothing.
func refusedConfiguration(t *testing.T, m *machine) {
	err := m.extension.want(t, published("1.0.0", archiveOf(oldVersion), m.azure.settings("spot_2", "SPOTWORKER_CONCURRENCY=many")))
	failed(t, err, 78, "spotworker.service does not start (exit code 78)", "CONCURRENCY", "publish it as a new version")
	time.Sleep(6 * time.Second) // more than RestartSec
	if state, restarts := property(t, "spotworker.service", "ActiveState"), number(t, "spotworker.service", "NRestarts"); state != "failed" ||
		restarts != 0 {
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
	failed(t, err, 78, "CONCURRENCY", "was restored, and runs")
	wantRunning(t, oldVersion)
	if got := read(t, "/etc/spotworker/worker.env"); got != good {
		t.Errorf("worker.env after the failed update is\n%s\nwant that of the version before", got)
	}
	m.remove(t)
}

// The unit keeps retrying, and succeeds once the port is free.
func portTaken(t *testing.T, m *machine) {
	listener, err := net.Listen("tcp", "127.0.0.1:8810")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	err = m.extension.want(t, published("1.0.0", archiveOf(oldVersion), m.azure.settings("spot_2")))
	failed(t, err, 1, "spotworker.service does not start (exit code 1)", "the port is taken", "systemd keeps retrying")
	_ = listener.Close()
	await(t, "start after the port was freed", func() bool { return property(t, "spotworker.service", "ActiveState") == "active" })
	m.remove(t)
}

// In this network there is neither a storage account nor a metadata service, as
// on a VM whose network is not there yet. The worker waits for them, and logs it.
func noNetwork(t *testing.T, m *machine) {
	m.deploy(t, published("1.0.0", archiveOf(oldVersion), strings.Join([]string{
		"SPOTWORKER_ACCOUNT=nowhere", "AZURE_CLIENT_ID=00000000-0000-0000-0000-000000000000",
		"SPOTWORKER_METADATA_ENDPOINT=" + m.azure.endpoints["spot_2"], lastLine,
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
// the worker of the version before running.
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

// The remains of an interrupted installation are not taken for a release.
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
	cutOff.update = "tar -xzf spotworker.tar.gz && . ./lib.sh && . ./check.sh && . ./deploy.sh && check_configuration && place && " +
		"configure && switch_to $RELEASE"
	m.deploy(t, cutOff)
	m.deploy(t, published("1.1.1", archiveOf(newVersion), m.azure.settings("spot_2")))
	wantRunning(t, newVersion)

	pid := number(t, "spotworker.service", "MainPID")
	m.extension = newExtension() // an agent without memory
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
