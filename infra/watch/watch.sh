#!/usr/bin/env bash
# Compares the deployed sizes and region with the prices of now, once: for the timer beside it, or for
# a pipeline. Prints what spotctl plan --watch finds, as lines of JSON.
#
#   SIZES="D2as_v5 D2s_v5" REGIONS=westeurope,northeurope infra/watch/watch.sh
#
# From the environment: SIZES; REGIONS (with commas between them: those in which VMs run, and those to
# compare them with), MAX_PRICE (USD an hour; default: none), REHOME=yes to move to a region that is
# found (tools/rehome.sh --yes, with its settings). AZURE_SUBSCRIPTION_ID adds quota and scores.
#
# Exit codes: 0 nothing is to be changed, or the VMs were moved; 2 something should be changed;
# 1 that cannot be found out, or the move failed.
set -euo pipefail
cd "$(dirname "$0")/../.."
: "${SIZES:?give the deployed sizes}" "${REGIONS:?give regions}"

# The first region of plan is the deployed one.
where=$(tools/rehome.sh --where | paste -s -d , -)
code=0
# shellcheck disable=SC2086 # one word for each size
found=$("${SPOTCTL:-bin/spotctl}" plan --watch $SIZES --region "${where:+$where,}$REGIONS" --max-price "${MAX_PRICE:--1}" --output json) || code=$?
[ -z "$found" ] || printf '%s\n' "$found"
case $code/${REHOME:-no}/$found in
  2/yes/*'{"finding":{"region":'*) tools/rehome.sh --yes <<<"$found" ;;
  *) exit "$code" ;;
esac
