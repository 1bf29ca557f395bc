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
# docs/deploy.md says how to make it.
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
  [ "$template" != fleet ] || needed+=(AzureFleet)
  there=$(az provider list --query "[?registrationState=='Registered'].namespace" --output tsv)
  for provider in "${needed[@]}"; do
    grep -qix "Microsoft.$provider" <<<"$there" || missing+=("Microsoft.$provider")
  done
  [ ${#missing[@]} -eq 0 ] ||
    fail "the subscription does not have these providers registered, which takes some minutes: for p in ${missing[*]}; do az provider register --wait --namespace \$p; done"
}

# checkFirstRegion: a further region works on the first region's storage account, whose queue of
# jobs has to exist.
checkFirstRegion() {
  local from account id
  from=$(written accountGroup ACCOUNT_GROUP) || exit
  [ "${from:-$group}" != "$group" ] || return 0
  account=$(written accountName ACCOUNT_NAME) || exit
  if ! id=$(az storage account show --resource-group "$from" --name "$account" --query id --output tsv) ||
    ! az rest --method get --url "$id/queueServices/default/queues/$prefix-jobs?api-version=2025-01-01" --output none; then
    fail "cannot find queue $prefix-jobs in storage account $account of resource group $from, on which this region would work, for the reason above: deploy the first region before, and take ACCOUNT_NAME, ACCOUNT_GROUP and PREFIX from it"
  fi
}
