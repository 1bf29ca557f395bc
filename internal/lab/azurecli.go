package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/uuid"

	"github.com/spotworker/spotworker/internal/emulator/imds"
)

// azScript runs the Azure CLI in a configuration of its own, signed in at the
// local resource manager. The first run signs in.
//
// az asks more than it is told to: with a new configuration it looks up its
// latest version on azure.microsoft.com and GitHub. The proxy, at which nobody
// listens, keeps that and everything else on this machine; az goes on without.
// Variables in lower case, since Python prefers them.
//
// Profiles pin api-versions. The one here is that of Azure Stack Hub, the newest
// that every az knows which has simulate-eviction and takes an own cloud; one
// that does not have it any more uses its latest versions.
const azScript = `#!/bin/sh
# The Azure CLI on the local Azure of lab up; nothing leaves this machine.
set -eu
# With this folder in PATH, for other scripts, az is still the real one here.
PATH=$(printf %%s "$PATH" | tr : '\n' | grep -vxF %[7]s | paste -s -d : -)
export AZURE_CONFIG_DIR=%[1]s AZURE_CORE_COLLECT_TELEMETRY=0 REQUESTS_CA_BUNDLE=%[2]s
export http_proxy=http://127.0.0.1:1 https_proxy=http://127.0.0.1:1 all_proxy=http://127.0.0.1:1 no_proxy=localhost,127.0.0.1
%[3]s
if ! [ -e "$AZURE_CONFIG_DIR/ready" ]; then
  rm -rf "$AZURE_CONFIG_DIR" # what a sign-in left that did not get to its end
  register="az cloud register --name lab --endpoint-resource-manager %[4]s --suffix-storage-endpoint storage.localhost --only-show-errors"
  $register --profile 2020-09-01-hybrid 2>/dev/null || $register
  az cloud set --name lab --only-show-errors
  az login --service-principal --username %[5]s --password any --tenant %[6]s --only-show-errors --output none
  : >"$AZURE_CONFIG_DIR/ready"
fi >&2
exec az "$@"
`

// writeAzureCLI writes the script into the lab's folder and returns its path,
// empty on a system without POSIX shells.
func (u *up) writeAzureCLI(authority string) (string, error) {
	if runtime.GOOS == "windows" {
		return "", nil
	}
	account := "unset " + connectionStringVariable
	if u.local.ConnectionString != "" {
		account = "export " + connectionStringVariable + "=" + quote(u.local.ConnectionString)
	}
	text := fmt.Sprintf(azScript, quote(filepath.Join(u.folder, "azure")), quote(authority), account,
		u.local.ManagerURL, uuid.New(), uuid.New(), quote(u.folder))
	name := filepath.Join(u.folder, "az")
	if err := os.WriteFile(name, []byte(text), 0o700); err != nil { //nolint:gosec // it is to be run
		return "", fmt.Errorf("write the script for the Azure CLI: %w", err)
	}
	return name, nil
}

// evictArguments are what the Azure CLI is told to evict a VM.
func (l *Local) evictArguments(vm string) string {
	for _, v := range l.Metadata.VMs() {
		if v.Name == vm {
			return evictArguments(v)
		}
	}
	return ""
}

// evictArguments depend on what a VM is: an instance of a Uniform scale set is
// named by its number, any other VM by its name.
func evictArguments(vm imds.VM) string {
	if id := vm.ResourceID(); strings.Contains(id, "/virtualMachineScaleSets/") {
		return fmt.Sprintf("vmss simulate-eviction --resource-group %s --name %s --instance-id %s", vm.ResourceGroup, vm.ScaleSet, id[strings.LastIndexByte(id, '/')+1:])
	}
	return fmt.Sprintf("vm simulate-eviction --resource-group %s --name %s", vm.ResourceGroup, vm.Name)
}
