package policy

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
)

// azStub stands for the Azure CLI: it notes each call, and answers
// from files in its folder. Uploaded blobs leave their digest there.
const azStub = `#!/bin/sh
cd "$(dirname "$0")" || exit
echo "CAPACITY=$CAPACITY $*" >>calls
last=
for word in "$@"; do
  case $last in
    --name) name=$(echo "$word" | tr / _) ;;
    --prefix) prefix=$(echo "$word" | tr / _) ;;
    --metadata) sum=${word#sha256=} ;;
  esac
  last=$word
done
case "$*" in
  "account show --output tsv"*) echo "subscription Some (1234) of tenant 5678, signed in as me@example.com" ;;
  "account show"*) test ! -f signed-out ;;
  "version"*) cat version ;;
  "bicep version"*) cat bicep ;;
  "group exists"*) cat group ;;
  "provider list"*) cat providers ;;
  "vm list-skus"*--all*) cat skus ;;
  "vm list-usage"*"'cores'"*) cat regular ;;
  "vm list-usage"*) cat usage ;;
  "deployment group list"*parameters.location*) cat location ;;
  "deployment group list"*) cat made ;;
  "group show"*) cat grouplocation ;;
  "deployment group show"*accountName*) echo someaccount ;;
  "deployment group show"*packagesFolder*) echo "$APPLICATION_VERSION" ;;
  "deployment group show"*workerConfiguration*) printf 'A=1\nB=2\n' ;;
  "deployment group show"*readOnlyContainerIds*) echo /scope/archive ;;
  "deployment group show"*workerPrincipalIds*) echo 0000-worker ;;
  "deployment group what-if"*stage=Workers*) if [ -f later ]; then mv later capacity; fi ;;
  "role assignment list"*) cat grants ;;
  "ad signed-in-user show"*) echo 00000000-0000-0000-0000-000000000001 ;;
  "storage account list"*"[?primaryEndpoints.queue].id"*) cat accounts ;;
  "storage account list"*) cat accounts; echo /subscriptions/without-queues ;;
  "rest --method get --url /subscriptions/first/queueServices/default/queues/spotworker-jobs?"*) cat spread ;;
  "rest --method get --url /subscriptions/new/queueServices/default/queues?"*) ;;
  "rest --method get --url /subscriptions/more/queueServices/default/queues/spotworker-jobs?"*) echo / ;;
  "rest --method get --url /subscriptions/"[fm]*"/queueServices/default/queues?"*) printf 'spotworker-jobs\nspotworker-jobs-ondemand\n' ;;
  "rest"*) echo "(Forbidden)" >&2; exit 1 ;;
  "vmss list"*-spot*sku.capacity*) if [ -f throttled ]; then echo "(TooManyRequests)" >&2; exit 1; fi; cat capacity ;;
  "vmss list"*packageReferenceId*) cat deployed ;;
  "vm list --resource-group"*-show-details*) cat vm ;;
  "storage blob list"*-workers*)
    if [ ! -f silent ]; then echo "vm-0	$(cat program)	$(cat state)	$(date +%s%N)"; fi ;;
  "storage blob list"*)
    if [ -f refuse ]; then rm refuse; exit 1; fi
    if [ -f "blob_$prefix" ]; then cat "blob_$prefix"; fi ;;
  "storage blob upload"*) echo "$sum" >"blob_$name" ;;
esac
`

// subscription consists of notes.
type subscription struct {
	t           *testing.T
	folder, pkg string
	env         []string
}

func newSubscription(t *testing.T) *subscription {
	t.Helper()
	need.NotOn(t, "windows", "the script needs a POSIX shell")
	a := &subscription{t: t, folder: t.TempDir()}
	a.pkg = filepath.Join(a.folder, "package.tar.gz")
	a.write("az", azStub, 0o700)
	a.write("make", "#!/bin/sh\nexit 2\n", 0o700)
	a.pack("package.tar.gz", "RELEASE=1.2.3-0123456789ab\nARCHITECTURE=amd64\n")
	for name, content := range map[string]string{
		"capacity": "", "deployed": "", "grants": "", "version": "2.61.0", "bicep": "Bicep CLI version 0.36.1 (a727ed087a)",
		"made": "", "group": "false", "location": "", "grouplocation": "westeurope",
		"accounts": "", "spread": "", "usage": "2\t12", "program": "1.2.3", "state": "process", "vm": "",
		"skus": "Standard_D2as_v5\tTrue\tx64\t2\t0\tzones,1,2,3\twithout,", "regular": "0\t10",
		"providers": "Microsoft.Compute\nMicrosoft.Storage\nMicrosoft.Network\nMicrosoft.ManagedIdentity\n" +
			"microsoft.insights\nMicrosoft.OperationalInsights\nMicrosoft.PolicyInsights\n",
	} {
		a.write(name, content, 0o600)
	}
	return a
}

// pack makes a package that says this of itself.
func (a *subscription) pack(name, release string) {
	a.t.Helper()
	folder := a.t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "release"), []byte(release), 0o600); err != nil {
		a.t.Fatal(err)
	}
	out, err := exec.CommandContext(a.t.Context(), "tar", "-czf", filepath.Join(a.folder, name), "-C", folder, "release").CombinedOutput()
	if err != nil {
		a.t.Fatalf("tar: %v\n%s", err, out)
	}
}

func (a *subscription) write(name, content string, mode os.FileMode) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.folder, name), []byte(content), mode); err != nil {
		a.t.Fatal(err)
	}
}

// deploy runs tools/deploy.sh and returns its output and the calls of az.
func (a *subscription) deploy(arguments ...string) (said string, calls []string, err error) {
	a.t.Helper()
	return a.run("deploy.sh", arguments...)
}

func (a *subscription) run(script string, arguments ...string) (said string, calls []string, err error) {
	a.t.Helper()
	_ = os.Remove(filepath.Join(a.folder, "calls"))
	command := exec.CommandContext(a.t.Context(), filepath.Join("..", "..", "tools", script), arguments...)
	command.Env = []string{
		"PATH=" + a.folder + ":/usr/bin:/bin", "HOME=" + a.folder,
		"SSH_PUBLIC_KEY=ssh-ed25519 AAAA", "OPERATOR_ADDRESSES=203.0.113.7", "DEPLOY_RETRY=0", "WORKERS_WITHIN=1", "SPOTCTL=" +
			filepath.Join(a.folder, "spotctl"),
	}
	command.Env = append(command.Env, a.env...)
	if a.pkg != "" {
		command.Env = append(command.Env, "PACKAGE="+a.pkg)
	}
	out, err := command.CombinedOutput()
	noted, readErr := os.ReadFile(filepath.Join(a.folder, "calls"))
	if readErr != nil && !errors.Is(readErr, os.ErrNotExist) {
		a.t.Fatal(readErr)
	}
	return string(out), strings.Split(string(bytes.TrimSpace(noted)), "\n"), err
}

// changing returns the calls that change something, without their arguments.
func changing(calls []string) []string {
	var made []string
	for _, call := range calls {
		_, call, _ = strings.Cut(call, " ")
		for _, verb := range []string{"group create", "deployment group create", "storage blob upload", "role assignment delete"} {
			if !strings.HasPrefix(call, verb+" ") {
				continue
			}
			if _, stage, found := strings.Cut(call, "stage="); found {
				verb += " " + strings.Fields(stage)[0]
				if _, fails, found := strings.Cut(call, "failOnInstall="); found {
					verb += " " + fails
				}
			}
			made = append(made, verb)
		}
	}
	return made
}

var everyStep = []string{
	"group create", "deployment group create Foundation",
	"storage blob upload", "storage blob upload",
	"deployment group create Application",
	"deployment group create Workers true", "deployment group create Workers false",
}

func TestDeploySteps(t *testing.T) {
	a := newSubscription(t)
	said, calls, err := a.deploy("--yes")
	if err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	if got := changing(calls); !slices.Equal(got, everyStep) {
		t.Errorf("first run made %q, want %q", got, everyStep)
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

func TestDeployRefusesAnotherPackageOfTheSameVersion(t *testing.T) {
	a := newSubscription(t)
	if said, _, err := a.deploy("--yes"); err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	a.pack("package.tar.gz", "RELEASE=1.2.4-0123456789ab\nARCHITECTURE=amd64\n")
	said, calls, err := a.deploy("--yes")
	if err == nil || !strings.Contains(said, "set APPLICATION_VERSION to a higher one") {
		t.Errorf("deploy of another package = %v, want a refusal; it said:\n%s", err, said)
	}
	if got := changing(calls); slices.Contains(got, "deployment group create Workers true") {
		t.Errorf("the scale set was deployed all the same: %q", got)
	}
}

// TestDeployVerifiesTheSignature: with ALLOWED_SIGNERS a package without a good
// signature of one of them is not uploaded.
func TestDeployVerifiesTheSignature(t *testing.T) {
	keygen := need.Command(t, "ssh-keygen")
	run := func(t *testing.T, arguments ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), keygen, arguments...).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen %q: %v: %s", arguments, err, out)
		}
	}
	signed := func(t *testing.T, a *subscription, key, namespace string) {
		t.Helper()
		run(t, "-Y", "sign", "-f", filepath.Join(a.folder, key), "-n", namespace, a.pkg)
	}
	for _, c := range []struct {
		name    string
		prepare func(t *testing.T, a *subscription)
		want    string // in the output; empty where it deploys
	}{
		{"signed", func(t *testing.T, a *subscription) { signed(t, a, "release", "spotworker-package") }, ""},
		{"without a signature", func(*testing.T, *subscription) {}, "has no signature"},
		{"changed", func(t *testing.T, a *subscription) {
			signed(t, a, "release", "spotworker-package")
			a.pack("package.tar.gz", "RELEASE=1.2.3-0123456789ab\nARCHITECTURE=amd64\nCHANGED=yes\n")
		}, "by release@example.com does not match"},
		{"signed for something else", func(t *testing.T, a *subscription) { signed(t, a, "release", "git") }, "does not match"},
		{"signed by somebody else", func(t *testing.T, a *subscription) { signed(t, a, "other", "spotworker-package") }, "is of no signer in"},
		{"damaged signature", func(_ *testing.T, a *subscription) { a.write("package.tar.gz.sig", "garbage", 0o600) }, "cannot be read"},
		{"no list", func(_ *testing.T, a *subscription) { a.env = []string{"ALLOWED_SIGNERS=/nowhere"} }, "there is no such file"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			for _, key := range []string{"release", "other"} {
				run(t, "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(a.folder, key))
			}
			public, err := os.ReadFile(filepath.Join(a.folder, "release.pub"))
			if err != nil {
				t.Fatal(err)
			}
			a.write("signers", "release@example.com "+string(public), 0o600)
			a.env = []string{"ALLOWED_SIGNERS=" + filepath.Join(a.folder, "signers")}
			c.prepare(t, a)
			said, calls, err := a.deploy("--yes")
			if c.want == "" {
				if err != nil || !strings.Contains(said, "is signed by release@example.com") || !slices.Equal(changing(calls), everyStep) {
					t.Errorf("deploy = %v after %q, want every step; it said:\n%s", err, changing(calls), said)
				}
				return
			}
			if err == nil || !strings.Contains(said, c.want) || len(changing(calls)) > 0 {
				t.Errorf("deploy = %v after %q, want a failure with %q before any change; it said:\n%s", err, changing(calls), c.want, said)
			}
		})
	}
}

func TestDeployKeepsTheNumberOfVMs(t *testing.T) {
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

// TestDeployEvictionRate: workers start from the rate that Azure publishes, a version keeps
// the rate that it was made with, and without a known rate the deployment continues with the
// default.
func TestDeployEvictionRate(t *testing.T) {
	for _, c := range []struct {
		name, answer, made string // spotctl's answer, and az's about the last deployment
		env                []string
		rate, want         string // the rate that is passed, if any, and a part of the output
		asked              string // of spotctl; empty if it is not asked
	}{
		{
			name: "known", answer: "echo 15", rate: "evictionRate=15",
			want:  "workers start from 15 % evictions an hour, the most that Azure publishes for these sizes in westeurope",
			asked: "prices Standard_D2as_v5 --region westeurope --eviction-rate",
		},
		{
			name: "no right", answer: "echo 'eviction rates not shown: role' >&2; exit 1",
			want: "role\nnote: the eviction rate of these sizes in westeurope is not known, for the reason above; workers start from their " +
				"own default",
			asked: "prices Standard_D2as_v5 --region westeurope --eviction-rate",
		},
		{name: "no number", answer: "echo many", want: "is not known", asked: "prices Standard_D2as_v5 --region westeurope --eviction-rate"},
		{name: "given", env: []string{"EVICTION_RATE=7"}, rate: "evictionRate=7", want: "workers start from EVICTION_RATE, 7 % an hour"},
		{name: "the default", env: []string{"EVICTION_RATE=0"}, want: "workers start from EVICTION_RATE, 0 % an hour"},
		{name: "the same version", answer: "echo 25", made: "1.0.0 15", rate: "evictionRate=15",
			want: "version 1.0.0 keeps the eviction rate that it was made with, 15 %"},
		{name: "the same version, from before", answer: "echo 25", made: "1.0.0 null", want: "was made without an eviction rate"},
		{
			name: "another version", answer: "echo 25", made: "0.9.0 15", rate: "evictionRate=25", want: "workers start from 25 %",
			asked: "prices Standard_D2as_v5 --region westeurope --eviction-rate",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.env = c.env
			a.write("spotctl", "#!/bin/sh\necho \"$*\" >>\"$(dirname \"$0\")/asked\"\n"+c.answer+"\n", 0o700)
			a.write("made", c.made, 0o600)
			if c.made != "" {
				a.write("group", "true", 0o600)
			}
			said, calls, err := a.deploy("--yes")
			if err != nil || !strings.Contains(said, c.want) {
				t.Errorf("deploy = %v, want that it says %q; it said:\n%s", err, c.want, said)
			}
			for _, call := range calls {
				if strings.Contains(call, "deployment group create") && (c.rate == "") == strings.Contains(call, "evictionRate=") {
					t.Errorf("%q, want the rate to be %q", call, c.rate)
				}
				if c.rate != "" && strings.Contains(call, "deployment group create") && !strings.Contains(call, c.rate+" ") &&
					!strings.HasSuffix(call, c.rate) {
					t.Errorf("%q, want %s", call, c.rate)
				}
			}
			asked, err := os.ReadFile(filepath.Join(a.folder, "asked"))
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if got := strings.TrimSpace(string(asked)); got != c.asked {
				t.Errorf("spotctl was asked for %q, want %q", got, c.asked)
			}
		})
	}
}

// TestDeployThrottled: no answer is no number, so nothing is deployed for it.
func TestDeployThrottled(t *testing.T) {
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

// TestDeployChecksFirst: a condition that would fail later is found before anything is made.
func TestDeployChecksFirst(t *testing.T) {
	for _, c := range []struct{ name, file, content, env, want string }{
		{"old az", "version", "2.45.0", "", "az is version 2.45.0, and 2.60 is the oldest"},
		{"no Bicep", "bicep", "", "", "run az bicep install"},
		{"old Bicep", "bicep", "Bicep CLI version 0.9.1 (x)", "", "run az bicep upgrade"},
		{"provider", "providers", "Microsoft.Compute", "", "for p in Microsoft.Storage Microsoft.Network"},
		{"no such size", "skus", "Standard_D2as_v55\tTrue\tx64\t2\t0", "", "westeurope has no VMs of size Standard_D2as_v5"},
		{"size restricted", "skus", "Standard_D2as_v5\tTrue\tx64\t2\t1", "", "NotAvailableForSubscription"},
		{"no Spot", "skus", "Standard_D2as_v5\tNone\tx64\t2\t0", "", "is not offered as Spot"},
		{"another processor", "skus", "Standard_D2as_v5\tTrue\tArm64\t2\t0", "", "has an Arm64 processor and"},
		{"quota", "usage", "9\t10", "", "need a quota of 2 more Spot cores in westeurope, and 1 are left"},
		{"quota for many", "usage", "0\t10", "CAPACITY=30", "need a quota of 60 more Spot cores"},
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
		{"eviction rate", "capacity", "", "EVICTION_RATE=0.5", "EVICTION_RATE is '0.5': give whole percent an hour"},
		{"high eviction rate", "capacity", "", "EVICTION_RATE=101", "give whole percent an hour"},
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

// TestDeployImage: package, sizes and image are for one processor.
// TestDeployTakesAddresses: Azure takes these, next to private ranges and up to their ends.
func TestDeployTakesAddresses(t *testing.T) {
	a := newSubscription(t)
	a.env = []string{"OPERATOR_ADDRESSES=203.0.113.7,198.51.100.0/30,172.32.0.1,192.169.0.0/16,11.0.0.255"}
	if said, _, err := a.deploy("--what-if"); !strings.Contains(said, "== 1 of 6") {
		t.Errorf("deploy: %v\n%s", err, said)
	}
}

// TestDeployKeepsPrefixAndLocation: without PREFIX and LOCATION a deployment has the prefix
// of its parameter file, and stays where it is.
func TestDeployKeepsPrefixAndLocation(t *testing.T) {
	for _, c := range []struct {
		name, file, group, location, grouplocation string
		env                                        []string
		want                                       []string
		refused                                    string
	}{
		{name: "the file's prefix", file: "param prefix = 'spotworker-win' // for Windows\n", want: []string{"prefix=spotworker-win"}},
		{name: "PREFIX before the file", file: "param prefix = 'other'\n", env: []string{"PREFIX=mine"}, want: []string{"prefix=mine"}},
		{name: "no prefix", want: []string{"prefix=spotworker", "location=westeurope"}},
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

// TestDeployChecksZonesAndRegularVMs: a size that the subscription lacks in a zone, and
// regular VMs beyond its quota, fail before anything is made.
func TestDeployChecksZonesAndRegularVMs(t *testing.T) {
	const size = "Standard_D2as_v5\tTrue\tx64\t2\t0\t"
	for _, c := range []struct{ name, sku, parameters, regular, want string }{
		{"all zones", "zones,3,1,2\twithout,", "param zones = ['1', '2', '3'] // all\n", "0\t10", ""},
		{"a region without zones", "zones,\twithout,", "param zones = ['1']\n", "0\t10", "is not in zone 1 of westeurope"},
		{"a zone that it has not", "zones,1,2\twithout,", "param zones = ['1', '2', '3']\n", "0\t10", "is not in zone 3"},
		{"a zone refused", "zones,1,2,3\twithout,2", "param zones = ['1', '2', '3']\n", "0\t10", "is not in zone 2"},
		{"another zone refused", "zones,1,2,3\twithout,2", "param zones = ['1', '3']\n", "0\t10", ""},
		{"no zones asked for", "zones,\twithout,1", "param zones = []\n", "0\t10", ""},
		{"quota of regular VMs", "zones,\twithout,", "param baseRegularCount = 6\n", "0\t10",
			"quota of 12 regular cores in westeurope, and 10 are"},
		{"enough for regular VMs", "zones,\twithout,", "param baseRegularCount = 5\n", "0\t10", ""},
		{"quota of a fleet", "zones,\twithout,", "param regularCapacity = 2\n", "8\t10", "quota of 4 regular cores"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.write("skus", size+c.sku, 0o600)
			a.write("regular", c.regular, 0o600)
			a.write("own.bicepparam", "using 'main.bicep'\nparam vmSizes = ['Standard_D2as_v5']\n"+c.parameters, 0o600)
			a.env = []string{"PARAMETERS=" + filepath.Join(a.folder, "own.bicepparam")}
			said, calls, err := a.deploy("--yes")
			if c.want == "" {
				if err != nil {
					t.Errorf("deploy: %v\n%s", err, said)
				}
				return
			}
			if err == nil || !strings.Contains(said, c.want) || len(changing(calls)) > 0 {
				t.Errorf("deploy = %v, made %q, want none and a failure with %q; it said:\n%s", err, changing(calls), c.want, said)
			}
		})
	}
}

func TestDeployImage(t *testing.T) {
	a := newSubscription(t)
	a.pack("package.tar.gz", "RELEASE=1.2.3-0123456789ab\nARCHITECTURE=arm64\n")
	a.write("skus", "Standard_D2as_v5\tTrue\tArm64\t2\t0", 0o600)
	said, calls, err := a.deploy("--yes")
	if err == nil || !strings.Contains(said, "sku server-arm64") || len(changing(calls)) > 0 {
		t.Errorf("deploy of an arm64 package on an x64 image = %v after %q, want a failure first; it said:\n%s", err, changing(calls), said)
	}
}

// TestDeploySaysWhere: a person is asked for the subscription before anything is
// made, and told which it is.
func TestDeploySaysWhere(t *testing.T) {
	a := newSubscription(t)
	said, calls, err := a.deploy() // no terminal to answer from
	if err == nil || !strings.Contains(said, "subscription Some (1234) of tenant 5678") || len(changing(calls)) > 0 {
		t.Errorf("deploy = %v after %q, want a question with the subscription first; it said:\n%s", err, changing(calls), said)
	}
}

// TestDeployAsksTheWorkers: Azure's success is not believed.
func TestDeployAsksTheWorkers(t *testing.T) {
	for _, c := range []struct{ name, file, content string }{
		{"silent", "silent", ""},
		{"another version", "program", "1.2.2"},
		{"not ready", "state", "start"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.write(c.file, c.content, 0o600)
			said, calls, err := a.deploy("--yes")
			if err == nil || !strings.Contains(said, "0 of 1 workers run version 1.2.3") {
				t.Errorf("deploy = %v, want a failure; it said:\n%s", err, said)
			}
			if got := changing(calls); slices.Contains(got, "deployment group create Workers false") {
				t.Errorf("it continued: %q", got)
			}
		})
	}
}

// TestDeployTheSameVersion: a version that the scale set has is deployed once, for life.
func TestDeployTheSameVersion(t *testing.T) {
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

// TestDeployTakesBack: a role to write is taken from workers that may only read.
func TestDeployTakesBack(t *testing.T) {
	a := newSubscription(t)
	a.write("grants", "/scope/archive/roleAssignments/1\n", 0o600)
	said, calls, err := a.deploy("--yes")
	if err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	if !slices.ContainsFunc(calls, func(c string) bool {
		return strings.HasSuffix(c, "role assignment delete --ids /scope/archive/roleAssignments/1")
	}) {
		t.Errorf("the old role was kept: %q", calls)
	}
}

// TestDeployConfigurationInPackage: the fallback for where the gallery cannot read
// a configuration.
func TestDeployConfigurationInPackage(t *testing.T) {
	a := newSubscription(t)
	a.env = []string{"CONFIGURATION_IN=Package", "GOCACHE=" + goEnv(t, "GOCACHE"), "GOMODCACHE=" + goEnv(t, "GOMODCACHE")}
	a.env = append(a.env, "PATH="+a.folder+":"+os.Getenv("PATH"))
	said, calls, err := a.deploy("--yes")
	if err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	uploads := 0
	for _, call := range calls {
		if strings.Contains(call, "storage blob upload") {
			uploads++
		}
		if strings.Contains(call, "deployment group create") && !strings.Contains(call, "configurationIn=Package") {
			t.Errorf("%q does not say where the configuration is", call)
		}
	}
	if uploads != 1 {
		t.Errorf("%d files were uploaded, want the package alone:\n%s", uploads, said)
	}
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestDeployWaitsForRoles(t *testing.T) {
	a := newSubscription(t)
	a.write("refuse", "", 0o600)
	said, calls, err := a.deploy("--yes")
	if err != nil || !strings.Contains(said, "not allowed yet") {
		t.Errorf("deploy while roles are on their way = %v, want patience; it said:\n%s", err, said)
	}
	if got := changing(calls); !slices.Equal(got, everyStep) {
		t.Errorf("it made %q, want %q", got, everyStep)
	}
}

func TestDeployAsksFirst(t *testing.T) {
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

// TestDryRunIsTheDocumentation: a dry run shows the commands of docs/deploy.md,
// one by one and in the same order.
func TestDryRunIsTheDocumentation(t *testing.T) {
	a := newSubscription(t)
	a.pkg = ""
	said, calls, err := a.deploy("--dry-run")
	if err != nil {
		t.Fatalf("deploy --dry-run: %v\n%s", err, said)
	}
	if calls[0] != "" {
		t.Errorf("--dry-run called az: %q", calls)
	}
	source, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy.md"))
	if err != nil {
		t.Fatal(err)
	}
	rest, commands := string(source), 0
	for line := range strings.Lines(said) {
		command, found := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		if !found || strings.HasPrefix(command, "make ") {
			continue
		}
		commands++
		_, after, found := strings.Cut(rest, command+"\n")
		if !found {
			t.Errorf("docs/deploy.md does not have, after the one before it, the command\n\t%s", command)
			continue
		}
		rest = after
	}
	const fewest = 14
	if commands < fewest {
		t.Errorf("a dry run shows %d commands, want at least %d", commands, fewest)
	}
}

// TestEvictKeepsThePrefix: it looks for VMs of the deployment of the parameter file.
func TestEvictKeepsThePrefix(t *testing.T) {
	a := newSubscription(t)
	a.write("vm", "spotworker-win-spot_0a1b2c3d\n", 0o600)
	a.env = []string{"PARAMETERS=infra/bicep/windows.bicepparam"}
	said, calls, err := a.run("deploy-evict.sh")
	if err != nil || !strings.Contains(calls[0], "starts_with(name, 'spotworker-win-')") {
		t.Errorf("evict = %v after %q, want VMs of spotworker-win; it said:\n%s", err, calls, said)
	}
}

func TestEvict(t *testing.T) {
	a := newSubscription(t)
	const evicts = "vm simulate-eviction --resource-group spotworker --name "
	for _, c := range []struct{ name, running, argument, want string }{
		{"one that runs", "spotworker-spot_0a1b2c3d\n", "", "spotworker-spot_0a1b2c3d"},
		{"a certain one", "spotworker-spot_0a1b2c3d\n", "spotworker-spot_11111111", "spotworker-spot_11111111"},
		{"none there", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a.write("vm", c.running, 0o600)
			said, calls, err := a.run("deploy-evict.sh", strings.Fields(c.argument)...)
			evicted := strings.Contains(calls[len(calls)-1], evicts+c.want)
			if c.want == "" {
				if err == nil || strings.Contains(strings.Join(calls, "\n"), evicts) {
					t.Errorf("evict = %v after %q, want an error and no eviction", err, calls)
				}
				return
			}
			asked := strings.Join(calls, "\n")
			if c.argument == "" && !(strings.Contains(asked, "priority=='Spot' || priority=='SpotPlus'") &&
				strings.Contains(asked, "powerState=='VM running'")) {
				t.Errorf("evict asked %q, want VMs of either Spot priority that run", calls)
			}
			if err != nil || !evicted {
				t.Errorf("evict = %v after %q, want %s evicted; it said:\n%s", err, calls, c.want, said)
			}
		})
	}
}
