//go:build integration && linux

package azurecli

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/integration/namespace"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// inPlace are the words of documented commands that stand for something else. Storage is
// reached with lab up's connection string: az makes an account's address of its name, at
// the port of HTTPS, and no service of this machine has that.
var inPlace = strings.NewReplacer(
	"/tmp/spotworker-lab-1234/", "", " --auth-mode login", "", ` --account-name "$account"`, "", " --account-name $account", "",
	"SUBSCRIPTION", "00000000-0000-0000-0000-000000000000", "--name VM", "--name spotworker-spot_00000002", "VM=NAME",
	"VM=spotworker-spot_00000003",
)

// TestDocumentedCommandsRun runs the commands of README and docs that the local resource
// manager and storage can do, with the real Azure CLI.
func TestDocumentedCommandsRun(t *testing.T) {
	proof.Only(t, "az takes a second a command")
	namespace.Run(t, prepare, documentedCommandsRun)
}

func documentedCommandsRun(t *testing.T) {
	up := startUp(t, "--flexible", "--vms", "4", "--files", "0", "--eviction-delay", "0s")
	up.signIn(t)
	worker := up.start(t, "/vms/spotworker-spot_00000001\n")
	worker.until(t, `"msg":"state changed".*"to":"process"`)

	repository := repository.Root(t)
	sources := t.TempDir()
	if err := os.WriteFile(sources+"/deploy.md", []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	folder := up.until(t, `(/\S+)/az vm simulate-eviction`)
	environment := strings.Join([]string{
		"cd " + repository, "export PATH=" + folder + ":$PATH", "group=spotworker prefix=spotworker vm=spotworker-spot_00000004", "",
	}, "\n")
	if said, err := up.run(t, environment+"az storage container create --name archive && az storage container create --name "+
		"spotworker-packages"); err != nil {
		t.Fatalf("containers: %v: %s", err, said)
	}

	// The columns show the facts that a reader looks for. It comes first: az vm list
	// --show-details fails if a VM goes while it asks for one after the other.
	for command, want := range map[string]string{
		"az vm list --resource-group spotworker --show-details --output tsv " +
			"--query '[].[name, priority, powerState]'": `spotworker-spot_0000000\d\tSpot\tVM running`,
		"az storage blob list --container-name spotworker-workers --include m --output tsv --query '[].metadata.state'": `process`,
	} {
		if said, err := up.run(t, environment+command); err != nil || !regexp.MustCompile(want).MatchString(said) {
			t.Errorf("%s: %v, want %s: %s", command, err, want, said)
		}
	}

	ran := 0
	for _, c := range toRun(t) {
		name, _ := c.runs()
		text := strings.Replace(inPlace.Replace(c.text), "--source docs", "--source "+sources, 1)
		said, err := up.run(t, environment+text)
		if err != nil || !regexp.MustCompile(runnable[name]).MatchString(strings.TrimSpace(said)) {
			t.Errorf("%s:%d: %s: %v, want what matches %q: %s", c.document, c.line, text, err, runnable[name], said)
		}
		t.Logf("%s:%d: %s\n%.300s", c.document, c.line, text, said)
		ran++
	}
	if ran < len(runnable) {
		t.Errorf("%d commands ran, want at least %d", ran, len(runnable))
	}
	// make evict takes the first VM that runs; the others are named.
	for _, vm := range []string{"spotworker-spot_00000001", "spotworker-spot_00000002", "spotworker-spot_00000003"} {
		up.until(t, `Eviction notice: Preempt of `+vm)
	}
}

// toRun returns the commands to run, each text once.
func toRun(t *testing.T) (list []documentedCommand) {
	all := documentedCommands(t)
	seen := map[string]bool{}
	for _, c := range all { // a line with a command that cannot run does not
		if run, _ := c.runs(); run == "" {
			seen[c.text] = true
		}
	}
	for _, c := range all {
		if !seen[c.text] {
			seen[c.text] = true
			list = append(list, c)
		}
	}
	return list
}
