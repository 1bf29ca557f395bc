package scripts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestDeployOfAFurtherRegion: it is refused without the first region's account and queue.
func TestDeployOfAFurtherRegion(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	for _, c := range []struct{ name, accounts, account, want string }{
		{"there", "/subscriptions/secret\n/subscriptions/first\n", "first", ""},
		{"no such account", "/subscriptions/first\n", "other",
			"cannot find queue spotworker-jobs in storage account other of resource group firstregion"},
		{"an account without the queue", "/subscriptions/new\n", "new", "cannot find queue spotworker-jobs in storage account new"},
		{"an account that cannot be read", "/subscriptions/secret\n", "secret", "cannot find queue spotworker-jobs in storage account secret"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.write("accountsoffirst", c.accounts, 0o600)
			a.write("account", c.account, 0o600)
			a.sizes(usualSize("Standard_D2as_v5"), usualSize("Standard_D2s_v5"), usualSize("Standard_E2as_v5"))
			a.env = []string{"PARAMETERS=infra/bicep/region.bicepparam", "ACCOUNT_GROUP=firstregion", "ACCOUNT_NAME=" + c.account}
			a.deploysOr(c.want)
		})
	}
}

// TestDeployKeepsFurtherRegions: a deployment of the first region names the subnets of further regions
// that its account lets in, and no other ones.
func TestDeployKeepsFurtherRegions(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	a.write("group", "true", 0o600)
	a.write("admits", regionSubnet("spotworker-north")+"\n"+regionSubnet("spotworker-east")+"\n", 0o600)
	said, calls, err := a.deploy("--yes")
	want := `regionSubnets=["` + regionSubnet("spotworker-north") + `","` + regionSubnet("spotworker-east") + `"]`
	if err != nil || !slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, "create") && strings.Contains(c, want) }) {
		t.Errorf("deploy = %v after %q, want %s; it said:\n%s", err, calls, want, said)
	}
}

// drains is a stand-in for spotctl that notes its calls. A worker runs on a VM of each region.
const drains = `#!/bin/sh
echo "CAPACITY= spotctl $*" >>"${0%/*}/calls"
case $1 in workers) echo '{"name":"w","vm":"` + regionVM + `"}' ;; plan) cat "${0%/*}/plan"; exit 2 ;; esac
`

// rehome runs a script that moves a deployment of VMs in two regions, in an account that is there.
func rehome(t *testing.T, script string, env ...string) (a *subscription, said string, calls []string, err error) {
	t.Helper()
	a = newSubscription(t)
	a.sizes(usualSize("Standard_D2as_v5"), usualSize("Standard_D2s_v5"), usualSize("Standard_E2as_v5"))
	for name, content := range map[string]string{
		"group": "true", "capacity": "0", "accountsoffirst": "/subscriptions/first", "account": "first", "usage": "0 100",
		"regions": "FirstRegion westeurope 3 firstregion-northeurope northeurope 0", "resourcegroup": "firstregion-northeurope",
		"plan": `{"gap":{"region":"uksouth"}}` + "\n" + `{"finding":{"size":"Standard_D2s_v5","text":"is dear"}}` + "\n" +
			`{"finding":{"region":"northeurope","text":"D2s_v5 in northeurope is 30 % cheaper"}}` + "\n",
	} {
		a.write(name, content, 0o600)
	}
	a.write("spotctl", drains, 0o700)
	a.env = append(env, "RESOURCE_GROUP=firstregion", "SPOTCTL="+filepath.Join(a.folder, "spotctl"))
	said, calls, err = a.run(script, "--yes")
	return a, said, calls, err
}

// moved are the changes of a move.
var moved = []string{
	"deployment group create Foundation", "storage account network-rule add", "storage blob upload", "storage blob upload",
	"deployment group create Application", "deployment group create Workers true", "deployment group create Workers false",
	"monitor autoscale delete", "vmss scale",
}

// TestRehome: as many VMs are made in the other region, and when their workers run, those of all other
// regions drain and go. What others have is left alone.
func TestRehome(t *testing.T) {
	t.Parallel()
	_, said, calls, err := rehome(t, "rehome.sh", "REGION=northeurope")
	if got := changing(calls); err != nil || !slices.Equal(got, moved) {
		t.Fatalf("rehome = %v, made %q, want %q; it said:\n%s", err, got, moved, said)
	}
	at := func(words ...string) int {
		return slices.IndexFunc(calls, func(c string) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(c, w) })
		})
	}
	workers := at("CAPACITY=3 ", "--resource-group firstregion-northeurope", "stage=Workers")
	autoscale := at("autoscale delete --resource-group firstregion --name spotworker-spot")
	drain := at("spotctl drain "+regionVM, "--account first", "--wait")
	scale := at("vmss scale --resource-group firstregion --name spotworker-spot --new-capacity 0")
	resume := at("spotctl resume " + regionVM)
	if order := []int{workers, autoscale, drain, scale, resume}; workers < 0 || !slices.IsSorted(order) {
		t.Errorf("VMs, autoscale, drain, removal and resume are the calls %v of\n%s", order, strings.Join(calls, "\n"))
	}
	if at("STRANGER") >= 0 || at("anotheraccount") >= 0 || at("CAPACITY", "scale --resource-group stranger") >= 0 {
		t.Errorf("it changes a deployment with another account:\n%s", strings.Join(calls, "\n"))
	}
}

// TestRehomeStops: where the new region does not work, or the old workers do not follow, no VM goes. The
// next run makes no further VMs.
func TestRehomeStops(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	for name, row := range map[string]struct{ file, content, want string }{
		"no workers":           {"silent", "", "workers run version 1.2.3"},
		"workers do not drain": {"spotctl", strings.Replace(drains, "workers)", "drain) exit 1 ;; workers)", 1), "== rehome, 2 of 2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, _, _, _ := rehome(t, "rehome.sh", "REGION=nowhere", "PREFIX=x") // refused at once
			a.env = []string{"REGION=northeurope", "RESOURCE_GROUP=firstregion", "SPOTCTL=" + filepath.Join(a.folder, "spotctl")}
			a.write(row.file, row.content, 0o700)
			said, calls, err := a.run("rehome.sh", "--yes")
			if err == nil || !strings.Contains(said, row.want) || slices.Contains(changing(calls), "vmss scale") {
				t.Errorf("rehome = %v, made %q, want a stop; it said:\n%s", err, changing(calls), said)
			}
			a.write("regions", "firstregion westeurope 3 firstregion-northeurope northeurope 3", 0o600)
			a.write("spotctl", drains, 0o700)
			_ = os.Remove(filepath.Join(a.folder, "silent"))
			said, calls, err = a.run("rehome.sh", "--yes")
			if err != nil || changing(calls)[len(changing(calls))-1] != "vmss scale" || strings.Contains(strings.Join(calls, "\n"), "CAPACITY=6") {
				t.Errorf("rehome again = %v, made %q with\n%s, want 3 VMs; it said:\n%s", err, changing(calls), strings.Join(calls, "\n"), said)
			}
		})
	}
}

// TestRehomeDryRun: the commands are shown without az.
func TestRehomeDryRun(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	a.env = []string{"REGION=northeurope"}
	said, calls, err := a.run("rehome.sh", "--dry-run")
	const scale = "$ az vmss scale --resource-group spotworker --name spotworker-spot --new-capacity 0"
	if err != nil || calls[0] != "" || !strings.Contains(said, scale) ||
		!strings.Contains(said, "stage=Workers location=northeurope") {
		t.Errorf("rehome --dry-run = %v, called %q, said:\n%s", err, calls, said)
	}
}

// TestWatch: what plan --watch finds is reported, and moves the VMs if that is wanted.
func TestWatch(t *testing.T) {
	for name, row := range map[string]struct {
		env    []string
		change []string
		failed bool
	}{
		"report": {nil, nil, true},
		"move":   {[]string{"REHOME=yes"}, moved, false},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "move" {
				proof.Only(t, "each run of deploy.sh is hundreds of processes")
			}
			t.Parallel()
			_, said, calls, err := rehome(t, "../infra/watch/watch.sh", append(row.env, "SIZES=D2as_v5 D2s_v5", "REGIONS=uksouth,northeurope")...)
			if got := changing(calls); (err != nil) != row.failed || !slices.Equal(got, row.change) || !strings.Contains(said, "30 % cheaper") {
				t.Errorf("watch = %v, made %q, want %q; it said:\n%s", err, got, row.change, said)
			}
			const want = "spotctl plan --watch D2as_v5 D2s_v5 --region westeurope,uksouth,northeurope --max-price -1 --output json"
			if !strings.Contains(strings.Join(calls, "\n"), want) {
				t.Errorf("it called %q, want %s", calls, want)
			}
		})
	}
}
