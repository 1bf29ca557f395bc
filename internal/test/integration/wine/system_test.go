//go:build integration

package wine

import (
	"context"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// Where tools/wine.sh leaves its files, and where Debian has Wine.
const (
	prepared   = ".tools/wine"
	debianWine = "/usr/lib/wine"
)

// endTimeout is how long the processes of a Windows may take to end.
const endTimeout = 2 * time.Minute

// patientServices lets Wine wait 2 minutes rather than 10 s until a service reports: a busy machine
// starts some later.
const patientServices = "\n[System\\\\CurrentControlSet\\\\Control]\n\"ServicesPipeTimeout\"=\"120000\"\n"

// Windows is a Windows of one test's own.
type Windows struct {
	t      testing.TB
	wine   string // the program that runs Windows programs
	prefix string // folder with the registry and the drives
}

// New starts a Windows, which ends with the test, and all its processes with it. Where
// Wine is missing it skips the test, or fails it where CI=true.
func New(t testing.TB) *Windows {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		need.Missing(t, "Linux on amd64, where Wine runs our programs")
	}
	base := filepath.Join(repository.Root(t), prepared)
	if _, err := os.Stat(filepath.Join(base, "mark")); err != nil {
		need.Missing(t, "Wine in "+prepared)
	}
	w := &Windows{t: t, wine: command(t, "wine64"), prefix: filepath.Join(t.TempDir(), "windows")}
	server := command(t, "wineserver")
	w.install(filepath.Join(base, "prefix"))
	t.Cleanup(func() {
		w.server(server, "--kill")
		w.server(server, "--wait")
	})
	w.server(server, "--persistent")
	w.boot()
	return w
}

// boot starts Windows' own processes, which would keep a test's pipes open. Wine now and then ends before
// it starts a program.
func (w *Windows) boot() {
	w.t.Helper()
	var err error
	for range 3 {
		if err = w.Command("cmd", "/c", "exit").Run(); err == nil {
			return
		}
		w.t.Logf("Wine did not start cmd: %v", err)
	}
	w.check(err)
}

// command returns the path of a command of Wine, or ends the test as need.Missing
// does. Debian has them in a folder outside of PATH.
func command(t testing.TB, name string) string {
	t.Helper()
	if path := filepath.Join(debianWine, name); isFile(path) {
		return path
	}
	return need.Command(t, name)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// install makes the prefix: the prepared one, with C:\windows as a link to its.
func (w *Windows) install(base string) {
	w.t.Helper()
	drive := filepath.Join(w.prefix, "drive_c")
	for _, dir := range []string{"dosdevices", "drive_c", "drive_c/users/Public", "drive_c/Program Files", "drive_c/ProgramData"} {
		w.check(os.MkdirAll(filepath.Join(w.prefix, dir), 0o700))
	}
	for _, name := range []string{"system.reg", "user.reg", "userdef.reg", ".update-timestamp"} {
		data, err := os.ReadFile(filepath.Join(base, name))
		w.check(err)
		if name == "system.reg" {
			data = append(data, patientServices...)
		}
		w.check(os.WriteFile(filepath.Join(w.prefix, name), data, 0o600))
	}
	w.check(os.Symlink(filepath.Join(base, "drive_c", "windows"), filepath.Join(drive, "windows")))
	w.check(os.Symlink("../drive_c", filepath.Join(w.prefix, "dosdevices", "c:")))
	w.check(os.Symlink("/", filepath.Join(w.prefix, "dosdevices", "z:")))
	w.check(os.MkdirAll(w.Temp(), 0o700))
}

func (w *Windows) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("prepare Wine: %v", err)
	}
}

func (w *Windows) server(path, flag string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), endTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, flag)
	cmd.Env = w.environ()
	// No pipe: the server would keep it open.
	if err := cmd.Run(); err != nil && flag != "--kill" { // that fails if it has ended
		w.t.Errorf("wineserver %s: %v", flag, err)
	}
}

// environ is the part of this system's environment that a program sees: nothing that
// leads out of the test.
func (w *Windows) environ() []string {
	return []string{
		"WINEPREFIX=" + w.prefix, "WINEDEBUG=-all", "WINEDLLOVERRIDES=bcryptprimitives=n;mscoree,mshtml,winemenubuilder.exe=",
		"HOME=" + w.prefix, "PATH=/usr/bin:/bin", "LANG=C.UTF-8",
	}
}

// Command returns a command that runs a Windows program. A path of this system, or one
// of Windows, names it.
func (w *Windows) Command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(w.wine, append([]string{program}, args...)...)
	cmd.Env = w.environ()
	cmd.Dir = w.prefix
	return cmd
}

// Path returns the path that a file of this system has in Windows.
func (*Windows) Path(path string) string { return `Z:` + strings.ReplaceAll(path, "/", `\`) }

// DriveC returns the path that a file on drive C has in this system.
func (w *Windows) DriveC(path string) string {
	return filepath.Join(w.prefix, "drive_c", strings.ReplaceAll(path, `\`, "/"))
}

// Temp is the folder for temporary files, C:\users\NAME\Temp, as a path of this system.
func (w *Windows) Temp() string {
	w.t.Helper()
	u, err := user.Current() // Wine takes its name from the system
	w.check(err)
	return w.DriveC(`users\` + u.Username + `\Temp`)
}
