package scripts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestDeployPassesTheRecordedAccounts: each stage gets the accounts over which jobs are
// spread, and nothing is deployed where that cannot be read.
func TestDeployPassesTheRecordedAccounts(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	for _, c := range []struct{ name, accounts, spread, more, want string }{
		{"one account", "/subscriptions/first\n", "/\n", "", ""},
		{"an account without queues", "/subscriptions/new\n", "", "", ""},
		{"two", "/subscriptions/new\n/subscriptions/more\n/subscriptions/first\n", "jobs1,jobs2/1\n", twoAccounts(1),
			" recordedAccounts=jobs1,jobs2 recordedChosenIdsOn=1"},
		{"chosen ids on all", "/subscriptions/first\n/subscriptions/more\n", "jobs1,jobs2/\n", twoAccounts(2),
			" recordedAccounts=jobs1,jobs2 recordedChosenIdsOn=2"},
		{"one account that is recorded", "/subscriptions/first\n", "jobs1/\n", "", " recordedAccounts=jobs1 recordedChosenIdsOn=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.write("group", "true", 0o600)
			a.write("accounts", c.accounts, 0o600)
			a.write("spread", c.spread, 0o600)
			a.ownParameters(oneSize + c.more)
			said, calls, err := a.deploy("--yes")
			if err != nil {
				t.Fatalf("deploy: %v\n%s", err, said)
			}
			stages := 0
			for _, call := range calls {
				if !strings.Contains(call, "deployment group create") {
					continue
				}
				stages++
				if c.want == "" && strings.Contains(call, "recorded") || !strings.Contains(call, c.want) {
					t.Errorf("%q, want %q in it", call, c.want)
				}
			}
			if stages != 4 {
				t.Errorf("%d deployments, want 4", stages)
			}
		})
	}
	t.Run("cannot be read", func(t *testing.T) {
		t.Parallel()
		a := newSubscription(t)
		a.write("group", "true", 0o600)
		a.write("accounts", "/subscriptions/secret\n", 0o600)
		said, calls, err := a.deploy("--yes")
		if err == nil || !strings.Contains(said, "cannot read over which accounts jobs are spread") || len(changing(calls)) > 0 {
			t.Errorf("deploy = %v after %q, want a failure before any change; it said:\n%s", err, changing(calls), said)
		}
	})
}

// twoAccounts is the parameter for a second account, jobs2.
func twoAccounts(chosenIDs int) string {
	return fmt.Sprintf("param moreAccounts = {\n  names: [\n    'jobs2' // the second\n  ]\n  putOn: 2\n  chosenIdsOn: %d\n}\n", chosenIDs)
}

// TestDeployKeepsTheAccounts: other accounts than those recorded are refused before anything
// is made.
func TestDeployKeepsTheAccounts(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	for _, c := range []struct{ name, spread, more, want string }{
		{"the same", "jobs1,jobs2/1", twoAccounts(1), ""},
		{"one more", "jobs1/1", twoAccounts(1), ""},
		{"on one line", "jobs1,jobs2/1", "param moreAccounts = { names: ['jobs2', 'jobs3'], putOn: 3, chosenIdsOn: 1 }\n", ""},
		{"none", "jobs1,jobs2/1", "", "makes that jobs1:"},
		{"another one", "jobs1,jobs3/1", twoAccounts(1), "the storage accounts jobs1,jobs3, and moreAccounts in"},
		{"another one of the same beginning", "jobs1,jobs22/1", twoAccounts(1), "makes that jobs1,jobs2:"},
		{"fewer that take jobs", "jobs1,jobs2/1",
			"param moreAccounts = { names: ['jobs2'], putOn: 1, chosenIdsOn: 1 }\n", "makes that jobs1:"},
		{"chosen ids elsewhere", "jobs1,jobs2/2", twoAccounts(1), "Set chosenIdsOn of moreAccounts to 2"},
		{"names that the template computes", "jobs1,jobs2/1", "param moreAccounts = { names: names, putOn: 2, chosenIdsOn: 1 }\n", ""},
	} {
		for _, further := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, further region %v", c.name, further), func(t *testing.T) {
				t.Parallel()
				a := newSubscription(t)
				a.write("spread", c.spread, 0o600)
				text := oneSize + c.more
				if further {
					a.write("accountsoffirst", "/subscriptions/more\n/subscriptions/first\n", 0o600)
					text += "param accountName = 'first'\nparam accountGroup = readEnvironmentVariable('ACCOUNT_GROUP', 'spotworker')\n"
					a.env = []string{"ACCOUNT_GROUP=firstregion"}
				} else {
					a.write("group", "true", 0o600)
					a.write("accounts", "/subscriptions/first\n", 0o600)
				}
				a.ownParameters(text)
				a.deploysOr(c.want)
			})
		}
	}
}

// TestDeployOfAFurtherRegion: it gets the first region's record, reads the first region's
// account alone, and is refused without it.
func TestDeployOfAFurtherRegion(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	for _, c := range []struct{ name, accounts, account, want string }{
		{"recorded", "/subscriptions/secret\n/subscriptions/first\n", "first", ""},
		{"no such account", "/subscriptions/first\n", "other",
			"no storage account other with a queue spotworker-jobs in resource group firstregion"},
		{"an account without the queue", "/subscriptions/new\n", "new", "no storage account new with a queue"},
		{"an account that cannot be read", "/subscriptions/secret\n", "secret", "cannot read over which accounts jobs are spread"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.write("spread", "first/1", 0o600)
			a.write("accountsoffirst", c.accounts, 0o600)
			a.sizes(usualSize("Standard_D2as_v5"), usualSize("Standard_D2s_v5"), usualSize("Standard_E2as_v5"))
			a.env = []string{"PARAMETERS=infra/bicep/region.bicepparam", "ACCOUNT_GROUP=firstregion", "ACCOUNT_NAME=" + c.account}
			if c.want != "" {
				a.deploysOr(c.want)
				return
			}
			a.write("capitals", "", 0o600) // as a program in Go wrote them
			said, calls, err := a.deploy("--yes")
			if err != nil {
				t.Fatalf("deploy: %v\n%s", err, said)
			}
			for _, call := range calls {
				if strings.Contains(call, "deployment group create") && !strings.Contains(call, " recordedAccounts=first recordedChosenIdsOn=1") {
					t.Errorf("%q, want the first region's record", call)
				}
			}
		})
	}
}
