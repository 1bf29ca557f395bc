# shellcheck shell=bash
# After the VMs: check that workers of this version run. Azure's status is not
# enough: the VM application extension reports success for a version that failed
# before.
#
# shellcheck disable=SC2154 # the variables are those of tools/deploy.sh

# packageVersion: the version of the worker in the package.
packageVersion() {
  tar -xzOf "$package" release 2>/dev/null | sed -n 's/^RELEASE=\(.*\)-[0-9a-f]*$/\1/p'
}

# heartbeats: name, version, state, time and VM of the last heartbeat of each worker on a VM of
# this resource group: other regions of the account have workers of the same version. Without
# --num-results az lists 5,000.
heartbeats() {
  local vms
  vms=$(az vm list --resource-group "$group" --output tsv --query '[].name') || return
  az storage blob list --auth-mode login --account-name "$account" --container-name "$prefix-workers" \
    --num-results '*' --include m --output tsv --query '[].[name, metadata.program, metadata.state, metadata.at, metadata.vm]' |
    awk -F '\t' 'NR == FNR { is[tolower($1)]; next } tolower($5) in is' <(printf '%s\n' "$vms") -
}

# awaitWorkers: wait until as many workers as there are VMs send heartbeats in
# this version, ready for jobs. A worker is alive if its heartbeat is another one
# than at the look before, so no clocks are compared.
awaitWorkers() {
  local version want minutes=${WORKERS_WITHIN:-20} pause=${DEPLOY_RETRY:-15} rounds before now alive ready shown
  version=$(packageVersion)
  [ -n "$version" ] || fail "$package does not say what version its worker is; see docs/deploy.md, Watch it, whether workers run"
  want=$(spotVMs) || exit
  want=${want:-1}
  # VMs may come later.
  [ "$want" -gt 0 ] || { [ "$template" = main ] && [ "${CAPACITY:-0}" -eq 0 ]; } || want=1
  rounds=$((minutes * 60 / (pause > 0 ? pause : 15)))
  echo "waiting up to $minutes minutes for $want worker(s) of version $version"
  before=$(heartbeats) || before=
  while [ "$rounds" -gt 0 ]; do
    sleep "$pause"
    rounds=$((rounds - 1))
    now=$(heartbeats) || continue
    alive=$(grep -vxFf <(printf '%s\n' "${before:-none}") <<<"$now" || true)
    before=$now
    ready=$(awk -F '\t' -v version="$version" '$2 == version && $3 == "process"' <<<"$alive" | grep -c . || true)
    [ "$ready" -lt "$want" ] || { echo "$ready worker(s) of version $version take jobs"; return; }
    [ "$ready" = "${shown:-0}" ] || echo "$ready of $want so far"
    shown=$ready
  done
  echo "workers that sent a heartbeat at the last look (name, version, state, time, VM):" >&2
  printf '%s\n' "${alive:-none}" >&2
  az vm list --resource-group "$group" --output table --query "[].{vm: name, provisioning: provisioningState}" >&2 || true
  fail "${ready:-0} of $want workers run version $version $minutes minutes after the deployment. No VMs in the list: no Spot capacity, or the price; add sizes or wait. VMs without workers: see what the installation said with 'az vm run-command invoke --resource-group $group --name VM --command-id RunShellScript --scripts \"tail -n 50 /var/lib/waagent/Microsoft.CPlat.Core.VMApplicationManagerLinux/*/*/std* /var/log/spotworker/*.log\"'. Workers of another version: a version that failed once is not tried again; correct it and set APPLICATION_VERSION to a higher one. Workers in state start: their log says what they wait for. A large set that is updated a fifth at a time may just need more time: WORKERS_WITHIN=60"
}

# finish: what follows once workers of this version run.
finish() {
  case $template in
    main) [ "$first" = false ] || settle ;;
    fleet) retire ;;
  esac
}

# retire: delete the fleets of other versions. Their workers hand their jobs over.
retire() {
  local list name
  if [ "$mode" = dry-run ]; then
    show az resource delete --resource-group "$group" --resource-type Microsoft.AzureFleet/fleets --name FLEET_OF_ANOTHER_VERSION
    return
  fi
  list=$(fleets) || exit
  list=$(awk -F '\t' -v own="$fleet" '$1 != own { print $1 }' <<<"$list")
  for name in $list; do
    confirm "Delete fleet $name of another version, and its VMs?"
    run az resource delete --resource-group "$group" --resource-type Microsoft.AzureFleet/fleets --name "$name" --output none
  done
}

# settle: from now on Azure still creates a VM that cannot install the package, and
# replaces it as unhealthy. It repairs no VM whose provisioning failed.
settle() {
  local what
  echo "from now on a VM that fails to install this version is replaced, and fails no deployment"
  [ "$mode" = dry-run ] || numbers
  target Workers failOnInstall=false
  run az deployment group create --output none "${what[@]}"
}
