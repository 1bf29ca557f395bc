package up

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/lab"
	"github.com/spotworker/spotworker/internal/lab/emulator/imds"
	"github.com/spotworker/spotworker/internal/program"
	"github.com/spotworker/spotworker/internal/text/plaintext"
)

// producerVM is a VM of regular priority, which is not in the scale set and is never evicted.
const producerVM = "producer"

// guide is the commands that a person pastes into other terminals.
type guide struct {
	account  string                 // the connection string of the storage account
	base     func(vm string) string // address of a VM's metadata service
	listen   func(vm string) string // where a VM's worker serves health and metrics
	port     string                 // flag of lab evict; empty for the default
	az       string                 // path of the Azure CLI's script; empty where it cannot run
	evict    func(vm string) string // arguments with which the Azure CLI evicts a VM
	queue    string                 // the queue of jobs
	sample   string                 // a blob to hash; empty without any
	windows  bool                   // the terminals run cmd
	page     string                 // address of the page of spotctl web; empty without it
	frozen   string                 // kinds file with a program that is frozen; empty where CRIU does not work
	unfrozen error                  // why it does not
	workers  bool                   // lab up has started them
	commands bool                   // they run any command
	kind     string                 // the first of their kinds file; empty without one
}

func (u *up) newGuide(ctx context.Context) (guide, error) {
	g := guide{
		account: u.local.ConnectionString, base: u.local.Endpoint, listen: listenAddress,
		evict: u.evictArguments, queue: u.names.Queue, sample: u.sample, windows: runtime.GOOS == "windows",
	}
	if u.config.Local.MetadataPort != DefaultMetadataPort {
		g.listen = func(string) string { return anyPort } // another lab up may use the usual ones
		g.port = " --metadata-port " + u.local.MetadataPort()
	}
	authority, err := u.local.WriteAuthority(u.folder)
	if err != nil {
		return g, err
	}
	if _, err := exec.LookPath("az"); err == nil {
		if g.az, err = u.writeAzureCLI(authority); err != nil {
			return g, err
		}
	}
	if g.workers = u.config.Workers > 0; g.workers {
		g.commands = u.config.Commands
		if u.config.KindsFile != "" {
			kinds, err := program.ReadKinds(u.config.KindsFile)
			if err != nil {
				return g, err
			}
			if len(kinds) > 0 {
				g.kind = kinds[0].Name
			}
		}
		return g, nil
	}
	if g.unfrozen = lab.CheckSnapshots(ctx, u.folder); g.unfrozen == nil {
		g.frozen = filepath.Join(u.folder, "unchanged.json")
		err = os.WriteFile(g.frozen, []byte(unchangedKind), 0o600)
	}
	return g, err
}

// exampleKinds is the kinds file of an example.
const exampleKinds = "examples/training/kinds.json"

// example returns the flags of a job of an example.
func (g guide) example() string {
	if g.windows {
		return `--kind train --payload "{\"epochs\": 80, \"points\": 400, \"seed\": 7}"`
	}
	return `--kind train --payload '{"epochs": 80, "points": 400, "seed": 7}'`
}

// unchangedKind is a kinds file with a program that counts its payload's seconds and saves
// nothing.
const unchangedKind = `{"kinds": {"unchanged": {
  "command": ["sh", "-c", "for i in $(seq $(cat payload)); do echo $i; sleep 1; done >out"],
  "snapshot": "criu",
  "outputs": {"from": ["out"]}}}}
`

// write prints all commands for those VMs.
func (g guide) write(out io.Writer, vms []string) {
	var b strings.Builder
	b.WriteString("\nA local Azure is up on 127.0.0.1, until Ctrl-C. Nothing leaves this machine.\n")
	if g.workers {
		g.writeFirstJob(&b)
	} else {
		g.writeTerminals(&b, vms)
	}
	fmt.Fprintf(&b, "\nEvict a VM with 30 s of notice, or withdraw the eviction:\n\n    %[1]s evict%[2]s %[3]s\n    %[1]s "+
		"withdraw%[2]s %[3]s\n\n",
		g.program("lab"), g.port, vms[0])
	if g.az != "" {
		g.writeAzureCLI(&b, vms[0])
	}
	g.writeSnapshots(&b)
	if g.page != "" {
		fmt.Fprintf(&b, "Look at it in a browser, where this address works once:\n\n    %s\n\n", g.page)
	}
	fmt.Fprint(out, b.String())
}

// writeFirstJob prints the commands that run a job on the workers that lab up has started.
func (g guide) writeFirstJob(b *strings.Builder) {
	b.WriteString("A job of yours, in another terminal:\n\n")
	g.export(b, lab.ConnectionStringVariable, g.account)
	if g.commands {
		command := `sh -c 'echo hello from $SPOTWORKER_JOB_ID'`
		if g.windows {
			command = "cmd /c ver"
		}
		fmt.Fprintf(b, "    %s run -- %s\n", g.program("producer"), command)
	}
	if g.kind != "" {
		fmt.Fprintf(b, "    %s --wait put --kind %s --payload JSON\n", g.program("producer"), quote(g.kind))
	}
	if g.sample != "" {
		fmt.Fprintf(b, "    %s digests --container %s\n", g.program("producer"), lab.InputContainer)
	}
	if !g.commands && g.kind == "" {
		b.WriteString("\nStart lab up with --kinds-file FILE for programs of yours, or with --commands for any command.\n")
	}
}

// writeTerminals prints the commands for a producer and for workers that people start.
func (g guide) writeTerminals(b *strings.Builder, vms []string) {
	b.WriteString("With --workers 2 it starts the workers too: one terminal less for each.\n")
	if g.windows {
		b.WriteString("First, in every console (cmd), in the folder above bin:\n\n")
	} else {
		b.WriteString("make build makes the programs. First, in every terminal:\n\n")
	}
	g.export(b, lab.ConnectionStringVariable, g.account)
	b.WriteString("\nIn one for the producer:\n\n")
	if g.sample != "" {
		fmt.Fprintf(b, "    %s digests --container %s\n", g.program("producer"), lab.InputContainer)
	} else {
		fmt.Fprintf(b, "    %s --wait put %s\n", g.program("producer"), g.example())
	}
	create := ""
	if g.sample == "" {
		create = " --create"
	}
	fmt.Fprintf(b, "\nThere too, to give jobs a file of yours as an input:\n\n    %s upload FILE --to %s%s\n",
		g.program("spotctl"), lab.InputContainer, create)
	b.WriteString("\nIn one for each worker; each stands for a VM:\n")
	for _, vm := range vms {
		g.writeWorker(b, vm)
	}
}

// writeSnapshots prints how an unchanged program becomes a job, or in one line why not here.
func (g guide) writeSnapshots(b *strings.Builder) {
	switch {
	case g.frozen != "":
		fmt.Fprintf(b, "A program that saves nothing, which CRIU freezes at an eviction: start the workers with --kinds-file %s too, and in the "+
			"producer's terminal:\n\n    %s put --kind unchanged --payload 60\n\n", quote(g.frozen), g.program("producer"))
	case g.unfrozen != nil:
		fmt.Fprintf(b, "Programs that save nothing cannot be frozen here: %s\n\n", plaintext.Line(g.unfrozen.Error()))
	}
}

// writeAzureCLI prints the possible commands of the Azure CLI.
func (g guide) writeAzureCLI(b *strings.Builder, vm string) {
	fmt.Fprintf(b, "Or with the Azure CLI; as on Azure, the notice comes some seconds later:\n\n    %s %s\n\n", quote(g.az), g.evict(vm))
	if g.sample == "" {
		return
	}
	fmt.Fprintf(b, "It can also put a message without an envelope:\n\n    %s storage message put --queue-name %s --time-to-live -1 "+
		"--content %s\n\n",
		quote(g.az), g.queue, quote(fmt.Sprintf(`{"container":%q,"blob":%q}`, lab.InputContainer, g.sample)))
}

// writeWorker prints the commands that start a worker on a VM, for a terminal that
// has the storage account's variables.
func (g guide) writeWorker(out io.Writer, vm string) {
	var b strings.Builder
	b.WriteString("\n")
	g.export(&b, "SPOTWORKER_METADATA_ENDPOINT", g.base(vm))
	flags := "--kinds-file " + exampleKinds
	if g.sample != "" {
		flags = "--data-container " + lab.InputContainer + " --default-kind digest"
	}
	fmt.Fprintf(&b, "    %s %s --listen %s\n", g.program("worker"), flags, g.listen(vm))
	fmt.Fprint(out, b.String())
}

const (
	// workerPort is the port of a worker's health and metrics where a VM has one
	// worker.
	workerPort = 8810

	// anyPort is an address with a free port.
	anyPort = "127.0.0.1:0"
)

// listenAddress returns where a VM's worker serves health and metrics. The VMs
// share a machine, so each worker needs a port of its own: 8811 for VM number 1.
func listenAddress(vm string) string {
	n, err := strconv.Atoi(vm[strings.LastIndexByte(vm, '_')+1:])
	if err != nil {
		return anyPort
	}
	return fmt.Sprintf("127.0.0.1:%d", workerPort+n)
}

// program returns the command that runs one of our programs.
func (g guide) program(name string) string {
	if g.windows {
		return `bin\` + name
	}
	return "bin/" + name
}

// export prints the command that sets a variable. In cmd the quotes around the whole
// keep the signs of the value from being read as commands.
func (g guide) export(b *strings.Builder, name, value string) {
	if g.windows {
		fmt.Fprintf(b, "    set \"%s=%s\"\n", name, value)
		return
	}
	fmt.Fprintf(b, "    export %s=%s\n", name, quote(value))
}

// quote quotes a value for a shell where that is necessary.
func quote(value string) string {
	if strings.ContainsFunc(value, func(c rune) bool { return !isPlainInShell(c) }) {
		return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
	}
	return value
}

func isPlainInShell(c rune) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.ContainsRune("_./:-,@%+", c)
}

// azScript runs the Azure CLI with a configuration of its own, signed in to the
// local resource manager. The first run signs in.
//
// With a new configuration, az looks up its latest version on azure.microsoft.com
// and GitHub. The proxy, which does not exist, keeps all such requests on this
// machine, and az continues without an answer. Its variables are in lower case,
// which Python prefers.
//
// Profiles pin api-versions. This one, Azure Stack Hub's, is the newest in every
// az that has simulate-eviction and accepts a cloud of one's own; an az without it
// uses its latest api-versions.
const azScript = `#!/bin/sh
# The Azure CLI on the local Azure of lab up; nothing leaves this machine.
set -eu
# This folder may be in PATH for other scripts; here az is the real one.
PATH=$(printf %%s "$PATH" | tr : '\n' | grep -vxF %[7]s | paste -s -d : -)
export AZURE_CONFIG_DIR=%[1]s AZURE_CORE_COLLECT_TELEMETRY=0 REQUESTS_CA_BUNDLE=%[2]s
export http_proxy=http://127.0.0.1:1 https_proxy=http://127.0.0.1:1 all_proxy=http://127.0.0.1:1 no_proxy=localhost,127.0.0.1
%[3]s
if ! [ -e "$AZURE_CONFIG_DIR/ready" ]; then
  rm -rf "$AZURE_CONFIG_DIR" # left by a sign-in that failed
  register="az cloud register --name lab --endpoint-resource-manager %[4]s --suffix-storage-endpoint storage.localhost --only-show-errors"
  $register --profile 2020-09-01-hybrid 2>/dev/null || $register
  az cloud set --name lab --only-show-errors
  az login --service-principal --username %[5]s --password any --tenant %[6]s --only-show-errors --output none
  : >"$AZURE_CONFIG_DIR/ready"
fi >&2
exec az "$@"
`

// writeAzureCLI writes the script into the lab's folder and returns its path;
// empty on a system without POSIX shells.
func (u *up) writeAzureCLI(authority string) (string, error) {
	if runtime.GOOS == "windows" {
		return "", nil
	}
	text := fmt.Sprintf(azScript, quote(filepath.Join(u.folder, "azure")), quote(authority),
		"export "+lab.ConnectionStringVariable+"="+quote(u.local.ConnectionString), u.local.ManagerURL, uuid.New(), uuid.New(), quote(u.folder))
	name := filepath.Join(u.folder, "az")
	if err := os.WriteFile(name, []byte(text), 0o700); err != nil { //nolint:gosec // an executable
		return "", fmt.Errorf("write the script for the Azure CLI: %w", err)
	}
	return name, nil
}

// evictArguments returns the Azure CLI's arguments that evict a VM.
func (u *up) evictArguments(vm string) string {
	for _, v := range u.local.Metadata.VMs() {
		if v.Name == vm {
			return evictArguments(v)
		}
	}
	return ""
}

// evictArguments depends on the kind of VM: the Azure CLI names an instance of a
// Uniform scale set by its number and any other VM by its name.
func evictArguments(vm imds.VM) string {
	if id := vm.ResourceID(); strings.Contains(id, "/virtualMachineScaleSets/") {
		return fmt.Sprintf("vmss simulate-eviction --resource-group %s --name %s --instance-id %s", vm.ResourceGroup, vm.ScaleSet,
			id[strings.LastIndexByte(id, '/')+1:])
	}
	return fmt.Sprintf("vm simulate-eviction --resource-group %s --name %s", vm.ResourceGroup, vm.Name)
}
