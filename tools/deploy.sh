#!/usr/bin/env bash
# Deploys to Azure, in the steps of docs/deploy.md: package, storage, upload,
# application version, scale set. What is there already is left as it is, so it
# may be run again at any time, and after any failure.
#
#   tools/deploy.sh             what would change is shown before each step, and asked
#   tools/deploy.sh --yes       shown, not asked
#   tools/deploy.sh --what-if   shown, nothing changed
#   tools/deploy.sh --dry-run   only the commands; needs neither az nor a subscription
#
# From the environment, with the defaults below: RESOURCE_GROUP, LOCATION,
# PREFIX, PARAMETERS, APPLICATION_VERSION, PACKAGE, OPERATOR_ID (default: who is
# signed in to az), OPERATOR_KIND (User, Group or ServicePrincipal),
# SSH_PUBLIC_KEY (default: the first key in ~/.ssh), CAPACITY and
# ONDEMAND_CAPACITY (default: the numbers of VMs there are).
set -euo pipefail
cd "$(dirname "$0")/.."

group=${RESOURCE_GROUP:-spotworker}
location=${LOCATION:-westeurope}
prefix=${PREFIX:-spotworker}
parameters=${PARAMETERS:-infra/bicep/cheapest.bicepparam}
package=${PACKAGE:-dist/spotworker-linux-amd64.tar.gz}
export APPLICATION_VERSION=${APPLICATION_VERSION:-1.0.0}
blobs=(--auth-mode login --container-name "$prefix-packages")

mode=ask
case "${1:-}" in
  '') ;;
  --yes | --what-if | --dry-run) mode=${1#--} ;;
  *) sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' tools/deploy.sh >&2; exit 2 ;;
esac

fail() { echo "deploy: $*" >&2; exit 1; }

# show COMMAND...: print it as it can be pasted into a shell.
show() {
  local words
  printf -v words ' %q' "$@"
  echo "\$${words//\\,/,}"
}

# run COMMAND...: show it, and run it unless nothing is to be changed.
run() {
  show "$@"
  case $mode in ask | yes) "$@" ;; esac
}

# look COMMAND...: the same for a command that changes nothing.
look() {
  show "$@"
  [ "$mode" = dry-run ] || "$@"
}

# confirm QUESTION: go on only if a person says so.
confirm() {
  [ "$mode" = ask ] || return 0
  local answer
  read -r -p "$1 [y/N] " answer || answer=
  [ "$answer" = y ] || fail "stopped; what was made so far stays, and the next run goes on from here"
}

# stage NAME: deploy the parameters up to that stage.
stage() {
  local what=(--resource-group "$group" --name "$prefix-deploy" --parameters "$parameters"
    --parameters "stage=$1" "location=$location" "prefix=$prefix" "operatorKind=${OPERATOR_KIND:-User}")
  look az deployment group what-if "${what[@]}"
  confirm "Deploy this?"
  run az deployment group create --output none "${what[@]}"
}

# output NAME: an output of the last deployment, one line for each value.
output() {
  az deployment group show --resource-group "$group" --name "$prefix-deploy" --output tsv \
    --query "properties.outputs.$1.value"
}

# instances SCALE_SET: how many there are, so that a deployment does not take
# any away; nothing if there is no such scale set yet.
instances() {
  [ "$mode" = dry-run ] || az vmss show --resource-group "$group" --name "$1" --query sku.capacity --output tsv 2>/dev/null || true
}

# uploaded NAME: the digest of what is there under that name in this version.
# Roles take some minutes until they count.
uploaded() {
  local tries=0
  until az storage blob list "${blobs[@]}" --account-name "$account" --prefix "$APPLICATION_VERSION/$1" \
    --include m --query '[].metadata.sha256' --output tsv; do
    tries=$((tries + 1))
    [ "$tries" -lt 40 ] || fail "storage account $account lets nobody list packages, 10 minutes after the roles were assigned; does OPERATOR_ID name you?"
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
    run az storage blob upload "${blobs[@]}" --account-name "$account" --name "$APPLICATION_VERSION/$2" --file "$1" \
      --metadata "sha256=$sum" --overwrite false --output none
  fi
}

digest() {
  if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi | cut -d ' ' -f 1
}

# uploads: the package and the configuration that the last deployment gives.
uploads() {
  account=$(output accountName)
  output workerConfiguration >"$work/worker.env"
  output onDemandConfiguration >"$work/worker-ondemand.env" 2>/dev/null || true
  upload "$package" spotworker.tar.gz
  upload "$work/worker.env" worker.env
  if [ -s "$work/worker-ondemand.env" ]; then
    upload "$work/worker-ondemand.env" worker-ondemand.env
  fi
}

# showUploads: the commands that uploads would run, to be pasted.
showUploads() {
  local name query
  echo "\$ account=\$(az deployment group show --resource-group $group --name $prefix-deploy --output tsv --query properties.outputs.accountName.value)"
  for name in worker:workerConfiguration worker-ondemand:onDemandConfiguration; do
    query=properties.outputs.${name#*:}.value
    echo "\$ az deployment group show --resource-group $group --name $prefix-deploy --output tsv --query $query >${name%:*}.env"
  done
  for name in spotworker.tar.gz:"$package" worker.env:worker.env worker-ondemand.env:worker-ondemand.env; do
    echo "\$ az storage blob upload ${blobs[*]} --account-name \"\$account\" --name $APPLICATION_VERSION/${name%%:*} --file ${name#*:}"
  done
}

if [ "$mode" != dry-run ]; then
  if ! command -v az >/dev/null || ! az account show --output none 2>/dev/null; then
    tools/deploy.sh --dry-run
    fail "nothing was deployed: az is missing or not signed in. These are the commands that would have run; install the Azure CLI and run az login first"
  fi
  OPERATOR_ID=${OPERATOR_ID:-$(az ad signed-in-user show --query id --output tsv)}
  for key in ~/.ssh/id_ed25519.pub ~/.ssh/id_rsa.pub; do
    [ -n "${SSH_PUBLIC_KEY:-}" ] || [ ! -f "$key" ] || SSH_PUBLIC_KEY=$(cat "$key")
  done
  [ -n "${SSH_PUBLIC_KEY:-}" ] || fail "no public key in ~/.ssh: run ssh-keygen -t ed25519, or set SSH_PUBLIC_KEY"
fi
export OPERATOR_ID=${OPERATOR_ID:-} SSH_PUBLIC_KEY=${SSH_PUBLIC_KEY:-}
if [ "$mode" = dry-run ]; then
  echo "\$ export APPLICATION_VERSION=$APPLICATION_VERSION"
  echo "\$ export OPERATOR_ID=\$(az ad signed-in-user show --query id --output tsv)"
  echo "\$ export SSH_PUBLIC_KEY=\$(cat ~/.ssh/id_ed25519.pub)"
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "== 1 of 5: package"
case $package in
  dist/*) run make package ;;
  *) echo "$package, made before" ;;
esac
[ "$mode" = dry-run ] || [ "$mode" = what-if ] || [ -f "$package" ] || fail "there is no $package"

echo "== 2 of 5: storage, identities and their roles, network, gallery"
run az group create --name "$group" --location "$location" --output none
[ "$mode" != what-if ] || az group show --name "$group" --output none 2>/dev/null ||
  fail "there is no resource group $group yet, and without one Azure cannot say what would change: az group create costs nothing"
stage Foundation

echo "== 3 of 5: upload of version $APPLICATION_VERSION"
case $mode in
  what-if) echo "$package and the configuration would be uploaded as version $APPLICATION_VERSION" ;;
  dry-run) showUploads ;;
  *) uploads ;;
esac

echo "== 4 of 5: application version"
stage Application

echo "== 5 of 5: scale set"
for set in spot:CAPACITY ondemand:ONDEMAND_CAPACITY; do
  name=${set#*:}
  [ -n "${!name:-}" ] || export "$name=$(instances "$prefix-${set%:*}")"
  [ -n "${!name}" ] || unset "$name"
done
stage Workers
case $mode in
  ask | yes) echo "done; docs/deploy.md goes on with the first job" ;;
  *) echo "nothing was changed" ;;
esac
