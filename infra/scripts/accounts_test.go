package scripts

import (
	"strings"
	"testing"
)

// TestDeployPassesTheRecordedAccounts: each stage gets the accounts over which jobs are
// spread, and nothing is deployed where that cannot be read.
func TestDeployPassesTheRecordedAccounts(t *testing.T) {
	for _, c := range []struct{ name, accounts, spread, want string }{
		{"one account", "/subscriptions/first\n", "/\n", ""},
		{"an account without queues", "/subscriptions/new\n", "", ""},
		{"two", "/subscriptions/new\n/subscriptions/more\n/subscriptions/first\n", "jobs1,jobs2/1\n",
			" recordedAccounts=jobs1,jobs2 recordedChosenIdsOn=1"},
		{"chosen ids on all", "/subscriptions/first\n/subscriptions/more\n", "jobs1,jobs2/\n",
			" recordedAccounts=jobs1,jobs2 recordedChosenIdsOn=2"},
		{"one account that is recorded", "/subscriptions/first\n", "jobs1/\n", " recordedAccounts=jobs1 recordedChosenIdsOn=1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.write("group", "true", 0o600)
			a.write("accounts", c.accounts, 0o600)
			a.write("spread", c.spread, 0o600)
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
