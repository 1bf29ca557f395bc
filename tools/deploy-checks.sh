# shellcheck shell=bash
# Checks that tools/deploy.sh runs before it changes anything. Each failure says
# what to do.
#
# shellcheck disable=SC2154 # the variables are those of tools/deploy.sh

# atLeast HAVE WANT: compare two versions of two numbers.
atLeast() {
  awk -v have="$1" -v want="$2" 'BEGIN {
    split(have, h, "."); split(want, w, ".")
    exit !(h[1] + 0 > w[1] + 0 || h[1] + 0 == w[1] + 0 && h[2] + 0 >= w[2] + 0)
  }'
}

checkTools() {
  local version
  if ! command -v az >/dev/null || ! az account show --output none 2>/dev/null; then
    tools/deploy.sh --dry-run
    fail "nothing was deployed: az is missing or not signed in. These are the commands that would have run; install the Azure CLI and run az login first"
  fi
  version=$(az version --query '"azure-cli"' --output tsv)
  atLeast "$version" 2.60 ||
    fail "az is version $version, and 2.60 is the oldest supported. Distributions often have older ones: https://learn.microsoft.com/cli/azure/install-azure-cli, or az upgrade"
  version=$(az bicep version 2>/dev/null | sed -n 's/^Bicep CLI version \([0-9.]*\).*/\1/p') || true
  [ -n "$version" ] || fail "az has no Bicep: run az bicep install"
  atLeast "$version" 0.34 || fail "Bicep is version $version, and 0.34 is the oldest that reads these files: run az bicep upgrade"
  case $place in
    Blob) ;;
    Package) command -v go >/dev/null || fail "CONFIGURATION_IN=Package needs Go, to put the configuration into the package" ;;
    *) fail "CONFIGURATION_IN is $place: give Blob or Package" ;;
  esac
}

# verifyPackage: with ALLOWED_SIGNERS, the package has a signature of one of them.
# vmapp.md says how to make it.
verifyPackage() {
  local signer
  [ -n "${ALLOWED_SIGNERS:-}" ] || return 0
  [ -f "$ALLOWED_SIGNERS" ] || fail "ALLOWED_SIGNERS is $ALLOWED_SIGNERS, and there is no such file: name one with lines as 'release@example.com ssh-ed25519 AAAA...', or unset it to deploy packages without a signature"
  command -v ssh-keygen >/dev/null || fail "ssh-keygen is missing, which verifies the package for ALLOWED_SIGNERS: install the client of OpenSSH"
  [ -f "$package.sig" ] || fail "$package has no signature ($package.sig), and ALLOWED_SIGNERS demands one; nothing was uploaded. Make the package with SIGNING_KEY, or fetch its signature"
  signer=$(ssh-keygen -Y find-principals -f "$ALLOWED_SIGNERS" -s "$package.sig" 2>/dev/null | head -n 1) || true
  [ -n "$signer" ] || fail "the signature of $package is of no signer in $ALLOWED_SIGNERS, or cannot be read; nothing was uploaded. Do not deploy this package before you know who made it"
  ssh-keygen -Y verify -f "$ALLOWED_SIGNERS" -I "$signer" -n spotworker-package -s "$package.sig" <"$package" >/dev/null 2>&1 ||
    fail "the signature of $package by $signer does not match: the package was changed, or signed for something else; nothing was uploaded. Do not deploy this package before you know why"
  echo "$package is signed by $signer"
}

checkSubscription() {
  az account show --output tsv \
    --query "['subscription ', name, ' (', id, ') of tenant ', tenantId, ', signed in as ', user.name] | join('', @)"
  groupThere=$(az group exists --name "$group") || fail "cannot find out whether there is a resource group $group, for the reason above"
  if [ "$groupThere" = true ]; then
    checkLocation
    echo "resource group $group is there, and keeps its tags; resources are in $location"
  else
    location=${location:-westeurope}
    echo "resource group $group would be created in $location"
  fi
}

# checkLocation: sets location, unless it was given, to the last deployment's, or else
# the group's. Azure moves no resource: another location would be refused halfway.
checkLocation() {
  [ -z "$location" ] || return 0
  location=$(az deployment group list --resource-group "$group" --output tsv --query \
    "[?name=='$prefix-deploy'].properties.parameters.location.value | [0]") ||
    fail "cannot read where resource group $group was deployed to, for the reason above: set LOCATION"
  [ -n "$location" ] && [ "$location" != None ] ||
    location=$(az group show --name "$group" --query location --output tsv) ||
    fail "cannot read where resource group $group is, for the reason above: set LOCATION"
}

# refusedAddress: why Azure would refuse the first of the addresses and ranges in the
# standard input, one a line; nothing if it takes all.
refusedAddress() {
  awk -F '[./]' '
    function refuse(why) { print $0 == "" ? why : $0 " " why; exit }
    $0 == "" { refuse("an empty entry between commas, or a comma at the end") }
    $0 !~ /^[0-9]+[.][0-9]+[.][0-9]+[.][0-9]+([/][0-9]+)?$/ { refuse("is not four numbers, with or without a range") }
    $1 > 255 || $2 > 255 || $3 > 255 || $4 > 255 { refuse("has a number above 255") }
    NF == 5 && ($5 == 31 || $5 == 32) { refuse("is a range of one or two addresses: give the single addresses, without /31 or /32") }
    NF == 5 && ($5 < 1 || $5 > 32) { refuse("is no range: /1 to /30") }
    $1 == 10 || $1 == 127 || $1 == 192 && $2 == 168 || $1 == 172 && $2 >= 16 && $2 <= 31 {
      refuse("is a private address: give the public one that your network shows to the internet")
    }'
}

checkOperator() {
  local refused
  local key
  [ -n "${OPERATOR_ID:-}" ] || OPERATOR_ID=$(az ad signed-in-user show --query id --output tsv) ||
    fail "cannot read who is signed in, for the reason above: set OPERATOR_ID to your object id, and OPERATOR_KIND to ServicePrincipal if that is what you are"
  for key in ~/.ssh/id_ed25519.pub ~/.ssh/id_rsa.pub; do
    [ -n "${SSH_PUBLIC_KEY:-}" ] || [ ! -f "$key" ] || SSH_PUBLIC_KEY=$(cat "$key")
  done
  [ -n "${SSH_PUBLIC_KEY:-}" ] || fail "no public key in ~/.ssh: run ssh-keygen -t ed25519, or set SSH_PUBLIC_KEY"
  [ -n "${OPERATOR_ADDRESSES:-}" ] ||
    fail "the storage account lets in the VMs and the addresses in OPERATOR_ADDRESSES, which is empty: packages could not be uploaded. Set it to your public IPv4 address, which 'curl -s https://api.ipify.org' prints, or to those of your network, with commas between them"
  case $OPERATOR_ADDRESSES in
    *[!0-9./,]*) fail "OPERATOR_ADDRESSES is '$OPERATOR_ADDRESSES': give IPv4 addresses or ranges with commas between them, as in 203.0.113.7,198.51.100.0/28" ;;
  esac
  refused=$(tr ',' '\n' <<<"$OPERATOR_ADDRESSES" | refusedAddress)
  [ -z "$refused" ] || fail "OPERATOR_ADDRESSES is '$OPERATOR_ADDRESSES', which Azure refuses: $refused"
  export OPERATOR_ID SSH_PUBLIC_KEY OPERATOR_ADDRESSES
}

checkProviders() {
  local needed=(Compute Storage Network ManagedIdentity Insights OperationalInsights PolicyInsights) there provider missing=()
  ! grep -q "^using 'fleet.bicep'" "$parameters" || needed+=(AzureFleet)
  there=$(az provider list --query "[?registrationState=='Registered'].namespace" --output tsv)
  for provider in "${needed[@]}"; do
    grep -qix "Microsoft.$provider" <<<"$there" || missing+=("Microsoft.$provider")
  done
  [ ${#missing[@]} -eq 0 ] ||
    fail "the subscription does not have these providers registered, which takes some minutes: for p in ${missing[*]}; do az provider register --wait --namespace \$p; done"
}

# checkAccounts: sets recorded to over which storage accounts the jobs are spread by now,
# which is in the metadata of the queue of jobs in the first of them. The deployment
# writes that again, and is refused where it would take an account away; a further region
# only reads it, since its workers must serve the same accounts.
checkAccounts() {
  local from account ids id found names number there=false
  recorded=()
  from=$(written accountGroup ACCOUNT_GROUP) || exit
  if [ "${from:-$group}" = "$group" ]; then
    [ "$groupThere" = true ] || return 0
    from=$group
  else
    account=$(written accountName ACCOUNT_NAME) || exit
  fi
  # An account of another kind has no queues, and refuses to list them.
  ids=$(az storage account list --resource-group "$from" --query '[?primaryEndpoints.queue].id' --output tsv) ||
    fail "cannot find out which storage accounts resource group $from has, for the reason above"
  for id in $ids; do
    [ -z "${account:-}" ] || [ "${id##*/}" = "$account" ] || continue
    found=$(spreadOf "$id") || exit
    [ "$found" != none ] || continue
    there=true
    names=${found%/*} number=${found##*/}
    [ -n "$names" ] || continue
    [ -n "$number" ] || number=$(tr ',' '\n' <<<"$names" | grep -c .)
    checkMoreAccounts "$names" "$number"
    # shellcheck disable=SC2034 # tools/deploy.sh passes it
    recorded=("recordedAccounts=$names" "recordedChosenIdsOn=$number")
    echo "jobs are spread over the storage accounts $names, those with chosen ids over the first $number"
  done
  [ "$from" = "$group" ] || [ "$there" = true ] ||
    fail "there is no storage account $account with a queue $prefix-jobs in resource group $from, on which this region would work: deploy the first region before, and take ACCOUNT_NAME, ACCOUNT_GROUP and PREFIX from it"
}

# spreadOf ACCOUNT: "accounts/number" as the account's queue of jobs has it, "/" if it has
# nothing of it, none if there is no such queue. A list of queues may leave metadata out,
# so it only tells whether there is the queue; any of its pages may be short or empty.
# Names of metadata come back in the case of the last write; without a number chosen ids
# are on all accounts.
spreadOf() {
  local page next="$1/queueServices/default/queues?api-version=2025-01-01" there=false
  local -r unread="cannot read over which accounts jobs are spread, for the reason above: without it this deployment could put an id in another account than before, and its job would run twice. Nothing was deployed; run this again"
  while [ "$there" = false ] && [ -n "$next" ]; do
    # The first line is the address of the next page, empty on the last.
    page=$(az rest --method get --url "$next" --query "[nextLink || '', value[].name] | []" --output tsv) || fail "$unread"
    next=${page%%$'\n'*}
    ! grep -qx "$prefix-jobs" <<<"$page" || there=true
  done
  [ "$there" = true ] || { echo none; return; }
  az rest --method get --url "$1/queueServices/default/queues/$prefix-jobs?api-version=2025-01-01" --output tsv \
    --query "join('/', [properties.metadata.accounts || properties.metadata.Accounts || '', properties.metadata.accountids || properties.metadata.Accountids || ''])" ||
    fail "$unread"
}

# checkMoreAccounts NAMES NUMBER: fails if moreAccounts in the parameter file would take one
# of these accounts away, or move chosen ids. The template refuses that too, and what it
# computes cannot be read here.
checkMoreAccounts() {
  local text more putOn chosen spread
  text=$(sed 's|//.*||' "$parameters" | tr -d '\r' | awk '/^param moreAccounts *=/ { given = 1 } given { all = all " " $0 } given && /}/ { exit } END { print all }')
  more=$(sed -n "s/.*names: *\[\([a-z0-9', ]*\)\].*/\1/p" <<<"$text" | tr -cs 'a-z0-9\n' ',' | sed 's/^,*//; s/,*$//')
  putOn=$(sed -n 's/.*putOn: *\([0-9]*\).*/\1/p' <<<"$text")
  chosen=$(sed -n 's/.*chosenIdsOn: *\([0-9]*\).*/\1/p' <<<"$text")
  [ -z "$text" ] || { [ -n "$more" ] && [ -n "$putOn" ] && [ -n "$chosen" ]; } || return 0
  spread=$(cut -d, -f "1-${putOn:-1}" <<<"${1%%,*}${more:+,$more}")
  [[ "$spread," == "$1,"* ]] ||
    fail "jobs are spread over the storage accounts $1, and moreAccounts in $parameters makes that $spread: workers of this deployment would leave jobs of the others alone. Accounts can be added behind these, and neither removed nor reordered: give the same names and putOn. Nothing was deployed"
  [ "${chosen:-1}" = "$2" ] ||
    fail "jobs with chosen ids are put on the first $2 of the storage accounts $1, and chosenIdsOn in $parameters is ${chosen:-1}: an id that is put again could run twice. Set chosenIdsOn of moreAccounts to $2. Nothing was deployed"
}
