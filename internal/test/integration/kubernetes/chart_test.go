//go:build integration

package kubernetes

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// ownValues are values of a user, and what they change.
const ownValues = `
scaling: scaledobject
image: mine.example:5000/worker@sha256:0123
clientId: 11111111-0000-0000-0000-000000000001
kedaClientId: 11111111-0000-0000-0000-000000000002
maxReplicas: 7
settings: {SPOTWORKER_ACCOUNT: mine, SPOTWORKER_QUEUE: mine-jobs, SPOTWORKER_CONCURRENCY: "8", SPOTWORKER_MOVE_AFTER: "3"}
resources: {limits: {memory: 5Gi}}
podAnnotations: {example.com/team: jobs}
pod:
  imagePullSecrets: [{name: mine-pull}]
  tolerations: [{key: mine, operator: Exists}]
  nodeSelector: {mine: here}
  priorityClassName: mine-class
  volumes: [{name: mine-data, emptyDir: {}}]
container:
  volumeMounts: [{name: mine-data, mountPath: /mine}]
`

var ownObjects = []string{
	"client-id: 11111111-0000-0000-0000-000000000001", "identityId: 11111111-0000-0000-0000-000000000002", "maxReplicaCount: 7",
	"image: mine.example:5000/worker@sha256:0123", `SPOTWORKER_MOVE_AFTER: "3"`, "accountName: mine", "queueName: mine-jobs",
	`queueLength: "8"`, "memory: 5Gi", "memory: 2Gi", "ephemeral-storage: 11Gi",
	"example.com/team: jobs", "name: mine-pull", "key: mine", "mine: here", "priorityClassName: mine-class",
	"name: mine-data\n", "mountPath: /mine",
	"key: kubernetes.azure.com/priority", "mountPath: /tmp",
}

// The same on nodes of regular priority.
const onRegular = ownValues + "nodes: regular\n"

var regularObjects = []string{"queueName: mine-jobs-ondemand", "SPOTWORKER_TAKE_FROM: on-demand", "operator: NotIn"}

// withValues runs the checker on the chart in a folder with values, and returns the objects.
func withValues(t *testing.T, binary, folder, values string) (string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), binary, folder, file).CombinedOutput()
	return string(out), err
}

// missing returns the words that a text does not have.
func missing(text string, words []string) (all []string) {
	for _, word := range words {
		if !strings.Contains(text, word) {
			all = append(all, word)
		}
	}
	return all
}

// testChart: each value has its effect, and the objects keep the rules. Wrong values are refused by
// the schema.
func testChart(t *testing.T, binary, folder string) {
	out, err := withValues(t, binary, folder, ownValues)
	if lost := missing(out, ownObjects); err != nil || len(lost) > 0 {
		t.Errorf("check = %v, missing %q:\n%s", err, lost, out)
	}
	asJobs := strings.Replace(ownValues, "scaledobject", "scaledjob", 1) + "sharedNodes: true\n"
	out, err = withValues(t, binary, folder, asJobs)
	if lost := missing(out, append(ownObjects, "kind: ScaledJob", "path: /run/spotworker-workers")); err != nil || len(lost) > 0 {
		t.Errorf("as Kubernetes jobs: check = %v, missing %q:\n%s", err, lost, out)
	}
	out, err = withValues(t, binary, folder, onRegular)
	if lost := missing(out, regularObjects); err != nil || len(lost) > 0 {
		t.Errorf("on regular nodes: check = %v, missing %q:\n%s", err, lost, out)
	}
	for name, row := range map[string]struct{ values, want string }{
		"a misspelt value":     {"scalling: deployment", "scalling"},
		"an unknown variant":   {"scaling: daemonset", "/scaling"},
		"no tag":               {"image: registry.example/spotworker", "/image"},
		"no client id":         {"clientId: spotworker", "/clientId"},
		"no identity of KEDA":  {`kedaClientId: ""`, "/kedaClientId"},
		"no workers":           {"maxReplicas: 0", "/maxReplicas"},
		"a number as a text":   {"settings: {SPOTWORKER_CONCURRENCY: 8}", "/settings/SPOTWORKER_CONCURRENCY"},
		"no setting":           {"settings: {concurrency: x}", "invalid propertyName"},
		"an unknown resource":  {"resources: {request: {cpu: x}}", "/resources"},
		"shared by a word":     {"sharedNodes: some", "/sharedNodes"},
		"jobs on regular":      {"{nodes: regular, scaling: scaledjob}", "/scaling"},
		"another container":    {"container: {image: x}", "/container"},
		"a setting that fails": {`settings: {SPOTWORKER_DRAIN_BUDGET: 25s}`, "want the drain budget"},
	} {
		if out, err := withValues(t, binary, folder, row.values); err == nil || !strings.Contains(out, row.want) {
			t.Errorf("%s: check = %v, want a failure with %q:\n%s", name, err, row.want, out)
		}
	}
}
