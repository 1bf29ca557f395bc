#!/usr/bin/env bash
# Moves the Spot VMs of a deployment to another region: makes as many there (tools/deploy.sh), and
# when their workers take jobs, drains those of all other regions and removes their VMs. Jobs,
# records and the storage account stay where they are, VMs for the on-demand queue too. It may be run
# again after any failure.
#
#   REGION=northeurope tools/rehome.sh             what would change is shown before each step, and asked
#   REGION=northeurope tools/rehome.sh --yes       shown, not asked
#   REGION=northeurope tools/rehome.sh --dry-run   only the commands; needs neither az nor a subscription
#   spotctl plan ... -o json | tools/rehome.sh     to the best region of the answer; with plan --watch only
#                                                  to one that it recommends
#   tools/rehome.sh --where                        print the regions with VMs, and change nothing
#
# From the environment: RESOURCE_GROUP (of the first region, which has the storage account), PREFIX,
# and what tools/deploy.sh reads for the new region. Defaults: PARAMETERS is
# infra/bicep/region.bicepparam (none for the way back to the first region), CAPACITY the number of
# VMs in the other regions, APPLICATION_VERSION what they have (PACKAGE should be of it), SPOTCTL
# bin/spotctl. A new region gets the resource group of the first one with -REGION behind its name.
set -euo pipefail
cd "$(dirname "$0")/.."

home=${RESOURCE_GROUP:-spotworker}
prefix=${PREFIX:-spotworker}
spotctl=${SPOTCTL:-bin/spotctl}
spot=$prefix-spot

mode=ask
case "${1:-}" in
  '') ;;
  --yes | --dry-run | --where) mode=${1#--} ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tools/rehome.sh >&2; exit 2 ;;
esac

fail() { echo "rehome: $*" >&2; exit 1; }

# run COMMAND...: show it, and run it unless the mode changes nothing.
run() {
  local words
  printf -v words ' %q' "$@"
  echo "\$$words"
  [ "$mode" = dry-run ] || "$@"
}

# confirm QUESTION: continue only if a person agrees. Standard input may be a plan.
confirm() {
  [ "$mode" = ask ] || return 0
  local answer
  read -r -p "$1 [y/N] " answer </dev/tty || answer=
  [ "$answer" = y ] || fail "stopped; VMs in $region stay, and the next run continues from here"
}

# accountOf GROUP: the storage account of the deployment in a resource group.
accountOf() {
  az deployment group show --resource-group "$1" --name "$prefix-deploy" --output tsv --query properties.outputs.accountName.value
}

# regions: resource group, region, number of VMs and version of this deployment's scale sets, one a
# line. Sets of the same name belong to it if they work on the same account.
regions() {
  local list name location capacity package its
  list=$(az vmss list --output tsv --query \
    "[?name=='$spot'].[resourceGroup, location, sku.capacity, virtualMachineProfile.applicationProfile.galleryApplications[0].packageReferenceId]") ||
    fail "the scale sets of the subscription cannot be listed, for the reason above; nothing was changed"
  while IFS=$'\t' read -r name location capacity package; do
    [ -n "$name" ] || continue
    name=$(tr '[:upper:]' '[:lower:]' <<<"$name")
    if ! its=$(accountOf "$name"); then
      echo "rehome: set $spot of resource group $name stays as it is: no deployment $prefix-deploy made it" >&2
    elif [ "$its" = "$account" ]; then
      printf '%s\t%s\t%s\t%s\n' "$name" "$location" "$capacity" "${package##*/}"
    fi
  done <<<"$list"
}

region=${REGION:-}
if [ "$mode" != where ] && [ -z "$region" ]; then
  [ ! -t 0 ] || fail "give REGION=NAME, or pipe in what spotctl plan -o json prints"
  # A choice of plan, or a finding of plan --watch that names a region.
  region=$(sed -n 's/^{\("finding":{\)\{0,1\}\("size":"[^"]*",\)\{0,1\}"region":"\([a-z0-9]*\)".*/\3/p' | sed -n 1p)
  [ -n "$region" ] || { echo "the plan names no region to move to: nothing is changed"; exit; }
fi
case $region in *[!a-z0-9]*) fail "REGION is '$region': give the name that az account list-locations has, such as northeurope" ;; esac
[ "$mode" != ask ] || { : </dev/tty; } 2>/dev/null || fail "there is no terminal to ask on: give --yes, or --dry-run"

to='' vms=0 here=0 version='' from=()
if [ "$mode" = dry-run ]; then
  account=ACCOUNT # as a text that the parameter file may have
  from=("$home")
  echo "\$ az deployment group show --resource-group $home --name $prefix-deploy --output tsv --query properties.outputs.accountName.value  # ACCOUNT"
else
  account=$(accountOf "$home") || account=
  [ -n "$account" ] ||
    fail "cannot read deployment $prefix-deploy of resource group $home, for the reason above: set RESOURCE_GROUP and PREFIX to those of the first region"
  list=$(regions) || exit
  if [ "$mode" = where ]; then
    awk -F '\t' '$3 > 0 { print $2 }' <<<"$list"
    exit
  fi
  [ -x "$(command -v "$spotctl")" ] || fail "there is no $spotctl, which drains the workers: run make build"
  while IFS=$'\t' read -r name location capacity package; do
    [ -n "$name" ] || continue
    if [ "$location" = "$region" ]; then
      to=$name here=$capacity
    else
      from+=("$name")
      version=$package vms=$((vms + capacity))
    fi
  done <<<"$list"
  if [ -n "$to" ] && [ "$vms" -eq 0 ]; then
    echo "the VMs are in $region, and in no other region: nothing is changed"
    exit
  fi
  [ ${#from[@]} -gt 0 ] || fail "no scale set $spot works on account $account: a fleet or a single VM is moved by hand (docs/deploy.md)"
fi
# Of a move that failed half-way the VMs are there.
[ "$here" -le "$vms" ] || vms=$here

[ -z "$version" ] || [ "$version" = None ] || export APPLICATION_VERSION="${APPLICATION_VERSION:-$version}"
if [ "$to" = "$(tr '[:upper:]' '[:lower:]' <<<"$home")" ]; then
  [ -n "${PARAMETERS:-}" ] || fail "$region is the first region: set PARAMETERS to its parameter file"
else
  export ACCOUNT_GROUP="$home" ACCOUNT_NAME="$account" PARAMETERS="${PARAMETERS:-infra/bicep/region.bicepparam}"
fi
export RESOURCE_GROUP="${to:-$home-$region}" LOCATION="$region" CAPACITY="${CAPACITY:-$((vms > 0 ? vms : 1))}"

echo "== rehome, 1 of 2: $CAPACITY VM(s) in $region, resource group $RESOURCE_GROUP"
case $mode in
  ask) tools/deploy.sh </dev/tty ;;
  dry-run)
    echo "\$ export RESOURCE_GROUP=$RESOURCE_GROUP LOCATION=$region PARAMETERS=$PARAMETERS ACCOUNT_GROUP=$home ACCOUNT_NAME=$account CAPACITY=$CAPACITY"
    tools/deploy.sh --dry-run
    ;;
  *) tools/deploy.sh --yes ;;
esac

# workersIn GROUP: the names of the VMs of its set that have a worker.
workersIn() {
  local names workers
  names=$(az vm list --resource-group "$1" --output tsv --query "[?starts_with(name, '${spot}_')].name") &&
    workers=$("$spotctl" workers --account "$account" --prefix "$prefix" --output json) || return
  sed -n 's/.*"vm":"\([^"]*\)".*/\1/p' <<<"$workers" | sort -u | awk 'NR == FNR { is[$1]; next } $1 in is' <(printf '%s\n' "$names") -
}

for group in ${from[@]+"${from[@]}"}; do
  echo "== rehome, 2 of 2: the VMs of resource group $group hand over their jobs and are removed"
  confirm "Drain and remove them?"
  scaled=$spot drained=WORKERS
  if [ "$mode" != dry-run ]; then
    scaled=$(az monitor autoscale list --resource-group "$group" --output tsv --query "[?name=='$spot'].name")
    drained=$(workersIn "$group") || fail "cannot find the workers of resource group $group, for the reason above; run this again"
  fi
  [ -z "$scaled" ] || run az monitor autoscale delete --resource-group "$group" --name "$spot"
  # shellcheck disable=SC2086 # one word for each VM
  if [ -n "$drained" ]; then
    run "$spotctl" drain $drained --account "$account" --prefix "$prefix" --reason "moved to $region" --wait 5m
  fi
  run az vmss scale --resource-group "$group" --name "$spot" --new-capacity 0 --output none
  # shellcheck disable=SC2086
  if [ -n "$drained" ]; then
    run "$spotctl" resume $drained --account "$account" --prefix "$prefix" # the names are gone
  fi
  [ "$group" = "$(tr '[:upper:]' '[:lower:]' <<<"$home")" ] ||
    echo "nothing of $group works any more; az group delete --name $group removes network, gallery and identities"
done
[ "$mode" = dry-run ] || echo "done: the jobs run in $region"
