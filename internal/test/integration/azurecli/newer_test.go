//go:build integration && linux

package azurecli

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spotworker/spotworker/internal/test/integration/namespace"
	"github.com/spotworker/spotworker/internal/test/need"
	"github.com/spotworker/spotworker/internal/test/proof"
	"github.com/spotworker/spotworker/internal/test/repository"
)

// TestNewerAzureCLI evicts workers as TestAzureCLI does, with a newer Azure CLI: in a quick run
// a worker of a Uniform scale set only.
func TestNewerAzureCLI(t *testing.T) {
	namespace.Run(t, prepareNewer, func(t *testing.T) {
		evictions(t, func(t *testing.T) { evictInstance(t) })
	})
}

// TestDocumentedCommandsRunNewer runs the commands of README and docs with a newer Azure CLI.
func TestDocumentedCommandsRunNewer(t *testing.T) {
	proof.Only(t, "az takes a second a command")
	namespace.Run(t, prepareNewer, documentedCommandsRun)
}

// prepareNewer puts the Azure CLI that tools/azure-cli.sh unpacks before all others in PATH.
func prepareNewer(t *testing.T) []string {
	folder := filepath.Join(repository.Root(t), ".tools", "azure-cli")
	if _, err := os.Stat(filepath.Join(folder, "mark")); err != nil {
		need.Missing(t, "a newer Azure CLI in .tools")
	}
	return append(programs(t), "PATH="+folder+":"+os.Getenv("PATH"))
}

// bicepScript stands for the Bicep compiler: it answers with a template that has the
// parameters of deploy.sh's commands.
const bicepScript = `#!/bin/sh
case $1 in --version) echo "Bicep CLI version 0.34.44 (0000000000)"; exit ;; esac
cat <<'END'
{"parametersJson": "{\"parameters\": {}}", "templateJson": "{\"$schema\":` +
	` \"https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#\", \"resources\": [],` +
	` \"parameters\": {\"stage\": {\"type\": \"string\"}, \"location\": {\"type\": \"string\"}, \"prefix\": {\"type\": \"string\"},` +
	` \"operatorKind\": {\"type\": \"string\"},` +
	` \"failOnInstall\": {\"type\": \"bool\"}}}"}
END
`

// known begins the local resource manager's refusal of a path.
const known = `this emulator knows .*, and not /subscriptions/[0-9a-f-]+/`

// reaches has patterns of the local resource manager's refusals, by the first words of a
// command: az accepted the command, and sent a request.
var reaches = map[string]string{
	"az group create":             known + `resourcegroups/spotworker`,
	"az deployment group what-if": known + `\S+/deployments/spotworker-deploy/whatIf`,
	"az deployment group show":    known + `\S+/deployments/spotworker-deploy`,
	// A refusal of the validation before it has no text in 2.74.
	"az deployment group create": known + `\S+/deployments/spotworker-deploy|The content for this response was already consumed`,
}

// TestDeployCommandsNewer runs the commands of a dry run of tools/deploy.sh: a newer Azure
// CLI accepts each with its options, and asks the resource manager for the resource.
func TestDeployCommandsNewer(t *testing.T) {
	proof.Only(t, "az takes a second a command")
	namespace.Run(t, prepareNewer, deployCommands)
}

func deployCommands(t *testing.T) {
	dry := exec.CommandContext(t.Context(), "tools/deploy.sh", "--dry-run")
	dry.Dir = repository.Root(t)
	plan, err := dry.Output()
	if err != nil {
		t.Fatal(err)
	}
	up := startUp(t, "--files", "0")
	up.signIn(t)
	tools := t.TempDir()
	if err := os.WriteFile(filepath.Join(tools, "bicep"), []byte(bicepScript), 0o700); err != nil {
		t.Fatal(err)
	}
	az := up.until(t, `(\S+)/az vmss simulate-eviction`)
	environment := "export PATH=" + az + ":" + tools + ":$PATH AZURE_BICEP_USE_BINARY_FROM_PATH=true; cd " + repository.Root(t) + "; "
	seen := map[string]bool{}
	for _, m := range regexp.MustCompile(`(az (?:group|deployment)(?: [a-z][a-z-]*)+) (--[^>)\n]*)`).FindAllStringSubmatch(string(plan), -1) {
		// The steps differ in the values of their parameters.
		kind := m[1] + " " + regexp.MustCompile(`=\w+|outputs\.\w+`).ReplaceAllString(m[2], "")
		if seen[kind] {
			continue
		}
		seen[kind], seen[m[1]] = true, true
		said, err := up.run(t, environment+m[0])
		if reaches[m[1]] == "" || err == nil || !regexp.MustCompile(reaches[m[1]]).MatchString(said) {
			t.Errorf("%s: %v, want the resource manager's refusal %q: %s", m[0], err, reaches[m[1]], said)
		}
	}
	for name := range reaches {
		if !seen[name] {
			t.Errorf("a dry run has no %s:\n%s", name, plan)
		}
	}
	// A command that az does not accept never gets there.
	said, err := up.run(t, environment+"az group create --nam spotworker --place westeurope")
	if err == nil || strings.Contains(said, "this emulator knows") {
		t.Errorf("a misspelt option: %v, want a refusal by az: %s", err, said)
	}
}
