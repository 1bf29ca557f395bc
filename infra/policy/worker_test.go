package policy

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/monitor"
)

var setting = regexp.MustCompile(`\bSPOTWORKER_[A-Z_]+\b`)

// TestSettingsExist compares what the deployment writes into the worker's
// configuration with the flags that the worker has.
func TestSettingsExist(t *testing.T) {
	help := exec.CommandContext(t.Context(), "go", "run", "./cmd/worker", "--help")
	help.Dir = filepath.Join("..", "..")
	out, err := help.CombinedOutput()
	if err != nil {
		t.Fatalf("worker --help: %v\n%s", err, out)
	}
	known := map[string]bool{}
	for _, name := range setting.FindAllString(string(out), -1) {
		known[name] = true
	}
	for path, f := range committed(t) {
		for _, name := range setting.FindAllString(f.source, -1) {
			if !known[name] {
				t.Errorf("infra/bicep/%s sets %s, which is none of the worker's", path, name)
			}
		}
	}
}

// TestHealthPort: the health extension asks where a worker answers by itself.
func TestHealthPort(t *testing.T) {
	want := fmt.Sprintf("param healthPort int = %d\n", monitor.BasePort)
	for _, path := range []string{"main.bicep", "fleet.bicep"} {
		if !strings.Contains(committed(t)[path].source, want) {
			t.Errorf("%s does not have %q, the port of a VM's first worker", path, want)
		}
	}
}
