//go:build integration && linux

package azurecli

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// newerScript runs the Azure CLI of a newer Debian in the present folder. The variable is
// the Debian's folder.
const newerScript = "#!/bin/sh\n" + `exec chroot %s /bin/sh -c 'cd "$0" && exec /usr/bin/az "$@"' "$PWD" "$@"` + "\n"

// newer returns the folder that tools/debian-root.sh makes for the Azure CLI.
func newer(t *testing.T) string {
	t.Helper()
	root := filepath.Join(repository.Root(t), ".tools", "debian-azure-cli")
	if _, err := os.Stat(root + ".mark"); err != nil {
		need.Missing(t, "Debian with a newer Azure CLI in .tools")
	}
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// prepareNewer puts the newer Azure CLI before all others in PATH.
func prepareNewer(t *testing.T) []string {
	if os.Getuid() != 0 {
		need.Missing(t, "root, which chroot takes")
	}
	folder := t.TempDir()
	script := fmt.Sprintf(newerScript, "'"+newer(t)+"'")
	if err := os.WriteFile(filepath.Join(folder, "az"), []byte(script), 0o700); err != nil { //nolint:gosec // an executable
		t.Fatal(err)
	}
	return append(programs(t), "PATH="+folder+":"+os.Getenv("PATH"))
}

// mountNewer shows the newer Debian this machine's names, devices, temporary files and
// repository. Only this test's mount namespace has the mounts.
func mountNewer(t *testing.T) {
	t.Helper()
	root := newer(t)
	for _, folder := range []string{"/proc", "/dev", os.TempDir(), repository.Root(t)} {
		if err := os.MkdirAll(root+folder, 0o755); err != nil {
			t.Fatal(err)
		}
		mount(t, folder, root)
	}
	mount(t, "/etc/hosts", root)
}

func mount(t *testing.T, path, root string) {
	t.Helper()
	if err := unix.Mount(path, root+path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatalf("mount %s in %s: %v", path, root, err)
	}
}
