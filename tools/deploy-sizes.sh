# shellcheck shell=bash
# Checks of VM sizes, quota and image that tools/deploy.sh runs before it changes
# anything.
#
# shellcheck disable=SC2154 # the variables are those of tools/deploy.sh
# shellcheck disable=SC2034,SC2046 # checkSize sets variables of checkSizes; one word for each size

# settingOf NAME...: the first number in the parameter file's line of one of
# these parameters, which may read it from the environment.
settingOf() {
  local name found
  for name in "$@"; do
    found=$(sed -n "s/^param $name = [^0-9]*\([0-9][0-9]*\).*/\1/p" "$parameters")
    [ -z "$found" ] || { echo "$found"; return; }
  done
}

# sizesOf FILE: the sizes of Spot VMs that a file names outside of comments.
sizesOf() {
  sed 's|//.*||;/onDemandVmSize/d' "$1" | grep -oE "'Standard_[A-Z][A-Za-z0-9-]*(_[A-Za-z0-9]+)?_v[0-9]+'|'Standard_[A-Z]+[0-9]+[a-z]*'" | tr -d "'" | sort -u
}

# deployedSizes: the sizes of Spot VMs that would be deployed.
deployedSizes() {
  local sizes
  sizes=$(sizesOf "$parameters") || true
  [ -n "$sizes" ] || sizes=$(sizesOf "infra/bicep/$(sed -n "s/^using '\(.*\)'/\1/p" "$parameters")")
  echo "$sizes"
}

# zonesOf FILE: the availability zones that a parameter file asks for, one a line.
zonesOf() {
  sed -n "s|//.*||; s/^param zones = \[\(.*\)\].*/\1/p" "$1" | tr -c '0-9\n' '\n' | sed '/^$/d'
}

# cores NAME: how many cores of a quota are left.
cores() {
  az vm list-usage --location "$location" --output tsv --query "[?name.value=='$1'].[currentValue, limit]" |
    awk '{ print $2 - $1; exit }'
}

# onDemandSize: the size of the VMs for the on-demand queue; nothing if there are none.
onDemandSize() {
  local size
  grep -q '^param onDemand = true' "$parameters" || return 0
  size=$(sed -n "s/^param onDemandVmSize = '\([^']*\)'.*/\1/p" "$parameters")
  # The template's default is the first Spot size.
  [ -n "$size" ] || size=$(sed 's|//.*||' "$parameters" | sed -n '/^param vmSizes/,$p' | grep -oE "'Standard_[^']*'" | head -n 1 | tr -d "'")
  echo "${size:-$(deployedSizes | head -n 1)}"
}

# offers SIZE...: what the region has of these sizes, a line for each: name, Spot,
# processor, cores, restrictions of the region, zones, zones without it, disk interfaces,
# megabytes of a temporary disk, megabytes of local NVMe disks, generations of images,
# whether Trusted Launch is impossible, whether Premium disks are, the family. A capability that Azure leaves out is None.
offers() {
  az vm list-skus --location "$location" --resource-type virtualMachines --all --output tsv --query \
    "[?contains('$* ', name)].[name, capabilities[?name=='LowPriorityCapable'].value | [0], capabilities[?name=='CpuArchitectureType'].value | [0], capabilities[?name=='vCPUs'].value | [0], length(restrictions[?type=='Location']), join(',', ['zones', locationInfo[].zones[] | join(',', @)]), join(',', ['without', restrictions[?type=='Zone'].restrictionInfo.zones[] | join(',', @)]), capabilities[?name=='DiskControllerTypes'].value | [0], capabilities[?name=='MaxResourceVolumeMB'].value | [0], capabilities[?name=='NvmeDiskSizeInMiB'].value | [0], capabilities[?name=='HyperVGenerations'].value | [0], capabilities[?name=='TrustedLaunchDisabled'].value | [0], capabilities[?name=='PremiumIO'].value | [0], family]"
}

# checkSize SIZE PARAMETER: is the size there, for the package's processor, in the zones
# and for Trusted Launch? Sets spot, cores, interfaces, disk, premium and family.
checkSize() {
  local size=$1 found processor restrictions offered refused temporary nvme generations untrusted zone
  found=$(awk -F '\t' -v size="$size" '$1 == size { print; exit }' <<<"$list")
  [ -n "$found" ] || fail "$location has no VMs of size $size: choose another size ($2 in $parameters) or another LOCATION"
  IFS=$'\t' read -r _ spot processor cores restrictions offered refused interfaces temporary nvme generations untrusted premium family <<<"$found"
  [ "$restrictions" = 0 ] || fail "your subscription may not have $size in $location (NotAvailableForSubscription): choose another size or LOCATION, or ask Azure's support"
  for zone in $(zonesOf "$parameters"); do
    [[ "$offered," == *",$zone,"* && "$refused," != *",$zone,"* ]] ||
      fail "$size is not in zone $zone of $location, or not for your subscription: take the zone out of zones in $parameters (empty leaves the choice to Azure), or choose another size or LOCATION"
  done
  case $architecture/$processor in
    amd64/x64 | arm64/Arm64 | unknown/*) ;;
    *) fail "$size has an $processor processor and $package is for $architecture: set PACKAGE to dist/spotworker-linux-$([ "$processor" = x64 ] && echo amd64 || echo arm64).tar.gz, or choose another size. All of PACKAGE, vmSizes and image must be for one processor" ;;
  esac
  [[ "$generations" == *V2* && "$untrusted" != True ]] ||
    fail "$size has no Trusted Launch, with which the VMs start (generations $generations): choose another size ($2 in $parameters)"
  case $interfaces in None) interfaces=SCSI ;; esac
  case $temporary in None | 0) disk='no local disk' ;; *) disk='a temporary disk' ;; esac
  case $nvme in None | 0) ;; *) disk='local NVMe disks' ;; esac
}

# checkMix SIZE: does it go with the sizes before? A scale set mixes sizes of one disk
# interface and one kind of local disk: instance-mix-overview, prerequisites. A fleet
# makes each VM by itself.
checkMix() {
  local interface both=
  [ "$template" != fleet ] || return 0
  if [ -z "$common" ]; then
    common=$interfaces same=$disk before=$1 first_premium=$premium
    return
  fi
  for interface in ${interfaces//,/ }; do
    case " ${common//,/ } " in *" $interface "*) both="$both $interface" ;; esac
  done
  [ -n "$both" ] || fail "$before has the disk interface $common and $1 has $interfaces: Azure mixes only sizes with one disk interface. Take one of them out of vmSizes in $parameters"
  common=$both
  [ "$disk" = "$same" ] || fail "$before has $same and $1 has $disk: Azure mixes only sizes with one kind of local disk. Take one of them out of vmSizes in $parameters"
  [ "$premium" = "$first_premium" ] || fail "of $before and $1 only one takes Premium disks: Azure mixes them not. Take one of them out of vmSizes in $parameters"
}

# there COMMAND...: the number that it prints of VMs; 0 before the first deployment.
there() {
  local count=0
  if [ "$groupThere" = true ]; then
    count=$("$@") || exit
  fi
  echo "${count:-0}"
}

# checkSizes: is each size there, also as Spot where it is for Spot VMs, do the sizes go
# with each other, and is there quota for the VMs of a first deployment?
checkSizes() {
  local architecture sizes list size regular spot cores interfaces disk premium family common='' same before first_premium most=0 families=''
  sizes=$(deployedSizes)
  regular=$(onDemandSize)
  architecture=$(packageProcessor)
  list=$(offers $(tr '\n' ' ' <<<"$sizes $regular"))
  for size in $sizes; do
    checkSize "$size" vmSizes
    [ "$spot" = True ] || fail "$size is not offered as Spot: choose another size (vmSizes in $parameters)"
    checkMix "$size"
    [ "$cores" -le "$most" ] || most=$cores
    case " $families " in *" $family "*) ;; *) families="$families $family" ;; esac
  done
  cores=0
  [ -z "$regular" ] || checkSize "$regular" onDemandVmSize
  checkImage "$architecture"
  checkSpotCores
  checkRegularCores
}

# checkSpotCores: is there quota for the Spot VMs? Autoscale stops at the quota.
checkSpotCores() {
  local left have want
  left=$(cores lowPriorityCores)
  [ -n "$left" ] || fail "the quota of Spot cores in $location cannot be read"
  have=$(there spotVMs) || exit
  want=${CAPACITY:-$(settingOf capacity spotCapacity minInstances)}
  want=${want:-1}
  [ $(((want - have) * most)) -le "$left" ] ||
    fail "$want VMs of $most cores need a quota of $(((want - have) * most)) more Spot cores in $location, and $left are left: ask for more in the portal under Quotas (Total Regional Spot vCPUs), or set CAPACITY lower"
  echo "sizes $(tr '\n' ' ' <<<"$sizes")are offered as Spot in $location; $left cores of quota are left, $(((want - have) * most)) are needed now"
  want=$(settingOf maxInstances)
  if [ -n "$want" ] && [ $(((want - have) * most)) -gt "$left" ]; then
    echo "note: maxInstances $want would need $(((want - have) * most)) cores; autoscale stops at the quota"
  fi
}

# checkRegularCores: is there quota for the regular VMs of a first deployment? The
# on-demand queue needs one VM at least: without it moved jobs would wait for ever.
checkRegularCores() {
  local left have base onDemand=0 needed name any=0
  have=$(there spotVMs) || exit
  base=$(settingOf baseRegularCount regularCapacity)
  [ "$have" = 0 ] || base=0
  if [ -n "$regular" ]; then
    have=$(there instances "$prefix-ondemand") || exit
    onDemand=${ONDEMAND_CAPACITY:-$(settingOf onDemandCapacity onDemandMinInstances)}
    [ "${onDemand:-0}" -gt 0 ] || onDemand=1
    onDemand=$((onDemand - have))
    [ "$onDemand" -ge 0 ] || onDemand=0
  fi
  needed=$((${base:-0} * most + onDemand * cores))
  [ "$needed" -gt 0 ] || return 0
  left=$(cores cores)
  [ -n "$left" ] || fail "the quota of regular cores in $location cannot be read"
  [ "$needed" -le "$left" ] ||
    fail "$((${base:-0} + onDemand)) regular VMs need a quota of $needed regular cores in $location, and $left are left: ask for more in the portal under Quotas (Total Regional vCPUs), or set baseRegularCount in $parameters lower (regularCapacity of a fleet), or onDemand to false"
  # Regular VMs also need the quota of their family; of a mix, that of one of its families.
  # One that Azure does not list is not judged.
  for name in $families; do
    left=$(cores "$name")
    [ "${left:-$needed}" -le "$any" ] || any=${left:-$needed}
  done
  [ $((${base:-0} * most)) -le "$any" ] ||
    fail "${base:-0} regular VMs need a quota of $((base * most)) cores of one of the families$families in $location, and $any are left at most: ask for more in the portal under Quotas, or set baseRegularCount in $parameters lower (regularCapacity of a fleet)"
  left=$(cores "$family")
  [ -z "$left" ] || [ $((onDemand * cores)) -le "$left" ] ||
    fail "$onDemand on-demand VMs need a quota of $((onDemand * cores)) cores of family $family in $location, and $left are left: ask for more in the portal under Quotas, or set onDemandVmSize in $parameters to another family, or onDemand to false"
}

# packageProcessor: what the package was made for, as it says itself, or as its
# name says before it is made.
packageProcessor() {
  local said=
  [ ! -f "$package" ] || said=$(tar -xzOf "$package" release 2>/dev/null | sed -n 's/^ARCHITECTURE=//p') || true
  case ${said:-$package} in
    *arm64*) echo arm64 ;;
    *amd64*) echo amd64 ;;
    *) echo unknown ;;
  esac
}

# checkImage PROCESSOR: images for Arm processors are called so.
checkImage() {
  local arm=no
  ! sed 's|//.*||' "$parameters" | grep -qiE "sku: '[^']*arm64" || arm=yes
  case $1/$arm in
    arm64/no) fail "$package is for arm64, and the image is not: give image in $parameters the sku server-arm64" ;;
    amd64/yes) fail "$package is for amd64, and the image in $parameters is for arm64: set PACKAGE to dist/spotworker-linux-arm64.tar.gz, or take another image" ;;
  esac
}
