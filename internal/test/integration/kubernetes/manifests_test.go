//go:build integration

package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// unavailable matches what the go command prints if it cannot download modules.
var unavailable = regexp.MustCompile(`dial tcp|no such host|connection refused|i/o timeout|module lookup disabled|` +
	`Forbidden|Bad Gateway|Unavailable`)

// TestManifests runs the tests of the module infra/kubernetes/check.
func TestManifests(t *testing.T) {
	tests := exec.CommandContext(t.Context(), "go", "test", "-mod=readonly", "-vet=off", "-count=1", ".")
	tests.Dir = filepath.Join(repository.Root(t), "infra", "kubernetes", "check")
	tests.Env = append(os.Environ(), "GOFLAGS=")
	out, err := tests.CombinedOutput()
	switch {
	case err == nil:
	case unavailable.Match(out):
		need.Missing(t, "the modules of Kubernetes and KEDA")
	default:
		t.Errorf("go test in infra/kubernetes/check: %v\n%s", err, out)
	}
}
