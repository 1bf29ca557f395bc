package scripts

import (
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
