#!/bin/sh
# Cancels jobs, also those that no worker has claimed yet.
exec spotctl cancel --yes --bar --reason 'Snakemake has ended' "$@"
