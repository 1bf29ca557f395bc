package policy

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// azStub stands for the Azure CLI: it notes what it is asked for, and answers
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
  "account show"*) test ! -f signed-out ;;
  "deployment group show"*accountName*) echo someaccount ;;
  "deployment group show"*workerConfiguration*) printf 'A=1\nB=2\n' ;;
  "ad signed-in-user show"*) echo 00000000-0000-0000-0000-000000000001 ;;
  "vmss show"*spot*) cat capacity ;;
  "vmss show"*) exit 3 ;;
  "vm list"*) cat vm ;;
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
}

func newSubscription(t *testing.T) *subscription {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the script needs a POSIX shell")
	}
	a := &subscription{t: t, folder: t.TempDir()}
	a.pkg = filepath.Join(a.folder, "package.tar.gz")
	a.write("az", azStub, 0o700)
	a.write("make", "#!/bin/sh\nexit 2\n", 0o700)
	a.write("package.tar.gz", "a package", 0o600)
	a.write("capacity", "", 0o600)
	return a
}

func (a *subscription) write(name, content string, mode os.FileMode) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.folder, name), []byte(content), mode); err != nil {
		a.t.Fatal(err)
	}
}

// deploy runs tools/deploy.sh and returns what it said and what az was asked for.
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
		"SSH_PUBLIC_KEY=ssh-ed25519 AAAA", "DEPLOY_RETRY=0",
	}
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
		for _, verb := range []string{"group create", "deployment group create", "storage blob upload"} {
			if !strings.HasPrefix(call, verb+" ") {
				continue
			}
			if _, stage, found := strings.Cut(call, "stage="); found {
				verb += " " + strings.Fields(stage)[0]
			}
			made = append(made, verb)
		}
	}
	return made
}

var everyStep = []string{
	"group create", "deployment group create Foundation",
	"storage blob upload", "storage blob upload",
	"deployment group create Application", "deployment group create Workers",
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
	a.write("package.tar.gz", "another package", 0o600)
	said, calls, err := a.deploy("--yes")
	if err == nil || !strings.Contains(said, "set APPLICATION_VERSION to a higher one") {
		t.Errorf("deploy of another package = %v, want a refusal; it said:\n%s", err, said)
	}
	if got := changing(calls); slices.Contains(got, "deployment group create Workers") {
		t.Errorf("the scale set was deployed all the same: %q", got)
	}
}

func TestDeployKeepsTheNumberOfVMs(t *testing.T) {
	a := newSubscription(t)
	a.write("capacity", "17\n", 0o600)
	said, calls, err := a.deploy("--yes")
	if err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	last := calls[len(calls)-1]
	if !strings.HasPrefix(last, "CAPACITY=17 deployment group create") {
		t.Errorf("scale set of 17 VMs was deployed by %q, want CAPACITY=17", last)
	}
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
	said, calls, err := a.deploy() // nobody there to answer
	if err == nil || !strings.Contains(said, "stopped") {
		t.Errorf("deploy without an answer = %v, want a stop; it said:\n%s", err, said)
	}
	if got := changing(calls); !slices.Equal(got, []string{"group create"}) {
		t.Errorf("without an answer it made %q, want the resource group alone", got)
	}
}

func TestDeployWithoutASubscription(t *testing.T) {
	a := newSubscription(t)
	a.write("signed-out", "", 0o600)
	said, calls, err := a.deploy("--yes")
	if err == nil || !strings.Contains(said, "nothing was deployed") {
		t.Errorf("deploy without a subscription = %v, want a failure that says so; it said:\n%s", err, said)
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
	said, calls, err := a.deploy("--what-if")
	if err != nil {
		t.Fatalf("deploy --what-if: %v\n%s", err, said)
	}
	if got := changing(calls); len(got) != 0 {
		t.Errorf("--what-if made %q", got)
	}
}

// TestDryRunIsTheDocumentation: the commands of a dry run are those of
// docs/deploy.md, one by one and in the same order.
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
			if c.argument == "" && !strings.Contains(strings.Join(calls, "\n"), "priority=='Spot' || priority=='SpotPlus'") {
				t.Errorf("evict asked %q, want VMs of either Spot priority", calls)
			}
			if err != nil || !evicted {
				t.Errorf("evict = %v after %q, want %s evicted; it said:\n%s", err, calls, c.want, said)
			}
		})
	}
}
