package policy

import (
	"fmt"
	"os"
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

var quotedMessage = regexp.MustCompile(`"([a-z][^"]*)"`)

// TestAlertsAskForLines looks for each line that an alert asks for in the code
// of the worker.
func TestAlertsAskForLines(t *testing.T) {
	code := workerSource(t)
	asked := 0
	for line := range strings.Lines(committed(t)["modules/alerts.bicep"].source) {
		if !strings.Contains(line, "query: '") || !strings.Contains(line, "msg") {
			continue
		}
		for _, match := range quotedMessage.FindAllStringSubmatch(line, -1) {
			asked++
			if !strings.Contains(code, `"`+match[1]+`"`) {
				t.Errorf("an alert asks for the line %q, which no worker writes", match[1])
			}
		}
	}
	const want = 6
	if asked != want {
		t.Errorf("alerts ask for %d lines, want %d", asked, want)
	}
}

// workerSource returns the code of internal/worker, without its tests.
func workerSource(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", "internal", "worker", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(source)
	}
	if all.Len() == 0 {
		t.Fatal("no code found in internal/worker")
	}
	return all.String()
}
