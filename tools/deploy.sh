#!/usr/bin/env bash
# Deploys to Azure, in the steps of docs/deploy.md: checks, package, storage,
# upload, application version, VMs, a check of the workers. It keeps existing
# resources, so it may be run again at any time, and after any failure.
#
#   tools/deploy.sh             what would change is shown before each step, and asked
#   tools/deploy.sh --yes       shown, not asked
#   tools/deploy.sh --what-if   shown, nothing changed
#   tools/deploy.sh --dry-run   only the commands; needs neither az nor a subscription
#
# From the environment, with the defaults below: RESOURCE_GROUP, PARAMETERS, PREFIX
# (default: the parameter file's), LOCATION (default: the parameter file's, else the
# last deployment's, else the resource group's, else westeurope),
# APPLICATION_VERSION, PACKAGE, OPERATOR_ID (default: who is
# signed in to az), OPERATOR_KIND (User, Group or ServicePrincipal),
# OPERATOR_ADDRESSES (public IPv4 addresses that may reach the storage account,
# with commas between them), SSH_PUBLIC_KEY (default: the first key in ~/.ssh),
# CAPACITY and ONDEMAND_CAPACITY (default: the numbers of VMs there are),
# SIGNING_KEY (for make package), ALLOWED_SIGNERS (an OpenSSH file of who may sign
# packages; default: signatures are not verified), CONFIGURATION_IN (Blob or
# Package), WORKERS_WITHIN (minutes to wait for the workers). ACCOUNT_NAME and
# ACCOUNT_GROUP are for a further region: the first region's storage account, and
# its resource group.
set -euo pipefail
cd "$(dirname "$0")/.."

group=${RESOURCE_GROUP:-spotworker}
parameters=${PARAMETERS:-infra/bicep/cheapest.bicepparam}
package=${PACKAGE:-dist/spotworker-linux-amd64.tar.gz}
suffix=.tar.gz
case $package in *.zip) suffix=.zip ;; esac
place=${CONFIGURATION_IN:-Blob}
export APPLICATION_VERSION=${APPLICATION_VERSION:-1.0.0}

mode=ask
case "${1:-}" in
  '') ;;
  --yes | --what-if | --dry-run) mode=${1#--} ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tools/deploy.sh >&2; exit 2 ;;
esac

fail() { echo "deploy: $*" >&2; exit 1; }

# written NAME VARIABLE: the text that the parameter file gives a parameter, itself or from
# that environment variable; nothing if it does not set it. Other text cannot be read here.
written() {
  local line text
  [ -f "$parameters" ] || fail "PARAMETERS is $parameters, and there is no such file"
  line=$(sed -n "s|[[:space:]]*//.*||; s/^param $1 *= *//p" "$parameters" | tr -d '\r')
  text=${line#\'}
  text=${text%\'}
  case $line in
    '') return ;;
    "readEnvironmentVariable('$2', '"*"')")
      text=${line#*, \'}
      text=${!2:-${text%\')}}
      ;;
    \'*\') ;;
    *) text=\' ;;
  esac
  case $text in
    *\'* | *\$*) fail "$parameters computes its $1: set $2 to the result" ;;
    *) echo "$text" ;;
  esac
}

prefix=${PREFIX:-$(written prefix PREFIX)}
prefix=${prefix:-spotworker}
# What makes the VMs: main (scale sets), fleet, or single (one VM).
template=$(sed -n "s|^using '\(.*/\)\{0,1\}\(.*\)\.bicep'.*|\2|p" "$parameters" | tr -d '\r')
case $template in fleet | single) ;; *) template=main ;; esac
# Of a running fleet little may be changed, so each version has a fleet of its own.
fleet=$prefix-fleet-${APPLICATION_VERSION//./-}
location=${LOCATION:-$(written location LOCATION)}
blobs=(--auth-mode login --container-name "$prefix-packages")

# show COMMAND...: print it as it can be pasted into a shell.
show() {
  local words
  printf -v words ' %q' "$@"
  echo "\$${words//\\,/,}"
}

# run COMMAND...: show it, and run it unless the mode changes nothing.
run() {
  show "$@"
  case $mode in ask | yes) "$@" ;; esac
}

# look COMMAND...: the same for a command that changes nothing.
look() {
  show "$@"
  [ "$mode" = dry-run ] || "$@"
}

# confirm QUESTION: continue only if a person agrees.
confirm() {
  [ "$mode" = ask ] || return 0
  local answer
  read -r -p "$1 [y/N] " answer || answer=
  [ "$answer" = y ] || fail "stopped; what exists so far stays, and the next run continues from here"
}

# target STAGE [PARAMETER...]: what a deployment up to that stage is called with.
target() {
  what=(--resource-group "$group" --name "$prefix-deploy" --parameters "$parameters"
    --parameters "stage=$1" "location=$location" "prefix=$prefix" "operatorKind=${OPERATOR_KIND:-User}")
  [ "$place" = Blob ] || what+=("configurationIn=$place")
  [ -z "${subnets:-}" ] || what+=("regionSubnets=$subnets")
  what+=("${@:2}")
}

# stage NAME [PARAMETER...]: deploy the parameters up to that stage. recheck, if
# set, names a function that checks again before anything changes.
stage() {
  local what
  target "$@"
  look az deployment group what-if "${what[@]}"
  confirm "Deploy this?"
  [ -z "${recheck:-}" ] || "$recheck"
  run az deployment group create --output none "${what[@]}"
}

# output NAME: an output of the last deployment, one line for each value.
output() {
  az deployment group show --resource-group "$group" --name "$prefix-deploy" --output tsv \
    --query "properties.outputs.$1.value"
}

# instances SCALE_SET: how many VMs there are; nothing if there is no such scale
# set. A list tells "none" from an error, which a look at the set does not.
instances() {
  az vmss list --resource-group "$group" --query "[?name=='$1'].sku.capacity" --output tsv ||
    fail "the number of VMs of $1 cannot be read, for the reason above. Nothing was deployed for it: with a wrong number Azure would delete running VMs. Run this again"
}

# fleets: names and targets of this deployment's fleets, one a line, this version's first.
fleets() {
  local list
  list=$(az rest --method get --output tsv --query \
    "value[?starts_with(name, '$prefix-fleet-')].[name, properties.spotPriorityProfile.capacity]" --url \
    "/subscriptions/{subscriptionId}/resourceGroups/$group/providers/Microsoft.AzureFleet/fleets?api-version=2024-11-01") ||
    fail "the fleets in resource group $group cannot be read, for the reason above. Nothing was deployed for it; run this again"
  awk -F '\t' -v own="$fleet" '$1 == own' <<<"$list"
  awk -F '\t' -v own="$fleet" '$1 != own && $1 != ""' <<<"$list"
}

# machines: how many VMs there are whose names begin with the word and a dash or underscore,
# or are the word.
machines() {
  az vm list --resource-group "$group" --output tsv --query "length([?name=='$1' || starts_with(name, '$1_') || starts_with(name, '$1-')])" ||
    fail "the VMs in resource group $group cannot be counted, for the reason above; run this again"
}

# spotVMs: how many VMs there are, besides those for the on-demand queue.
spotVMs() {
  case $template in
    fleet) machines "$fleet" ;;
    single) machines "$prefix-vm" ;;
    *) instances "$prefix-spot" ;;
  esac
}

# spotTarget: how many there are to be; nothing if that is not known.
spotTarget() {
  case $template in
    fleet) fleets | awk -F '\t' 'NR == 1 { print $2 }' ;;
    single) ;;
    *) instances "$prefix-spot" ;;
  esac
}

# numbers: the numbers of VMs that there are, so that a deployment deletes none.
# What the caller has set counts.
numbers() {
  local set name
  for set in spot:CAPACITY ondemand:ONDEMAND_CAPACITY; do
    name=${set#*:}
    case " ${fixed:-} " in *" $name "*) continue ;; esac
    case $name in
      CAPACITY) found=$(spotTarget) || exit ;;
      *) found=$(instances "$prefix-${set%:*}") || exit ;;
    esac
    if [ -n "$found" ]; then export "$name=$found"; else unset "$name"; fi
  done
}

# recount: fails if autoscale or an eviction has changed a number since it was
# read: a person may have taken minutes to confirm.
recount() {
  [ "$mode" = ask ] || [ "$mode" = yes ] || return 0
  local before="${CAPACITY:-none} ${ONDEMAND_CAPACITY:-none}"
  numbers
  [ "$before" = "${CAPACITY:-none} ${ONDEMAND_CAPACITY:-none}" ] ||
    fail "the numbers of VMs changed from $before to ${CAPACITY:-none} ${ONDEMAND_CAPACITY:-none} (Spot, on-demand) since they were read. Nothing was deployed; run this again"
}

# deployed: the application version that the scale set has now; nothing if none.
deployed() {
  az vmss list --resource-group "$group" --output tsv --query \
    "[?name=='$prefix-spot'].virtualMachineProfile.applicationProfile.galleryApplications[0].packageReferenceId" |
    sed 's|.*/versions/||'
}

# uploaded NAME: the digest of what is there under that name in this version.
# Roles and network rules take some minutes until they count.
uploaded() {
  local tries=0
  until az storage blob list "${blobs[@]}" --account-name "$account" --prefix "$folder/$1" \
    --include m --query '[].metadata.sha256' --output tsv; do
    tries=$((tries + 1))
    [ "$tries" -lt 40 ] || fail "storage account $account does not let you list packages, 10 minutes after the roles were assigned. Does OPERATOR_ID name you (AuthorizationPermissionMismatch)? AuthorizationFailure: is your public address in OPERATOR_ADDRESSES? If it is, and you are in Azure in $location (Cloud Shell, a VM, a hosted build agent), addresses have no effect there: give your subnet in otherSubnets, or deploy from elsewhere, or upload with storageFirewall: false"
    echo "not allowed yet; trying again in 15 s" >&2
    sleep "${DEPLOY_RETRY:-15}"
  done
}

# upload FILE NAME: put a file beside the others of its version. Files of a
# version do not change: VMs that have it would keep the old one.
upload() {
  local sum there
  sum=$(digest <"$1") && there=$(uploaded "$2")
  if [ "$there" = "$sum" ]; then
    echo "$2 of version $APPLICATION_VERSION is there already"
  elif [ -n "$there" ]; then
    fail "version $APPLICATION_VERSION was uploaded with another $2; set APPLICATION_VERSION to a higher one"
  else
    run az storage blob upload "${blobs[@]}" --account-name "$account" --name "$folder/$2" --file "$1" \
      --metadata "sha256=$sum" --overwrite false --output none
  fi
}

digest() {
  if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d ' ' -f 1
}

# uploads: the package and the configuration that the last deployment gives. With
# CONFIGURATION_IN=Package each configuration has its own package.
uploads() {
  local name
  verifyPackage # again: it may be another one by now
  account=$(output accountName)
  folder=$(output packagesFolder)
  output workerConfiguration >"$work/worker.env"
  output onDemandConfiguration >"$work/worker-ondemand.env"
  [ -s "$work/worker.env" ] || fail "the deployment gives no configuration for the workers"
  if [ "$place" = Package ]; then
    for name in "" -ondemand; do
      [ -s "$work/worker$name.env" ] || continue
      run go run ./internal/vmpackage/pack -package "$package" -configuration "$work/worker$name.env" -out "$work/spotworker$name$suffix"
      upload "$work/spotworker$name$suffix" "spotworker$name$suffix"
    done
    return
  fi
  upload "$package" "spotworker$suffix"
  upload "$work/worker.env" worker.env
  if [ -s "$work/worker-ondemand.env" ]; then
    upload "$work/worker-ondemand.env" worker-ondemand.env
  fi
}

# showUploads: the commands that uploads would run, to be pasted.
showUploads() {
  local name query
  for name in account:accountName folder:packagesFolder; do
    echo "\$ ${name%:*}=\$(az deployment group show --resource-group $group --name $prefix-deploy --output tsv --query properties.outputs.${name#*:}.value)"
  done
  for name in worker:workerConfiguration worker-ondemand:onDemandConfiguration; do
    query=properties.outputs.${name#*:}.value
    echo "\$ az deployment group show --resource-group $group --name $prefix-deploy --output tsv --query $query >${name%:*}.env"
  done
  for name in "spotworker$suffix:$package" worker.env:worker.env worker-ondemand.env:worker-ondemand.env; do
    echo "\$ az storage blob upload ${blobs[*]} --account-name \"\$account\" --name \"\$folder\"/${name%%:*} --file ${name#*:}"
  done
}

# takeBack: delete the role to write that an earlier deployment gave workers on
# containers that they may only read now. A deployment adds roles and takes none.
takeBack() {
  local scope principal ids
  for scope in $(output readOnlyContainerIds); do
    for principal in $(output workerPrincipalIds); do
      ids=$(az role assignment list --scope "$scope" --output tsv \
        --query "[?principalId=='$principal' && ends_with(roleDefinitionId, '/ba92f5b4-2d11-453d-a403-e96b0029c9fe')].id")
      # shellcheck disable=SC2086 # one word for each id
      [ -z "$ids" ] || run az role assignment delete --ids $ids
    done
  done
}

# admit: let the VMs of a further region through the firewall of the first region's account.
admit() {
  local from subnet=SUBNET show=(az network vnet subnet show --resource-group "$group" --vnet-name "$prefix-network"
    --name workers --query id --output tsv)
  from=$(written accountGroup ACCOUNT_GROUP) || exit
  [ "${from:-$group}" != "$group" ] || return 0
  show "${show[@]}"
  [ "$mode" = dry-run ] || subnet=$("${show[@]}") || fail "cannot read the subnet of the VMs, for the reason above; run this again"
  run az storage account network-rule add --resource-group "$from" --account-name "$(written accountName ACCOUNT_NAME)" \
    --subnet "$subnet" --output none
}

# admitted: the subnets of further regions that the account of this resource group lets in, as JSON;
# nothing if there is none. A deployment would take out what it does not name.
admitted() {
  local list
  list=$(az storage account list --resource-group "$group" --output tsv --query \
    "[].networkRuleSet.virtualNetworkRules[?state=='Succeeded'].virtualNetworkResourceId | []") ||
    fail "cannot read whom the storage account lets in, for the reason above; run this again"
  awk -v own="/resourcegroups/$group/" -v all="/virtualnetworks/$prefix-network/subnets/workers" '
    { id = tolower($0); at = index(id, all) }
    at && at + length(all) == length(id) + 1 && !index(id, tolower(own)) { list = list (list ? "," : "") "\"" $0 "\"" }
    END { if (list) print "[" list "]" }' <<<"$list"
}

# shellcheck source=tools/deploy-checks.sh
. tools/deploy-checks.sh
# shellcheck source=tools/deploy-sizes.sh
. tools/deploy-sizes.sh
# shellcheck source=tools/deploy-workers.sh
. tools/deploy-workers.sh

for name in CAPACITY ONDEMAND_CAPACITY; do
  [ -z "${!name:-}" ] || fixed="${fixed:-} $name"
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if [ "$mode" = dry-run ]; then
  location=${location:-westeurope}
  echo "\$ export APPLICATION_VERSION=$APPLICATION_VERSION"
  echo "\$ export OPERATOR_ID=\$(az ad signed-in-user show --query id --output tsv)"
  echo "\$ export OPERATOR_ADDRESSES=\$(curl -s https://api.ipify.org)"
  echo "\$ export SSH_PUBLIC_KEY=\$(cat ~/.ssh/id_ed25519.pub)"
else
  echo "== checks: nothing is changed"
  checkTools
  checkSubscription
  checkOperator
  checkProviders
  checkSizes
  checkFirstRegion
  [ "$groupThere" = false ] || subnets=$(admitted) || exit
  confirm "Deploy to this subscription?"
fi

echo "== 1 of 6: package"
case $package in
  dist/*) run make package ;;
  *) echo "$package, made before" ;;
esac
[ "$mode" = dry-run ] || [ "$mode" = what-if ] || [ -f "$package" ] || fail "there is no $package"
if [ "$mode" != dry-run ] && [ -f "$package" ]; then verifyPackage; fi

echo "== 2 of 6: storage, identities and their roles, network, gallery"
if [ "$mode" = dry-run ] || [ "$groupThere" = false ]; then
  run az group create --name "$group" --location "$location" --output none
  [ "$mode" != what-if ] ||
    fail "there is no resource group $group yet, and without one Azure cannot say what would change: az group create costs nothing"
fi
stage Foundation
case $mode in ask | yes) takeBack ;; esac
[ "$mode" = what-if ] || admit

echo "== 3 of 6: upload of version $APPLICATION_VERSION"
case $mode in
  what-if) echo "$package and the configuration would be uploaded as version $APPLICATION_VERSION" ;;
  dry-run) showUploads ;;
  *) uploads ;;
esac

echo "== 4 of 6: application version"
stage Application

echo "== 5 of 6: VMs"
first=true
fails=()
[ "$mode" = dry-run ] || numbers
case $template in
  main)
    [ "$mode" = dry-run ] || [ "$(deployed)" != "$APPLICATION_VERSION" ] || first=false
    fails=("failOnInstall=$first")
    ;;
  single) fails=(failOnInstall=true) ;; # nothing repairs this VM: it need not count as made
esac
recheck=recount
stage Workers ${fails[@]+"${fails[@]}"}

echo "== 6 of 6: workers"
case $mode in
  ask | yes) ;;
  *)
    echo "the workers would be asked for their version and state"
    finish
    echo "nothing was changed"
    exit
    ;;
esac
awaitWorkers
finish
echo "done; docs/deploy.md continues with the first job"
