package up

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/program"
)

// TestListenAddresses: each worker of lab up has a port of its own.
func TestListenAddresses(t *testing.T) {
	for vm, want := range map[string]string{
		lab.VMName(1): "127.0.0.1:8811", lab.VMName(12): "127.0.0.1:8822", "another": "127.0.0.1:0",
	} {
		if got := listenAddress(vm); got != want {
			t.Errorf("address for %s = %s, want %s", vm, got, want)
		}
	}
}

// TestUnchangedKind: a worker takes the guide's kind of programs that CRIU freezes.
func TestUnchangedKind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kinds.json")
	if err := os.WriteFile(file, []byte(unchangedKind), 0o600); err != nil {
		t.Fatal(err)
	}
	if kinds, err := program.ReadKinds(file); err != nil || len(kinds) != 1 || !kinds[0].Snapshot {
		t.Errorf("ReadKinds of the guide's kind = %+v, %v", kinds, err)
	}
}

// On Windows the commands are for cmd.
func TestGuideForWindows(t *testing.T) {
	g := guide{
		account: "A=b;C=d&e", windows: true, port: " --metadata-port 7",
		base: func(string) string { return "http://127.0.0.1:1" }, listen: listenAddress,
	}
	var out strings.Builder
	g.write(&out, []string{lab.VMName(1)})
	for _, want := range []string{
		"    set \"AZURE_STORAGE_CONNECTION_STRING=A=b;C=d&e\"\n", `    bin\worker --kinds-file `,
		`    bin\producer --wait put `, `    bin\lab evict --metadata-port 7 `, `    bin\lab withdraw `,
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("guide has no %q:\n%s", want, out.String())
		}
	}
	for _, not := range []string{"export", "unset", "bin/", "make build"} {
		if strings.Contains(out.String(), not) {
			t.Errorf("guide has %q, which is for other shells:\n%s", not, out.String())
		}
	}
}
