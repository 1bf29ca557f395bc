package scripts

import (
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/proof"
)

func TestDeployKeepsTheNumberOfVMs(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	a.write("group", "true", 0o600)
	a.write("capacity", "1\n", 0o600)
	said, calls, err := a.deploy("--yes")
	if err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	for _, call := range calls {
		if strings.Contains(call, "deployment group create") && strings.Contains(call, "stage=Workers") &&
			!strings.HasPrefix(call, "CAPACITY=1 ") {
			t.Errorf("a scale set of 1 VM was deployed by %q, want CAPACITY=1", call)
		}
	}
	if got := changing(calls); slices.Contains(got, "group create") {
		t.Errorf("the resource group was made again, which takes its tags: %q", got)
	}
}

// TestDeployThrottled: no answer is no number, so nothing is deployed for it.
func TestDeployThrottled(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	a.write("throttled", "", 0o600)
	said, calls, err := a.deploy("--yes")
	if err == nil || !strings.Contains(said, "cannot be read") || !strings.Contains(said, "TooManyRequests") {
		t.Errorf("deploy while calls are throttled = %v, want a failure that says why; it said:\n%s", err, said)
	}
	if got := strings.Join(changing(calls), ", "); strings.Contains(got, "Workers") {
		t.Errorf("VMs were deployed without knowing how many there are: %s", got)
	}
}

// TestDeployWhileScaling: a number that changes between the question and the
// answer stops the deployment.
func TestDeployWhileScaling(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	a.write("group", "true", 0o600)
	a.write("capacity", "1\n", 0o600)
	a.write("later", "4\n", 0o600)
	said, calls, err := a.deploy("--yes")
	if err == nil || !strings.Contains(said, "changed from 1 none to 4 none") {
		t.Errorf("deploy while the set grows = %v, want a stop; it said:\n%s", err, said)
	}
	if got := strings.Join(changing(calls), ", "); strings.Contains(got, "Workers") {
		t.Errorf("VMs were deployed with an old number: %s", got)
	}
}

// TestDeployWhileWorkersStart: VMs that autoscale adds while the workers are awaited stay,
// though one more deployment follows.
func TestDeployWhileWorkersStart(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	a.write("group", "true", 0o600)
	a.write("capacity", "1\n", 0o600)
	a.write("grown", "4\n", 0o600)
	said, calls, err := a.deploy("--yes")
	if err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	if last := calls[len(calls)-1]; !strings.HasPrefix(last, "CAPACITY=4 deployment group create") {
		t.Errorf("the last deployment is %q, want it with 4 VMs", last)
	}
}
