package check

import (
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
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

// withValues returns the objects of the chart with a file of values, and their problems.
func withValues(values string) (objects string, problems []string) {
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		return "", []string{err.Error()}
	}
	rendered, err := template(manifests, given)
	if err != nil {
		return "", []string{err.Error()}
	}
	for _, text := range rendered {
		objects += "---" + string(text)
	}
	s, problems := readChart(manifests, given, nil)
	if image, ok := given["image"].(string); ok {
		s.image = image
	}
	if len(problems) == 0 {
		problems = s.check()
	}
	return objects, problems
}

// TestValues: each value of the chart has its effect, and the objects keep the rules. Wrong values
// are refused by the schema.
func TestValues(t *testing.T) {
	asJobs := strings.Replace(ownValues, "scaledobject", "scaledjob", 1) + "sharedNodes: true\n"
	for name, right := range map[string]struct {
		values string
		want   []string
	}{
		"as a Deployment":    {ownValues, ownObjects},
		"as Kubernetes jobs": {asJobs, append(ownObjects, "kind: ScaledJob", "path: /run/spotworker-workers")},
		"on regular nodes":   {onRegular, regularObjects},
	} {
		objects, problems := withValues(right.values)
		for _, word := range right.want {
			if !strings.Contains(objects, word) {
				t.Errorf("%s: no %q in\n%s", name, word, objects)
			}
		}
		if len(problems) > 0 {
			t.Errorf("%s: %q", name, problems)
		}
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
		if _, problems := withValues(row.values); !strings.Contains(strings.Join(problems, "\n"), row.want) {
			t.Errorf("%s: problems = %q, want one with %q", name, problems, row.want)
		}
	}
}
