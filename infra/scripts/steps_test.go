package scripts

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/proof"
)

var everyStep = []string{
	"group create", "deployment group create Foundation",
	"storage blob upload", "storage blob upload",
	"deployment group create Application",
	"deployment group create Workers true", "deployment group create Workers false",
}

func TestDeploySteps(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	said, calls, err := a.deploy("--yes")
	if err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	if got := changing(calls); !slices.Equal(got, everyStep) {
		t.Errorf("first run made %q, want %q", got, everyStep)
	}
	if strings.Contains(said, "provisioningState") || strings.Contains(said, "lastModified") {
		t.Errorf("a person reads Azure's answers:\n%s", said)
	}
	shown := slices.IndexFunc(calls, func(c string) bool { return strings.Contains(c, "deployment group what-if") })
	made := slices.IndexFunc(calls, func(c string) bool { return strings.Contains(c, "deployment group create") })
	if shown < 0 || shown > made {
		t.Errorf("the first deployment was made before it was shown: %q", calls)
	}

	said, calls, err = a.deploy("--yes")
	if err != nil {
		t.Fatalf("deploy again: %v\n%s", err, said)
	}
	if got := changing(calls); slices.Contains(got, "storage blob upload") {
		t.Errorf("second run uploaded again what was there: %q", got)
	}
}

// TestDeployAsksTheWorkers: Azure's success is not believed.
func TestDeployAsksTheWorkers(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	for _, c := range []struct{ name, file, content, want string }{
		{"silent", "silent", "", "0 of 1"},
		{"another version", "program", "1.2.2", "0 of 1"},
		{"of another region", "heartbeatsof", "spotworker-spot_ffffffff", "0 of 1"},
		{"not ready", "state", "start", "0 of 1"},
		{"too few", "capacity", "2", "1 of 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.write(c.file, c.content, 0o600)
			said, calls, err := a.deploy("--yes")
			if err == nil || !strings.Contains(said, c.want+" workers run version 1.2.3") {
				t.Errorf("deploy = %v, want a failure; it said:\n%s", err, said)
			}
			if n := strings.Count(said, " so far\n"); n > 1 {
				t.Errorf("it said %d times how many workers there are, want it when their number changes:\n%s", n, said)
			}
			if vm := `{"provisioning":"Succeeded","vm":"spotworker-ondemand_00000000"}`; !strings.Contains(said, vm) {
				t.Errorf("it does not list the VMs, such as %s:\n%s", vm, said)
			}
			if got := changing(calls); slices.Contains(got, "deployment group create Workers false") {
				t.Errorf("it continued: %q", got)
			}
		})
	}
}

// TestDeploySeesAllWorkers: it finds the workers behind thousands that are gone.
func TestDeploySeesAllWorkers(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	a.write("gone", "5000", 0o600)
	if said, _, err := a.deploy("--yes"); err != nil || !strings.Contains(said, "1 worker(s) of version 1.2.3 take jobs") {
		t.Errorf("deploy = %v, want a worker found; it said:\n%.2000s", err, said)
	}
}

// TestDeployTheSameVersion: a version that the scale set has is deployed once, for life.
func TestDeployTheSameVersion(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	a.write("deployed", "/subscriptions/1234/galleries/g/applications/a/versions/1.0.0\n", 0o600)
	said, calls, err := a.deploy("--yes")
	if err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	got := changing(calls)
	if slices.Contains(got, "deployment group create Workers true") || !slices.Contains(got, "deployment group create Workers false") {
		t.Errorf("it made %q, want VMs that fail no deployment", got)
	}
}

// TestDeployOfAFleet: a fleet is made once with all its values and the target of the one before,
// which is deleted when workers run.
func TestDeployOfAFleet(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	a.write("own.bicepparam", "using 'fleet.bicep'\n"+twoSizes+"param spotCapacity = 3\nparam regularCapacity = 2\n", 0o600)
	a.sizes(usualSize(first), usualSize(second))
	a.write("providers", a.read("providers")+"\nMicrosoft.AzureFleet\n", 0o600)
	a.write("group", "true", 0o600)
	a.write("fleets", "spotworker-fleet-0-9-0 5", 0o600)
	a.write("machines", "spotworker-fleet-1-0-0_a spotworker-fleet-1-0-0_b spotworker-fleet-1-0-01_c", 0o600)
	a.env = []string{"PARAMETERS=" + filepath.Join(a.folder, "own.bicepparam")}
	said, calls, err := a.deploy("--yes")
	if err == nil || !strings.Contains(said, "1 of 2 workers run version") || slices.Contains(changing(calls), "resource delete") {
		t.Fatalf("deploy with a worker on one of two VMs = %v, made %q, want the older fleet kept; it said:\n%s", err, changing(calls), said)
	}
	a.write("heartbeats", "2", 0o600)
	if said, calls, err = a.deploy("--yes"); err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	got := changing(calls)
	if want := []string{"deployment group create Foundation", "deployment group create Application", "deployment group create Workers",
		"resource delete"}; !slices.Equal(got, want) {
		t.Errorf("it made %q, want %q", got, want)
	}
	if last := calls[len(calls)-1]; !strings.HasPrefix(last, "CAPACITY=5 ") || !strings.Contains(last, "--name spotworker-fleet-0-9-0") {
		t.Errorf("the last call is %q, want the fleet of the older version deleted, and its target of 5 kept", last)
	}
}

// TestDeployOfOneVM: the VM that is there counts against the quota, and is deployed once.
func TestDeployOfOneVM(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	a.write("own.bicepparam", "using 'single.bicep'\nparam vmSize = '"+first+"'\n", 0o600)
	for name, content := range map[string]string{"usage": "10 10", "group": "true", "machines": "spotworker-vm"} {
		a.write(name, content, 0o600)
	}
	a.env = []string{"PARAMETERS=" + filepath.Join(a.folder, "own.bicepparam")}
	said, calls, err := a.deploy("--yes")
	if err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	if got := changing(calls); got[len(got)-1] != "deployment group create Workers true" {
		t.Errorf("it made %q, want the VM deployed once, last", got)
	}
}

// TestDeployTakesBack: a role to write is taken from workers that may only read. Their role
// to read stays, and the roles of others.
func TestDeployTakesBack(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	a.write("grants", "writes", 0o600)
	said, calls, err := a.deploy("--yes")
	if err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	var deleted []string
	for _, call := range calls {
		if _, ids, found := strings.Cut(call, "role assignment delete --ids "); found {
			deleted = append(deleted, ids)
		}
	}
	if want := []string{"/scope/archive/roleAssignments/writes"}; !slices.Equal(deleted, want) {
		t.Errorf("it deleted %q, want %q", deleted, want)
	}
}

func TestDeployAsksFirst(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	said, calls, err := a.deploy() // no terminal to answer from
	if err == nil || !strings.Contains(said, "stopped") {
		t.Errorf("deploy without an answer = %v, want a stop; it said:\n%s", err, said)
	}
	if got := changing(calls); len(got) > 0 {
		t.Errorf("without an answer it made %q, want nothing", got)
	}
}

func TestDeployWithoutASubscription(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	a.write("signed-out", "", 0o600)
	said, calls, err := a.deploy("--yes")
	if err == nil || !strings.Contains(said, "nothing was deployed") {
		t.Errorf("deploy without a subscription = %v, want a failure that names it; it printed:\n%s", err, said)
	}
	if !strings.Contains(said, "$ az deployment group create") {
		t.Errorf("the commands were not shown:\n%s", said)
	}
	if len(calls) != 1 {
		t.Errorf("az was called %d times, want once, to see who is signed in: %q", len(calls), calls)
	}
}

func TestWhatIfChangesNothing(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	a.write("group", "true", 0o600)
	said, calls, err := a.deploy("--what-if")
	if err != nil {
		t.Fatalf("deploy --what-if: %v\n%s", err, said)
	}
	if got := changing(calls); len(got) != 0 {
		t.Errorf("--what-if made %q", got)
	}
}
