#!/bin/sh
# Blocks the platform's addresses for the users that jobs' programs run as, or
# removes the rules. With access, a program could get tokens of the VM's identity,
# and exhaust the rate limit that the worker needs to detect evictions. The units
# run it as root before a worker starts. The worker then checks that the addresses
# are blocked, and does not start if they are not.
#
#   firewall.sh up      block, for the users of SPOTWORKER_PROGRAM_USERS
#   firewall.sh down    remove the rules
#
# It uses nft, else iptables, else a routing rule of ip: whichever is there.
set -eu

users=${SPOTWORKER_PROGRAM_USERS:-none}
# The metadata service and the platform's other address on every VM.
platform="169.254.169.254 168.63.129.16"
# Where the agent of the Metadata Security Protocol takes connections to both, which it
# redirects before any rule on those addresses sees them (github.com/Azure/GuestProxyAgent).
agent_port=3080

# The metadata service that worker.env names instead, as HOST or HOST:PORT.
endpoint=${SPOTWORKER_METADATA_ENDPOINT:-}
endpoint=${endpoint#*://}
endpoint=${endpoint%%/*}
case $endpoint in
  *[!0-9.:]* | none | "") endpoint= ;;
esac
case $endpoint in
  *:*) host=${endpoint%:*} port=${endpoint##*:} ;;
  *) host=$endpoint port=80 ;;
esac

there() { command -v "$1" >/dev/null 2>&1; }

down() {
  ! there nft || nft delete table inet spotworker 2>/dev/null || true
  if there iptables; then
    while iptables -w -D OUTPUT -j spotworker 2>/dev/null; do :; done
    { iptables -w -F spotworker && iptables -w -X spotworker; } 2>/dev/null || true
  fi
  if there ip; then
    while ip rule delete priority 5999 2>/dev/null; do :; done
  fi
}

# Atomic, so that programs of another worker never find the addresses open.
with_nft() {
  {
    echo "table inet spotworker"
    echo "delete table inet spotworker"
    echo "table inet spotworker {"
    echo "chain output {"
    echo "type filter hook output priority filter; policy accept;"
    for address in $platform; do
      echo "meta skuid $users ip daddr $address reject"
    done
    echo "meta skuid $users ip daddr 127.0.0.1 tcp dport $agent_port reject"
    [ -z "$endpoint" ] || echo "meta skuid $users ip daddr $host tcp dport $port reject"
    echo "}"
    echo "}"
  } | nft -f -
}

with_iptables() {
  down
  iptables -w -N spotworker || return
  for address in $platform; do
    iptables -w -A spotworker -d "$address" -m owner --uid-owner "$users" -j REJECT || return
  done
  iptables -w -A spotworker -d 127.0.0.1 -p tcp --dport "$agent_port" -m owner --uid-owner "$users" -j REJECT || return
  [ -z "$endpoint" ] ||
    iptables -w -A spotworker -d "$host" -p tcp --dport "$port" -m owner --uid-owner "$users" -j REJECT || return
  iptables -w -I OUTPUT 1 -j spotworker
}

# A routing rule cannot tell an address of this machine from another, so an
# endpoint in worker.env and the agent's port stay open.
with_ip() {
  down
  for address in $platform; do
    ip rule add priority 5999 uidrange "$users" to "$address" prohibit || return
  done
}

case ${1:-} in
  down) down ;;
  up)
    [ "$users" != none ] || {
      down
      exit 0
    }
    for way in nft iptables ip; do
      ! there "$way" || ! "with_$way" || exit 0
    done
    down
    echo "spotworker: cannot block $platform for users $users: none of nft, iptables and ip works here" >&2
    exit 1
    ;;
  *)
    echo "usage: firewall.sh up|down" >&2
    exit 64
    ;;
esac
