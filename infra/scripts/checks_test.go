package scripts

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestDeployChecksFirst: a condition that would fail later is found before anything is made.
func TestDeployChecksFirst(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	for _, c := range []struct{ name, file, content, env, want string }{
		{"old az", "version", "2.45.0", "", "az is version 2.45.0, and 2.60 is the oldest"},
		{"no Bicep", "bicep", "", "", "run az bicep install"},
		{"old Bicep", "bicep", "Bicep CLI version 0.9.1 (x)", "", "run az bicep upgrade"},
		{"provider", "providers", "Microsoft.Compute", "", "for p in Microsoft.Storage Microsoft.Network"},
		{"no address", "capacity", "", "OPERATOR_ADDRESSES=", "OPERATOR_ADDRESSES, which is empty"},
		{"private address", "capacity", "", "OPERATOR_ADDRESSES=192.168.1.2", "private address"},
		{"private range behind another", "capacity", "", "OPERATOR_ADDRESSES=203.0.113.7,172.20.0.0/16", "172.20.0.0/16 is a private"},
		{"one address as a range", "capacity", "", "OPERATOR_ADDRESSES=203.0.113.7/32", "without /31 or /32"},
		{"two addresses as a range", "capacity", "", "OPERATOR_ADDRESSES=203.0.113.6/31", "without /31 or /32"},
		{"range of all", "capacity", "", "OPERATOR_ADDRESSES=203.0.113.6/0", "is no range"},
		{"number above 255", "capacity", "", "OPERATOR_ADDRESSES=999.1.1.1", "above 255"},
		{"three numbers", "capacity", "", "OPERATOR_ADDRESSES=203.0.113", "four numbers"},
		{"comma at the end", "capacity", "", "OPERATOR_ADDRESSES=203.0.113.7,", "a comma at the end"},
		{"no address at all", "capacity", "", "OPERATOR_ADDRESSES=any", "give IPv4 addresses or ranges"},
		{"place", "capacity", "", "CONFIGURATION_IN=Nowhere", "give Blob or Package"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.write(c.file, c.content, 0o600)
			if c.env != "" {
				a.env = []string{c.env}
			}
			said, calls, err := a.deploy("--yes")
			if err == nil || !strings.Contains(said, c.want) {
				t.Errorf("deploy = %v, want a failure with %q; it said:\n%s", err, c.want, said)
			}
			if got := changing(calls); len(got) > 0 {
				t.Errorf("it made %q before it failed", got)
			}
		})
	}
}

// TestDeployOfAFleetChecksItsProvider: no other deployment needs the provider of fleets.
func TestDeployOfAFleetChecksItsProvider(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	a.write("own.bicepparam", "using 'fleet.bicep'\n"+twoSizes, 0o600)
	// A fleet, unlike a scale set, takes sizes with and without a local disk.
	a.sizes(usualSize(first), sized(second, func(s *vmSize) { s.Temporary = "76800" }))
	a.env = []string{"PARAMETERS=" + filepath.Join(a.folder, "own.bicepparam")}
	a.deploysOr("for p in Microsoft.AzureFleet;")
	a.write("providers", a.read("providers")+"\nMicrosoft.AzureFleet\n", 0o600)
	a.deploysOr("")
}

// TestRefusedAddresses: private ranges end where the standards end them, and Azure takes the
// addresses next to them.
func TestRefusedAddresses(t *testing.T) {
	need.NotOn(t, "windows", "the script needs a POSIX shell")
	for _, c := range []struct{ want, addresses string }{
		{"is a private address", "10.0.0.0 10.255.255.255 127.0.0.1 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255 172.31.0.0/16"},
		{"", "9.255.255.255 11.0.0.0 126.0.0.1 128.0.0.1 172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0 203.0.113.0/30 0.0.0.0/1"},
		{"is a range of one or two addresses", "203.0.113.7/32 203.0.113.6/31"},
		{"is no range", "203.0.113.7/0 203.0.113.7/33"},
		{"has a number above 255", "256.0.0.1 1.256.0.1 1.1.256.1 1.1.1.256"},
	} {
		for address := range strings.FieldsSeq(c.addresses) {
			command := exec.CommandContext(t.Context(), "bash", "-c", ". ../../tools/deploy-checks.sh && refusedAddress")
			command.Stdin = strings.NewReader(address + "\n")
			said, err := command.CombinedOutput()
			if err != nil || !strings.Contains(string(said), c.want) || c.want == "" && len(said) > 0 {
				t.Errorf("refusedAddress of %s = %q (%v), want %q", address, said, err, c.want)
			}
		}
	}
}

// TestDeployTakesAddresses: Azure takes these, next to private ranges and up to their ends.
func TestDeployTakesAddresses(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	a.env = []string{"OPERATOR_ADDRESSES=203.0.113.7,198.51.100.0/30,172.32.0.1,192.169.0.0/16,11.0.0.255"}
	if said, _, err := a.deploy("--what-if"); !strings.Contains(said, "== 1 of 6") {
		t.Errorf("deploy: %v\n%s", err, said)
	}
}

// TestDeployKeepsPrefixAndLocation: without PREFIX and LOCATION a deployment has the prefix
// of its parameter file, and stays where it is.
func TestDeployKeepsPrefixAndLocation(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	for _, c := range []struct {
		name, file, group, location, grouplocation string
		env                                        []string
		want                                       []string
		refused                                    string
	}{
		{name: "the file's prefix", file: "param prefix = 'spotworker-win' // for Windows\n", want: []string{"prefix=spotworker-win"}},
		{name: "a file with line ends of Windows", file: "param prefix = 'spotworker-win'\r\n", want: []string{"prefix=spotworker-win"}},
		{name: "PREFIX before the file", file: "param prefix = 'other'\n", env: []string{"PREFIX=mine"}, want: []string{"prefix=mine"}},
		{name: "no prefix", want: []string{"prefix=spotworker", "location=westeurope"}},
		{name: "a person by default", want: []string{"operatorKind=User"}},
		{name: "a group of operators", env: []string{"OPERATOR_KIND=Group"}, want: []string{"operatorKind=Group"}},
		{
			name: "a computed prefix", file: "param prefix = readEnvironmentVariable('P', 'x')\n",
			refused: "computes its prefix: set PREFIX",
		},
		{name: "the file's location", file: "param location = 'northeurope'\n", group: "true", want: []string{"location=northeurope"}},
		{name: "the group's location", group: "true", grouplocation: "eastus", want: []string{"location=eastus"}},
		{
			name: "the last deployment's location", group: "true", grouplocation: "eastus", location: "eastus2",
			want: []string{"location=eastus2"},
		},
		{
			name: "LOCATION before all", file: "param location = 'northeurope'\n", group: "true", grouplocation: "eastus",
			env: []string{"LOCATION=uksouth"}, want: []string{"location=uksouth"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.write("own.bicepparam", "using 'main.bicep'\n"+c.file+"param vmSizes = ['Standard_D2as_v5']\n", 0o600)
			for name, content := range map[string]string{"group": c.group, "location": c.location, "grouplocation": c.grouplocation} {
				if content != "" {
					a.write(name, content, 0o600)
				}
			}
			if prefix, found := strings.CutPrefix(strings.Join(c.want[:min(len(c.want), 1)], ""), "prefix="); found {
				a.write("prefix", prefix, 0o600)
			}
			a.env = append(c.env, "PARAMETERS="+filepath.Join(a.folder, "own.bicepparam"))
			said, calls, err := a.deploy("--yes")
			if c.refused != "" {
				if err == nil || !strings.Contains(said, c.refused) || len(changing(calls)) > 0 {
					t.Fatalf("deploy = %v, made %q, want none and %q:\n%s", err, changing(calls), c.refused, said)
				}
				return
			}
			if err != nil {
				t.Fatalf("deploy: %v\n%s", err, said)
			}
			stages := 0
			for _, call := range calls {
				if !strings.Contains(call, "deployment group create") {
					continue
				}
				stages++
				for _, want := range c.want {
					if !slices.Contains(strings.Fields(call), want) {
						t.Errorf("a stage has not %s: %s", want, call)
					}
				}
			}
			if stages == 0 {
				t.Errorf("no stage in %q", calls)
			}
		})
	}
}

// TestDeploySaysWhere: a person is asked for the subscription before anything is
// made, and told which it is.
func TestDeploySaysWhere(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	said, calls, err := a.deploy() // no terminal to answer from
	if err == nil || !strings.Contains(said, "\nsubscription Some (1234) of tenant 5678") || len(changing(calls)) > 0 {
		t.Errorf("deploy = %v after %q, want a question with the subscription first; it said:\n%s", err, changing(calls), said)
	}
}
