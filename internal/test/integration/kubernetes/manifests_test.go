//go:build integration

package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// unavailable matches what go build prints if it cannot download modules.
var unavailable = regexp.MustCompile(`dial tcp|no such host|connection refused|i/o timeout|module lookup disabled|` +
	`Forbidden|Bad Gateway|Unavailable`)

// checker builds the module infra/kubernetes/check.
func checker(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "check")
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=readonly", "-o", binary, ".")
	build.Dir = filepath.Join(repository.Root(t), "infra", "kubernetes", "check")
	build.Env = append(os.Environ(), "GOFLAGS=")
	out, err := build.CombinedOutput()
	switch {
	case err == nil:
		return binary
	case unavailable.Match(out):
		need.Missing(t, "the modules of Kubernetes and KEDA")
	default:
		t.Fatalf("build infra/kubernetes/check: %v\n%s", err, out)
	}
	return ""
}

// check runs the checker on a folder and returns its output.
func check(t *testing.T, binary, folder string) (string, error) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary, folder).CombinedOutput()
	return string(out), err
}

// TestManifests renders the committed manifests, with kustomize and with the chart, decodes them
// strictly and holds them to the rules. Then it breaks them: each mistake must be found, and the
// chart must have or miss it too.
func TestManifests(t *testing.T) {
	binary, folder := checker(t), filepath.Join(repository.Root(t), "infra", "kubernetes")
	if out, err := check(t, binary, folder); err != nil {
		t.Fatalf("check infra/kubernetes: %v\n%s", err, out)
	}
	t.Run("values of the chart", func(t *testing.T) { testChart(t, binary, folder) })
	for _, b := range broken {
		t.Run(b.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(folder)); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(dir, filepath.FromSlash(b.file))
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(content), b.old) {
				t.Fatalf("%s does not have %q", b.file, b.old)
			}
			if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(content), b.old, b.wrong)), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := check(t, binary, dir)
			if err == nil || !strings.Contains(out, b.want) {
				t.Errorf("check = %v, want a failure with %q:\n%s", err, b.want, out)
			}
			if chart := strings.Contains(out, "\nchart, ") || strings.HasPrefix(out, "chart, "); !chart {
				t.Errorf("check finds no mistake in the chart:\n%s", out)
			}
		})
	}
}

const (
	deployment   = "deployment/deployment.yaml"
	scaledJob    = "scaledjob/scaledjob.yaml"
	scaledObject = "scaledobject/scaledobject.yaml"
	settings     = "base/settings.yaml"
	shared       = "shared-nodes/deployment.yaml"
)

// broken are mistakes, each one edit of one file.
var broken = []struct{ name, file, old, wrong, want string }{
	{"a misspelt field of Kubernetes", deployment, "readOnlyRootFilesystem", "readOnlyRootFileSystem", "unknown field"},
	{"a misspelt field of KEDA", scaledObject, "cooldownPeriod", "coolDownPeriod", "unknown field"},
	{"an unknown kind", scaledJob, "kind: ScaledJob", "kind: ScaledJobs", "unknown type"},
	{"a long drain", settings, "DRAIN_BUDGET: 10s", "DRAIN_BUDGET: 25s", "want the drain budget"},
	{"no toleration", deployment, "effect: NoSchedule", "effect: NoExecute", "does not tolerate Spot"},
	{"a budget of none", "deployment/poddisruptionbudget.yaml", "maxUnavailable: 50%", "maxUnavailable: 0", "no node can be drained"},
	{"workers that start again", scaledJob, "backoffLimit: 0", "backoffLimit: 6", "beside KEDA"},
	{"acknowledged for others", settings, "ACKNOWLEDGE: never", "ACKNOWLEDGE: self", "all pods of the node"},
	{"two workers on a node", deployment, "topologyKey: kubernetes.io/hostname", "topologyKey: topology.kubernetes.io/zone", "share a node"},
	{"a patch of nothing", shared, "/spec/template/spec/volumes/-", "/spec/template/volumes/-", "kustomize"},
	{"root", deployment, "runAsUser: 65532", "runAsUser: 0", "as user 65532"},
	{"no identity", deployment, "azure.workload.identity/use", "azure.workload.identity/used", "no workload identity"},
	{"visible messages alone", scaledObject, "queueLengthStrategy: all", "queueLengthStrategy: visibleonly", "trigger azure-queue"},
	{"another Deployment", scaledObject, "TargetRef:\n    name: spotworker\n", "TargetRef:\n    name: worker\n", "scales no Deployment"},
	{"the cache fills the disk", settings, `INPUT_CACHE: "5"`, `INPUT_CACHE: "9"`, "half of the scratch"},
	{"the image's default name", "scaledjob/kustomization.yaml", "name: spotworker\n    newName", "name: worker\n    newName", "image is"},
}
