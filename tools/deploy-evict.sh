#!/usr/bin/env bash
# Evicts one Spot VM of a deployment, as Azure would: the VM gets its notice,
# and is gone within half an hour. The name of a VM as the argument; without
# one, the first that runs. DRY_RUN=1 only prints the command. RESOURCE_GROUP, PREFIX
# and PARAMETERS are those of tools/deploy.sh.
#
# The VMs of a Flexible scale set are VMs like any other, so it is az vm; for a
# Uniform one it would be az vmss simulate-eviction --instance-id.
set -euo pipefail
cd "$(dirname "$0")/.."

group=${RESOURCE_GROUP:-spotworker}
parameters=${PARAMETERS:-infra/bicep/cheapest.bicepparam}
prefix=${PREFIX:-$(sed -n "s/^param prefix = '\([a-z0-9-]*\)'.*/\1/p" "$parameters")}
prefix=${prefix:-spotworker}
vm=${1:-}

if [ -z "$vm" ] && [ -n "${DRY_RUN:-}" ]; then
  vm=VM
fi
if [ -z "$vm" ]; then
  command -v az >/dev/null || { echo "evict: az is missing: install the Azure CLI, and run az login" >&2; exit 1; }
  # --show-details asks for the power state; a VM that is stopped has nothing to
  # evict. It asks for one VM after the other, and fails if a VM goes before its turn.
  for try in 1 2 3; do
    if vm=$(az vm list --resource-group "$group" --show-details --output tsv --query \
      "[?(priority=='Spot' || priority=='SpotPlus') && powerState=='VM running' && starts_with(name, '$prefix-')].name | [0]"); then
      break
    fi
    [ "$try" -lt 3 ] || exit 1
  done
  [ -n "$vm" ] || { echo "evict: no Spot VM of $prefix runs in resource group $group" >&2; exit 1; }
fi

printf '$ az vm simulate-eviction --resource-group %q --name %q\n' "$group" "$vm"
[ -n "${DRY_RUN:-}" ] || az vm simulate-eviction --resource-group "$group" --name "$vm"
