package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
)

// TestDeployStopsAtErrors: a call of az that fails, or an answer that lacks something, ends the
// deployment with a message, and nothing later is made.
func TestDeployStopsAtErrors(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	for _, c := range []struct {
		name        string
		file, note  string // a note of the subscription
		group       string // whether the resource group is there
		env         []string
		pkg         string // another package
		want, later string // in the output; how a change begins that must not follow, empty for any
	}{
		{name: "who is signed in", file: "broken", note: "ad signed-in-user", want: "cannot read who is signed in"},
		{name: "whether there is a group", file: "broken", note: "group exists", want: "whether there is a resource group spotworker,"},
		{name: "last location", file: "broken", note: "location.value", group: "true",
			want: "where resource group spotworker was deployed to"},
		{name: "location of the group", file: "broken", note: "group show", group: "true", want: "where resource group spotworker is,"},
		{name: "no quota of Spot cores", file: "usage", want: "the quota of Spot cores in westeurope cannot be read"},
		{name: "no quota of regular cores", file: "regular", env: []string{"ONDEMAND_CAPACITY=1"},
			want: "the quota of regular cores in westeurope cannot be read"},
		{name: "usage", file: "broken", note: "vm list-usage", want: "InternalServerError"},
		{name: "sizes", file: "broken", note: "vm list-skus", want: "InternalServerError"},
		{name: "providers", file: "broken", note: "provider list", want: "InternalServerError"},
		{name: "no public key", env: []string{"SSH_PUBLIC_KEY="}, want: "no public key in ~/.ssh"},
		{name: "no parameter file", env: []string{"PARAMETERS=nowhere.bicepparam"},
			want: "PARAMETERS is nowhere.bicepparam, and there is no such"},
		{name: "no package", pkg: "nowhere.tar.gz", want: "there is no nowhere.tar.gz"},
		{name: "roles", file: "broken", note: "role assignment list", want: "InternalServerError", later: "storage blob upload"},
		{name: "outputs", file: "broken", note: "outputs.accountName", want: "InternalServerError", later: "storage blob upload"},
		{name: "no configuration", file: "unconfigured", want: "gives no configuration for the workers", later: "storage blob upload"},
		{name: "deployment", file: "broken", note: "create --output none --resource-group spotworker --name spotworker-deploy",
			want: "InternalServerError", later: "storage blob upload"},
		{name: "what-if", file: "broken", note: "group what-if", want: "InternalServerError", later: "deployment group create"},
		{name: "upload", file: "broken", note: "blob upload", want: "InternalServerError", later: "deployment group create Application"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.ownParameters(oneSize + "param onDemand = " + map[bool]string{true: "true", false: "false"}[c.file == "regular"] + "\n")
			a.env = append(a.env, c.env...)
			if c.group != "" {
				a.write("group", c.group, 0o600)
			}
			if c.pkg != "" {
				a.pkg = c.pkg
			}
			if c.file != "" {
				a.write(c.file, c.note, 0o600)
			}
			said, calls, err := a.deploy("--yes")
			if err == nil || !strings.Contains(said, c.want) {
				t.Errorf("deploy = %v, want a failure with %q; it said:\n%s", err, c.want, said)
			}
			isLater := func(call string) bool { return strings.HasPrefix(call, c.later) }
			if got := changing(calls); slices.ContainsFunc(got, isLater) {
				t.Errorf("it made %q before it failed", got)
			}
		})
	}
}

// only makes programs the only ones in PATH, with the programs of every run.
func (a *subscription) only(programs ...string) {
	a.t.Helper()
	folder := filepath.Join(a.folder, "programs")
	if err := os.Mkdir(folder, 0o700); err != nil {
		a.t.Fatal(err)
	}
	for _, name := range append(programs, "bash", "env", "sh", "dirname", "sed", "grep", "awk", "tr", "cut", "sort", "head", "mktemp", "rm",
		"cat", "tar", "gzip", "sha256sum", "sleep") {
		program := filepath.Join(a.folder, name)
		if _, err := os.Stat(program); err != nil {
			if program, err = exec.LookPath(name); err != nil {
				a.t.Fatal(err)
			}
		}
		if err := os.Symlink(program, filepath.Join(folder, name)); err != nil {
			a.t.Fatal(err)
		}
	}
	// The stand-in for az finds its notes beside itself.
	a.write("programs/az", "#!/bin/sh\nexec '"+filepath.Join(a.folder, "az")+"' \"$@\"\n", 0o700)
	a.env = append(a.env, "PATH="+folder)
}

// TestDeployWithoutPrograms: a program that a setting needs is missed before anything is made.
func TestDeployWithoutPrograms(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	for _, c := range []struct{ name, env, want string }{
		{"no go to pack with", "CONFIGURATION_IN=Package", "needs Go"},
		{"no ssh-keygen", "ALLOWED_SIGNERS=README.md", "ssh-keygen is missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.only()
			a.env = append(a.env, c.env)
			said, calls, err := a.deploy("--yes")
			if err == nil || !strings.Contains(said, c.want) || len(changing(calls)) > 0 {
				t.Errorf("deploy = %v after %q, want a failure with %q; it said:\n%s", err, changing(calls), c.want, said)
			}
		})
	}
}

// TestDeployPassesTheOperator: the parameter file gets who is signed in, a key from ~/.ssh and
// the numbers of VMs of both sets.
func TestDeployPassesTheOperator(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	const me = "operator 00000000-0000-0000-0000-000000000001, key ssh-ed25519 "
	for _, c := range []struct{ name, env, want string }{
		{"from ~/.ssh", "SSH_PUBLIC_KEY=", "Workers: Spot 3, on-demand 2, " + me + "OWN\n"},
		{"given", "OPERATOR_ID=someone", "Workers: Spot 3, on-demand 2, operator someone, key ssh-ed25519 AAAA\n"},
		{"a number", "ONDEMAND_CAPACITY=4", "Workers: Spot 3, on-demand 4, " + me + "AAAA\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			if err := os.Mkdir(filepath.Join(a.folder, ".ssh"), 0o700); err != nil {
				t.Fatal(err)
			}
			a.write(".ssh/id_ed25519.pub", "ssh-ed25519 OWN\n", 0o600)
			for name, content := range map[string]string{"group": "true", "capacity": "3", "ondemandcapacity": "2", "heartbeats": "3"} {
				a.write(name, content, 0o600)
			}
			a.env = []string{c.env}
			said, _, err := a.deploy("--yes")
			if got := a.read("environment") + "\n"; err != nil || !strings.HasSuffix(got, c.want) {
				t.Errorf("deploy = %v with\n%swant at the end %q; it said:\n%s", err, got, c.want, said)
			}
		})
	}
}

// TestDeployUsesItsSettings: each documented setting has its effect and no other setting's.
func TestDeployUsesItsSettings(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	a.write("resourcegroup", "mine", 0o600)
	a.env = []string{"RESOURCE_GROUP=mine", "APPLICATION_VERSION=2.3.4", "OPERATOR_KIND=Group", "CAPACITY=1"}
	said, _, err := a.deploy("--yes")
	if err != nil || a.read(blobNote("2.3.4/spotworker.tar.gz")) == "" || a.read(blobNote("2.3.4/worker.env")) == "" {
		t.Errorf("deploy = %v, want the files of version 2.3.4; it said:\n%s", err, said)
	}
	if first, _, _ := strings.Cut(said, "\n"); first != "== checks: nothing is changed" || strings.Contains(said, "/az\n") {
		t.Errorf("deploy prints what programs say to each other:\n%s", said)
	}
}

// TestDefaultWaits: the default waits are as long as the messages and pages say. Tests do not
// wait that long: a program in the place of sleep notes how long the script would wait.
func TestDefaultWaits(t *testing.T) {
	for _, c := range []struct {
		name, note, want string
		sleeps           int
	}{
		{"roles", "refused", "10 minutes after the roles were assigned", 39}, // the last refusal is not waited for
		{"workers", "silent", "20 minutes after the deployment", 80},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.write(c.note, "", 0o600)
			a.write("sleep", "#!/bin/sh\necho \"$1\" >>'"+a.folder+"/sleeps'\n", 0o700)
			a.env = []string{"DEPLOY_RETRY=", "WORKERS_WITHIN="}
			said, _, err := a.deploy("--yes")
			sleeps := strings.Fields(a.read("sleeps"))
			others := slices.ContainsFunc(sleeps, func(s string) bool { return s != "15" })
			if err == nil || !strings.Contains(said, c.want) || len(sleeps) != c.sleeps || others {
				t.Errorf("deploy = %v after %d waits %q, want %d of 15 s and %q; it said:\n%.3000s",
					err, len(sleeps), sleeps, c.sleeps, c.want, said)
			}
		})
	}
}

// TestDeployElsewhere: each call names the given resource group and the prefix's resources.
func TestDeployElsewhere(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	t.Parallel()
	a := newSubscription(t)
	a.write("resourcegroup", "mine", 0o600)
	a.write("prefix", "my", 0o600)
	a.env = []string{"RESOURCE_GROUP=mine", "PREFIX=my"}
	if said, calls, err := a.deploy("--yes"); err != nil || !slices.Equal(changing(calls), everyStep) {
		t.Errorf("deploy = %v after %q, want every step; it said:\n%s", err, changing(calls), said)
	}
}

// TestDeployUploadsBothConfigurations: on-demand workers have a configuration of their own.
func TestDeployUploadsBothConfigurations(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	a.write("ondemandworkers", "", 0o600)
	said, _, err := a.deploy("--yes")
	if err != nil {
		t.Fatalf("deploy: %v\n%s", err, said)
	}
	for name, content := range map[string]string{"worker.env": "A=1\nB=2\n", "worker-ondemand.env": "A=3\n"} {
		a.write("expected", content, 0o600)
		want, err := digestOf(filepath.Join(a.folder, "expected"))
		if got := a.read(blobNote("1.0.0/" + name)); err != nil || got != want {
			t.Errorf("%s has the digest %q (%v), want %s", name, got, err, want)
		}
	}
}

// TestDeployOfAnotherPackage: facts that a package does not have are asked for when they are needed.
func TestDeployOfAnotherPackage(t *testing.T) {
	proof.Only(t, "each run of deploy.sh is hundreds of processes")
	for _, c := range []struct{ name, release, want string }{
		{"no processor", "RELEASE=1.2.3-0123456789ab\n", "1 worker(s) of version 1.2.3 take jobs"},
		{"no version", "ARCHITECTURE=amd64\n", "package.tar.gz does not say what version its worker is"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			a := newSubscription(t)
			a.pack("package.tar.gz", c.release)
			a.sizes(sized(first, func(s *vmSize) { s.Processor = map[bool]string{true: "Arm64", false: "x64"}[c.name == "no processor"] }))
			if said, _, err := a.deploy("--yes"); (err == nil) != (c.name == "no processor") || !strings.Contains(said, c.want) {
				t.Errorf("deploy = %v, want %q; it said:\n%s", err, c.want, said)
			}
		})
	}
}

// TestUsage: an unknown argument prints the settings and runs nothing.
func TestUsage(t *testing.T) {
	t.Parallel()
	a := newSubscription(t)
	said, calls, err := a.deploy("--help")
	for _, want := range []string{"Deploys to Azure", "--dry-run", "RESOURCE_GROUP", "resource group."} {
		if err == nil || !strings.Contains(said, want) {
			t.Errorf("deploy --help = %v, want %q in it:\n%s", err, want, said)
		}
	}
	if strings.Contains(said, "#") || strings.Contains(said, "set -") || calls[0] != "" {
		t.Errorf("deploy --help after %q says:\n%s", calls, said)
	}
}

// TestEvictShows: DRY_RUN asks nothing, and shows the command for some VM.
func TestEvictShows(t *testing.T) {
	need.NotOn(t, "windows", "the script needs a POSIX shell")
	t.Parallel()
	a := newSubscription(t)
	a.env = []string{"DRY_RUN=1", "RESOURCE_GROUP=mine"}
	said, calls, err := a.run("deploy-evict.sh")
	if want := "$ az vm simulate-eviction --resource-group mine --name VM\n"; err != nil || said != want || calls[0] != "" {
		t.Errorf("evict = %v after %q, and says %q, want %q", err, calls, said, want)
	}
}
